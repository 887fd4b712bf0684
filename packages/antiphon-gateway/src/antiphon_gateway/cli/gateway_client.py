"""`GatewayClient`: requests of commands to a running gateway, with an admin key from the environment or a file."""

from __future__ import annotations

import argparse
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from antiphon.errors import AntiphonError, CredentialError
from antiphon.json_text import NOT_JSON
from antiphon.providers.keys.secret import Credential, is_reference
from antiphon_gateway.config.file import ADMIN_KEY_VARIABLE

_URL = "http://127.0.0.1:8000"
_SECONDS = 30


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """The options of commands that ask a gateway."""
    parser.add_argument("--url", default=_URL, help=f"the gateway (default {_URL})")
    parser.add_argument(
        "--key",
        metavar="REF",
        default=f"env:{ADMIN_KEY_VARIABLE}",
        help=f"an admin key: env:NAME or file:PATH (default env:{ADMIN_KEY_VARIABLE}, if it is set)",
    )


class _Answer(dict[str, Any]):
    """What a gateway answered. Raises `AntiphonError` for a field that it has not."""

    url = ""

    def __missing__(self, name: str) -> Any:
        raise AntiphonError(f"the answer from {self.url} has no {name!r}; it is not from a gateway of this version")


class GatewayClient:
    """Asks the gateway that the options name. Raises `AntiphonError` with the gateway's reason."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        if not arguments.url.lower().startswith(("http://", "https://")):
            raise AntiphonError(f"--url {arguments.url}: expected an http or https URL")
        self._url = arguments.url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if not is_reference(arguments.key):
            raise AntiphonError("--key expects env:NAME or file:PATH; keys do not belong on a command line")
        try:
            self._headers["authorization"] = f"Bearer {Credential(secret=arguments.key).read()}"
        except CredentialError:
            if arguments.key != f"env:{ADMIN_KEY_VARIABLE}":
                raise  # the default may be unset: a gateway without client keys serves this machine

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | int | None
    ) -> dict[str, Any]:
        """The response, which is a JSON object."""
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        url = self._url + quote(path) + (f"?{urlencode(asked)}" if asked else "")
        data = None if body is None else msgspec.json.encode(body)
        try:
            request = urllib.request.Request(url, data, self._headers, method=method)
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                answer = _Answer(msgspec.json.decode(response.read(), type=dict[str, Any]))
        except urllib.error.HTTPError as error:
            with suppress(OSError, HTTPException, *NOT_JSON, KeyError, TypeError):
                raise AntiphonError(f"{self._url}: {msgspec.json.decode(error.read())['error']['message']}") from None
            raise AntiphonError(f"{self._url} answered with status {error.code}") from None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            reason = str(getattr(error, "reason", error)).strip()
            raise AntiphonError(f"no answer from the gateway at {self._url}: {reason}") from None
        answer.url = self._url
        return answer
