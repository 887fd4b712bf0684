"""`antiphon admin`: the client keys, the spend and the audit log of a running gateway, through its `/admin/` endpoints.

A key is printed once, alone on standard output, by `create` and `rotate`. `--json` prints what the gateway answered.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from antiphon.cli.options import read_time
from antiphon.cli.terminal import as_sentence, table, write, write_error, write_json
from antiphon.errors import AntiphonError
from antiphon_gateway.cli.gateway_client import GatewayClient, add_gateway_options
from antiphon_gateway.utc_time import as_utc

_LIMITS: dict[str, tuple[Callable[[str], Any], str]] = {
    "requests_per_minute": (int, "requests per minute"),
    "tokens_per_minute": (int, "tokens per minute"),
    "tokens_per_day": (int, "tokens per day (UTC)"),
    "tokens_per_month": (int, "tokens per month (UTC)"),
    "budget_per_day": (float, "US dollars per day (UTC)"),
    "budget_per_month": (float, "US dollars per month (UTC)"),
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PAGE = 500
_MOST_SPEND_ROWS = 100_000


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, text in (
        ("create", "create a client key and print it, once"),
        ("list", "list client keys"),
        ("show", "show a client key and what it used"),
        ("set", "change what a client key may do"),
        ("disable", "refuse a client key"),
        ("enable", "accept a client key again"),
        ("rotate", "replace a client key and print the new one, once"),
        ("delete", "delete a client key"),
        ("spend", "show what was spent"),
        ("audit", "show who changed what"),
    ):
        command = actions.add_parser(action, help=text, description=as_sentence(text))
        if action not in ("list", "spend", "audit"):
            command.add_argument("name", help="name of the key" if action == "create" else "name or id of the key")
        if action in ("create", "set"):
            _add_rules(command, is_new=action == "create")
        if action == "list":
            command.add_argument("--search", default="", help="only names that contain this")
        if action == "rotate":
            command.add_argument("--grace", default="0s", help="how long the old key is accepted too: 30m, 12h, 7d")
        if action == "spend":
            command.add_argument("--by", default="key", help="key, model, provider, day; several with commas")
            command.add_argument("--since", help="a UTC date or time, or 7d for seven days ago (default: 31 days ago)")
            command.add_argument("--until", help="a UTC date or time (default: now)")
            command.add_argument("--name", default="", help="only this client key")
        if action == "audit":
            command.add_argument("--limit", type=int, default=50, help="how many changes (default 50)")
        command.add_argument("--json", action="store_true", help="print the answer as JSON")
        add_gateway_options(command)


def _add_rules(parser: argparse.ArgumentParser, *, is_new: bool) -> None:
    none = "" if is_new else "; none: unlimited"
    for limit, (_, text) in _LIMITS.items():
        parser.add_argument(f"--{limit.replace('_', '-')}", metavar="N", help=text + none)
    parser.add_argument("--models", help="models it may use, as globs with commas (default: all)")
    parser.add_argument(
        "--expires", metavar="WHEN", help=f"a date, a time, or from now: 30d{'; none: never' * (not is_new)}"
    )
    parser.add_argument("--admin", action=argparse.BooleanOptionalAction, help="whether it is an admin key")
    parser.add_argument("--strict", action=argparse.BooleanOptionalAction, help="whether requests are never changed")


def run(arguments: argparse.Namespace) -> int:
    """Ask the gateway, and print the answer."""
    answer, lines = _ask(arguments)
    if arguments.json:
        write_json(answer)
    else:
        write(lines)
    return 0


_DONE = {
    "set": "changed {}",
    "disable": "disabled {}",
    "enable": "enabled {}",
    "delete": "deleted {}; its usage stays in the ledger",
}


def _ask(arguments: argparse.Namespace) -> tuple[dict[str, Any], Iterable[str]]:
    """What the gateway answers, and the lines that say so."""
    action = arguments.action
    rules = _rules(arguments) if action in ("create", "set") else {}
    grace = _grace(arguments.grace) if action == "rotate" else 0
    gateway = GatewayClient(arguments)
    if action == "list":
        keys = list(_all_keys(gateway, arguments.search))
        return {"keys": keys}, _key_table(keys)
    if action == "spend":
        spent = _spend(gateway, arguments)
        return spent, _spend_lines(spent, arguments.by)
    if action == "audit":
        log = gateway.request("GET", "/admin/audit", limit=arguments.limit)
        return log, _audit_table(log["changes"])
    path = f"/admin/keys/{arguments.name}"
    if action == "show":
        key = gateway.request("GET", path)
        return key, _key_lines(key)
    if action == "create":
        made = gateway.request("POST", "/admin/keys", {"name": arguments.name, **rules})
        return made, _secret_lines(made)
    if action == "rotate":
        made = gateway.request("POST", f"{path}/rotate", {"grace_seconds": grace})
        return made, _secret_lines(made)
    if action == "set":
        if not rules:
            raise AntiphonError("nothing to change; give an option such as --budget-per-day 5")
        done = gateway.request("PATCH", path, rules)
    elif action == "delete":
        done = gateway.request("DELETE", path)
    else:
        done = gateway.request("POST", f"{path}/{action}", {})
    return done, [_DONE[action].format(arguments.name)]


def _all_keys(gateway: GatewayClient, search: str) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while True:
        page = gateway.request("GET", "/admin/keys", limit=_PAGE, search=search, after=after)
        yield from page["keys"]
        after = page["after"]
        if after is None:
            return


def _rules(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a key that were given. `none` removes a limit of a key that exists."""
    rules: dict[str, Any] = {}
    may_remove = arguments.action == "set"
    for limit, (read, _) in _LIMITS.items():
        written = getattr(arguments, limit)
        if written is None:
            continue
        if may_remove and written == "none":
            rules[limit] = None
            continue
        try:
            rules[limit] = read(written.replace("_", ""))
        except ValueError:
            rules[limit] = float("nan")
        if not isfinite(rules[limit]):  # JSON has no nan and inf; as null they would remove the limit
            raise AntiphonError(f"--{limit.replace('_', '-')} {written}: expected a number")
    if arguments.models is not None:
        rules["models"] = [glob.strip() for glob in arguments.models.split(",") if glob.strip()]
    if arguments.expires is not None:
        rules["expires"] = None if may_remove and arguments.expires == "none" else _moment(arguments.expires)
    rules |= {name: getattr(arguments, name) for name in ("admin", "strict") if getattr(arguments, name) is not None}
    return rules


def _moment(written: str) -> str:
    """A time as the gateway takes it."""
    try:
        seconds = _duration(written)
        moment = datetime.fromisoformat(written) if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        message = f"--expires {written}: expected a date (2027-01-31), a time (2027-01-31T18:00Z) or a duration (30d)"
        raise AntiphonError(message) from None
    return as_utc(moment).isoformat(timespec="seconds")


def _grace(written: str) -> int:
    seconds = _duration(written)
    if seconds is None:
        raise AntiphonError(f"--grace {written}: expected a number and a unit: 90s, 30m, 12h or 7d")
    return seconds


def _duration(written: str) -> int | None:
    """The seconds of `90s`, `30m`, `12h` or `7d`; None for anything else."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", written)
    return int(found[1]) * _UNITS[found[2]] if found else None


def _secret_lines(answer: dict[str, Any]) -> Iterator[str]:
    """A key, alone on standard output."""
    until = answer.get("old_key_until")
    note = f"; the old one is accepted until {until}" if until else ""
    write_error(f"the key of {answer['name']} ({answer['id']}), shown only once{note}:")
    yield answer["key"]


def _key_table(keys: list[dict[str, Any]]) -> Iterable[str]:
    rows = [[key["name"], _state(key), _limits(key), key["source"], key["id"] or ""] for key in keys]
    return table(["NAME", "STATE", "LIMITS", "SOURCE", "ID"], rows)


def _key_lines(key: dict[str, Any]) -> Iterator[str]:
    yield f"{key['name']}  {_state(key)}"
    for field in ("id", "source", "fingerprint", "created_at", "changed_at", "rotated_at", "old_key_until"):
        if key.get(field):
            yield f"  {field:<16} {key[field]}"
    yield f"  {'models':<16} {', '.join(key['models'])}"
    yield f"  {'limits':<16} {_limits(key) or 'none'}"
    for period, text in (("day", "today"), ("month", "this month")):
        used = key["usage"][period]
        tokens = used["prompt_tokens"] + used["completion_tokens"]
        yield f"  {text:<16} {used['calls']} calls, {tokens:,} tokens, {_dollars(used['cost'])}"


def _state(key: dict[str, Any]) -> str:
    if key["disabled"]:
        return "disabled"
    expires = key["expires"]
    if expires and datetime.fromisoformat(expires) <= datetime.now(UTC):
        return "expired"
    return "admin" if key["admin"] else "active"


def _limits(key: dict[str, Any]) -> str:
    limits = [f"{limit}={key[limit]:,g}" for limit in _LIMITS if key[limit] is not None]
    return ", ".join(limits + ([f"until {key['expires']}"] if key["expires"] else []))


def _spend(gateway: GatewayClient, arguments: argparse.Namespace) -> dict[str, Any]:
    since, until = read_time("--since", arguments.since), read_time("--until", arguments.until)
    return gateway.request(
        "GET",
        "/admin/spend",
        by=arguments.by,
        since=None if since is None else since.isoformat(),
        until=None if until is None else until.isoformat(),
        key=arguments.name,
        limit=_MOST_SPEND_ROWS,
    )


def _spend_lines(spent: dict[str, Any], by: str) -> Iterator[str]:
    """The same table as `antiphon spend` prints."""
    from antiphon_gateway.cli.spend import spend_table
    from antiphon_gateway.ledger.spend import DIMENSIONS

    rows = spent["rows"]
    if not rows:
        yield "no usage recorded for that time"
        return
    yield from spend_table(rows, [name for name in DIMENSIONS if name in by.split(",")])
    if spent["total"] > len(rows):
        yield f"only the first {len(rows):,} of {spent['total']:,} rows; narrow it down with --since or --name"


def _audit_table(changes: list[dict[str, Any]]) -> Iterable[str]:
    rows = [
        [
            row["at"][:19],
            row["operator"],
            row["peer"],
            row["action"],
            row["target"],
            ", ".join(_details(row["details"])),
        ]
        for row in changes
    ]
    return table(["TIME", "OPERATOR", "FROM", "ACTION", "TARGET", "DETAILS"], rows)


def _details(details: dict[str, Any]) -> Iterator[str]:
    """The changed fields. A new key has all its rules there; those that state nothing are left out."""
    for name, value in details.items():
        if name == "rules":
            yield from _details({rule: set_to for rule, set_to in value.items() if set_to not in (None, False, ["*"])})
        elif name != "id":
            yield f"{name}={value}"


def _dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:,.4f}"
