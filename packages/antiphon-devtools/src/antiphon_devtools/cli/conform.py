"""`antiphon conform URL`: test a gateway between LLM API formats from both of its ends."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import structs

from antiphon import __version__
from antiphon.cli.terminal import styled, table, write, write_error
from antiphon_devtools.conform.case import CLIENT_GROUPS, Case, CaseError, load_cases
from antiphon_devtools.conform.client import NO_KEY, Client
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.gateways import GATEWAYS, PEER_FORMATS, PORTS, Gateway, setup
from antiphon_devtools.conform.report import (
    VERDICTS,
    as_badge,
    as_json,
    as_junit,
    failure_lines,
    group_rows,
    pair_rows,
    reasons,
)
from antiphon_devtools.conform.run import OutOfTime, Plan, Result, Runner
from antiphon_devtools.conform.upstream import MockProviders


class _WrongUse(Exception):
    """An argument that cannot be used; the message says which."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url", nargs="?", metavar="URL", help="the gateway: http://127.0.0.1:8000, without the path of an endpoint"
    )
    parser.add_argument(
        "--setup", metavar="NAME", help=f"print a configuration for a gateway and exit: {', '.join(GATEWAYS)}"
    )
    parser.add_argument(
        "--gateway", metavar="NAME", default="antiphon", help="how to address the gateway (names as for --setup)"
    )
    parser.add_argument("--key", default=NO_KEY, help="the API key that the gateway expects")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="[FORMAT=]NAME",
        help="the model that is routed to the mock provider of FORMAT (default: conform-FORMAT); with --client-only, just NAME",
    )
    parser.add_argument(
        "--upstream-ports",
        metavar="PORTS",
        help=f"ports of the mock providers {', '.join(PORTS)}, separated by commas (default: {_shown_ports()})",
    )
    parser.add_argument("--client-formats", metavar="NAMES", help="only clients of these formats, separated by commas")
    parser.add_argument(
        "--upstream-formats", metavar="NAMES", help="only providers of these formats, separated by commas"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="only cases GROUP/ID like this; may be repeated"
    )
    parser.add_argument(
        "--cases", action="append", default=[], metavar="FOLDER", help="also run the cases in this folder"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument(
        "--client-only",
        action="store_true",
        help="no mock providers: only the client's side, for a hosted API (with --list: the cases that this runs)",
    )
    parser.add_argument(
        "--timeout", type=float, default=15.0, metavar="SECONDS", help="longest wait for one answer (default: 15)"
    )
    parser.add_argument(
        "--timeout-total", type=float, default=900.0, metavar="SECONDS", help="longest whole run (default: 900)"
    )
    parser.add_argument(
        "--cancel-seconds",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how soon a provider must be released after the client left (default: 5)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument("--badge", metavar="FILE", help="write an SVG badge")
    parser.add_argument("--quiet", action="store_true", help="print the tables only, not the failures")


def run(arguments: argparse.Namespace) -> int:
    try:
        ports = _ports(arguments.upstream_ports)
        if arguments.setup is not None:
            write([setup(_known("--setup", arguments.setup, GATEWAYS), ports)])
            return 0
        cases = _cases(arguments)
        if arguments.list:
            write(table(("case", "title"), [(f"{each.group}/{each.id}", each.title) for each in cases]))
            return 0
        plan = Plan(
            cases=cases,
            clients=_names("--client-formats", arguments.client_formats),
            upstreams=_names("--upstream-formats", arguments.upstream_formats),
            cancel_seconds=_positive("--cancel-seconds", arguments.cancel_seconds),
            total_seconds=_positive("--timeout-total", arguments.timeout_total),
        )
        client = Client(_url(arguments.url), arguments.key, _positive("--timeout", arguments.timeout))
        gateway = _gateway(arguments)
    except (_WrongUse, CaseError) as error:
        write_error(f"antiphon conform: {error}")
        return 2
    if reason := client.why_unreachable():
        write_error(
            f"antiphon conform: nothing answers at {arguments.url}: {reason}; start the gateway first "
            f"(`antiphon conform --setup NAME` prints a configuration)"
        )
        return 2
    return _conform(arguments, plan, client, gateway, ports)


def _conform(arguments: argparse.Namespace, plan: Plan, client: Client, gateway: Gateway, ports: dict[str, int]) -> int:
    results: list[Result] = []
    is_complete = False
    with ExitStack() as stack:
        providers = None
        if not arguments.client_only:
            try:
                providers = stack.enter_context(MockProviders(ports))
            except OSError as error:
                write_error(
                    f"antiphon conform: cannot start the mock providers: {error}; choose others with --upstream-ports"
                )
                return 2
        try:
            for result in Runner(client, providers, gateway, plan).results():
                results.append(result)
                if result.verdict == "failed" and not arguments.quiet:
                    write(failure_lines(result))
            is_complete = True
        except OutOfTime:
            write_error(
                f"antiphon conform: stopped after --timeout-total {plan.total_seconds:g} s; the rest was not run"
            )
    _summarize(results)
    _write_files(arguments, results)
    failed = any(each.verdict == "failed" for each in results)
    judged = any(each.verdict != "not applicable" for each in results)
    if not judged:
        write_error(
            "antiphon conform: no case applied; is the gateway running, and does it route the models? "
            "See `antiphon conform --setup NAME`"
        )
    return int(failed or not judged or not is_complete)


def _summarize(results: Sequence[Result]) -> None:
    write(["", *table(("group", *VERDICTS), group_rows(results)), ""])
    upstreams = list(dict.fromkeys(each.upstream or "API" for each in results))
    write(table(("client \\ provider", *upstreams), pair_rows(results)))
    write([styled(f"not applicable: {reason}", "dim") for reason in reasons(results)])


def _write_files(arguments: argparse.Namespace, results: Sequence[Result]) -> None:
    about = {"suite": f"antiphon {__version__}", "url": arguments.url, "gateway": arguments.gateway}
    outputs = (
        (arguments.json, as_json(results, about)),
        (arguments.junit, as_junit(results).encode()),
        (arguments.badge, as_badge(results).encode()),
    )
    for file, content in outputs:
        if file:
            try:
                Path(file).write_bytes(content)
            except OSError as error:
                write_error(f"antiphon conform: cannot write {file}: {error.strerror}")


def _cases(arguments: argparse.Namespace) -> list[Case]:
    cases = [
        each
        for each in load_cases([Path(folder) for folder in arguments.cases])
        if (each.client_only if arguments.client_only else each.group not in CLIENT_GROUPS)
    ]
    if arguments.only:
        cases = [
            each
            for each in cases
            if any(fnmatch.fnmatchcase(f"{each.group}/{each.id}", glob) or each.id == glob for glob in arguments.only)
        ]
        if not cases:
            kind = " --client-only" if arguments.client_only else ""
            raise _WrongUse(
                f"no case{' of' + kind if kind else ''} is like {' or '.join(arguments.only)}; see --list{kind}"
            )
    return cases


def _gateway(arguments: argparse.Namespace) -> Gateway:
    known = GATEWAYS[_known("--gateway", arguments.gateway, GATEWAYS)]
    models: dict[str, str] = {}
    for given in arguments.model:
        name, equals, model = given.partition("=")
        if not equals and arguments.client_only:
            models[""] = given
        elif not equals or name not in FORMATS or not model:
            raise _WrongUse(f"--model {given}: write FORMAT=NAME with one of {', '.join(FORMATS)}")
        else:
            models[name] = model
    if arguments.client_only and not models:
        raise _WrongUse("--client-only needs --model NAME: the model to ask")
    return structs.replace(known, models=models) if models else known


def _url(url: str | None) -> str:
    if url is None:
        raise _WrongUse("name the address of the gateway: `antiphon conform http://127.0.0.1:8000`")
    parts = urlsplit(url)
    try:
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise _WrongUse(f"{url!r} is not an http:// or https:// address")
    return url


def _known(option: str, name: str, among: dict[str, Gateway]) -> str:
    if name not in among:
        raise _WrongUse(f"{option} {name}: unknown gateway; known: {', '.join(among)}")
    return name


def _names(option: str, given: str | None) -> tuple[str, ...]:
    names = tuple(FORMATS) if given is None else tuple(name.strip() for name in given.split(","))
    if unknown := [name for name in names if name not in FORMATS]:
        raise _WrongUse(f"{option}: unknown format {unknown[0]!r}; known: {', '.join(FORMATS)}")
    return names


def _ports(given: str | None) -> dict[str, int]:
    if given is None:
        return dict(PORTS)
    numbers = given.split(",")
    is_count = len(PEER_FORMATS) <= len(numbers) <= len(PORTS)
    if not is_count or not all(each.strip().isdecimal() and 0 < int(each) < 65536 for each in numbers):
        raise _WrongUse(
            f"--upstream-ports {given}: write {len(PORTS)} ports separated by commas, like {_shown_ports()}; "
            f"with {len(PEER_FORMATS)}, the rest is the default"
        )
    return PORTS | dict(zip(PORTS, map(int, numbers), strict=False))


def _shown_ports() -> str:
    return ",".join(map(str, PORTS.values()))


def _positive(option: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise _WrongUse(f"{option} {value:g}: must be a positive number of seconds")
    return value
