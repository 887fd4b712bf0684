"""`antiphon key`: keys for the clients of the gateway, and the provider keys of a running one.

A new client key is shown once and not stored; the configuration has its hash. Provider keys are listed by source and switched
off and on through the gateway's `/credentials`.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from antiphon.cli.terminal import table, write, write_error
from antiphon.errors import AntiphonError
from antiphon_gateway.access.client_keys import hash_key, new_key
from antiphon_gateway.cli.gateway_client import GatewayClient, add_gateway_options


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="create a key and print its config lines")
    new.add_argument(
        "--admin", action="store_true", help="make it an admin key, for /admin/, /status and /metrics; needs --name"
    )
    new.add_argument("--name", help="name in logs and metrics; allows limits for this key")
    for action, text in (
        ("list", "list the provider keys of a running gateway"),
        ("disable", "stop using a provider key"),
        ("enable", "use a provider key again"),
    ):
        parser = actions.add_parser(action, help=text)
        if action != "list":
            parser.add_argument("provider", help="the provider, as in the list")
            parser.add_argument("credential", help="the key, as in the list: env:NAME or file:NAME")
        add_gateway_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Create a client key, or list or switch provider keys."""
    return _new(arguments) if arguments.action == "new" else _credentials(arguments)


def _credentials(arguments: argparse.Namespace) -> int:
    gateway = GatewayClient(arguments)
    if arguments.action == "list":
        answer = gateway.request("GET", "/credentials")
    else:
        names = {"provider": arguments.provider, "credential": arguments.credential}
        answer = gateway.request("POST", "/credentials", {**names, "enabled": arguments.action == "enable"})
    rows = [
        [row["provider"], row["credential"], _state(row), str(row["calls"]), str(row["failures"]), row["last_error"]]
        for row in answer["credentials"]
    ]
    write(table(["PROVIDER", "CREDENTIAL", "STATE", "CALLS", "FAILURES", "LAST ERROR"], rows))
    return 0


def _state(row: dict[str, Any]) -> str:
    """The state of a key, and of the models it is not healthy for."""
    states = [(row["state"], "", row["until"])]
    states += [(held["state"], f" for {held['model']}", held["until"]) for held in row["models"]]
    if any((held["state"], held["until"]) == (row["state"], row["until"]) for held in row["models"]):
        states = states[1:]  # it is that of a model
    return "; ".join(state + model + (f" until {until[:19]}" if until else "") for state, model, until in states)


def _new(arguments: argparse.Namespace) -> int:
    """Print a new key and what goes into the configuration."""
    if arguments.name is not None and not (arguments.name.strip() and arguments.name.isprintable()):
        raise AntiphonError("the name of a key is a line of text; give one such as --name laptop")
    if arguments.admin and arguments.name is None:
        raise AntiphonError("an admin key needs a name; give one such as --admin --name operator")
    key = new_key()
    if arguments.name is None:
        where = "add to client_keys in [gateway]"
        lines = [f'client_keys = ["{hash_key(key)}"]']
    else:
        where = "add"
        lines = ["[[keys]]", f"name = {_quoted(arguments.name)}", f'key = "{hash_key(key)}"']
        lines += ["admin = true"] if arguments.admin else []
    write_error("the key, shown only once; clients send it as their API key:")
    _print(key)
    write_error(f"for antiphon.toml, {where}:")
    for line in lines:
        _print(line)
    return 0


def _quoted(text: str) -> str:
    # A string of JSON is a string of TOML as long as nothing in it is a control character.
    return msgspec.json.encode(text).decode()


def _print(line: str) -> None:
    write([line])
    sys.stdout.flush()  # in step with the lines on standard error
