"""`antiphon key`: keys for the clients of the gateway, and the provider keys of a running one.

A new client key is shown once and not stored; the configuration has its hash. Provider keys are listed by source and switched
off and on through the gateway's `/credentials`.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import msgspec

from antiphon.cli.terminal import table, write, write_error
from antiphon.errors import AntiphonError, CredentialError
from antiphon.gateway.access.client_keys import hash_key, new_key
from antiphon.gateway.config.file import ADMIN_KEY_VARIABLE
from antiphon.providers.credentials.secret import Credential

_URL = "http://127.0.0.1:8000"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="create a key and print its config lines")
    new.add_argument("--admin", action="store_true", help="let it read /status and /metrics; needs --name")
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
        parser.add_argument("--url", default=_URL, help=f"the gateway (default {_URL})")
        parser.add_argument(
            "--key",
            metavar="REF",
            default=f"env:{ADMIN_KEY_VARIABLE}",
            help=f"an admin key: env:NAME or file:PATH (default env:{ADMIN_KEY_VARIABLE}, if it is set)",
        )


def run(arguments: argparse.Namespace) -> int:
    """Create a client key, or list or switch provider keys."""
    return _new(arguments) if arguments.action == "new" else _credentials(arguments)


def _credentials(arguments: argparse.Namespace) -> int:
    body = None
    if arguments.action != "list":
        names = {"provider": arguments.provider, "credential": arguments.credential}
        body = msgspec.json.encode({**names, "enabled": arguments.action == "enable"})
    rows = _ask_gateway(arguments.url.rstrip("/"), arguments.key, body)
    columns = ("provider", "credential", "state", "calls", "failures")
    write(table([name.upper() for name in columns], [[str(row.get(name, "")) for name in columns] for row in rows]))
    return 0


def _ask_gateway(url: str, reference: str, body: bytes | None) -> list[dict[str, Any]]:
    headers = {"content-type": "application/json"}
    with suppress(CredentialError):  # a gateway without client keys serves this machine
        headers["authorization"] = f"Bearer {Credential(secret=reference).read()}"
    request = urllib.request.Request(f"{url}/credentials", body, headers, method="POST" if body else "GET")
    if request.type not in ("http", "https"):
        raise AntiphonError(f"--url {url}: expected an http or https URL")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = msgspec.json.decode(response.read())
    except urllib.error.HTTPError as error:
        with suppress(msgspec.DecodeError, KeyError, TypeError):
            raise AntiphonError(f"{url}: {msgspec.json.decode(error.read())['error']['message']}") from None
        raise AntiphonError(f"{url} answered with status {error.code}") from None
    except (urllib.error.URLError, OSError, msgspec.DecodeError) as error:
        raise AntiphonError(f"no answer from the gateway at {url}: {getattr(error, 'reason', error)}") from None
    return list(answer["credentials"])


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
