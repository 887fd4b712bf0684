"""`GatewayClient`: requests of commands to a running gateway, with an admin key from the environment or a file."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from antiphon.errors import AntiphonError, CredentialError
from antiphon.http.body import read_bounded
from antiphon.http.client.client import HttpClient
from antiphon.http.client.connection import parse_url
from antiphon.http.client.request import HttpRequest, Timeouts
from antiphon.http.origin import is_loopback
from antiphon.json_text import NOT_JSON
from antiphon.providers.keys.secret import Credential, is_reference
from antiphon_gateway.config.file import ADMIN_KEY_VARIABLE

_URL = "http://127.0.0.1:8000"
_TIMEOUTS = Timeouts(read=30.0)
_MAX_BYTES = 256 << 20
"""Of an answer: it may be the spend of a year."""


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
        try:
            host = parse_url(arguments.url).origin.host
        except ValueError:
            raise AntiphonError(f"--url {arguments.url}: expected an http or https URL") from None
        self._url = arguments.url.rstrip("/")
        is_here = host == "localhost" or is_loopback(host)
        self._environ = {**os.environ, "no_proxy": host} if is_here else os.environ
        """That of proxies, where none leads to this machine, and of certificates."""
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
        data = () if body is None else (msgspec.json.encode(body),)
        request = HttpRequest(url=url, headers=self._headers, body=data, method=method, timeouts=_TIMEOUTS)
        try:
            status, received = asyncio.run(self._send(request))
            answer = _Answer(msgspec.json.decode(received, type=dict[str, Any]) if status < 300 else {})
        except (AntiphonError, *NOT_JSON) as error:
            raise AntiphonError(f"no answer from the gateway at {self._url}: {error}") from None
        if status >= 300:
            with suppress(*NOT_JSON, KeyError, TypeError):
                raise AntiphonError(f"{self._url}: {msgspec.json.decode(received)['error']['message']}")
            raise AntiphonError(f"{self._url} answered with status {status}")
        answer.url = self._url
        return answer

    async def _send(self, request: HttpRequest) -> tuple[int, bytes]:
        """The status and the body of the response."""
        client = HttpClient(self._environ)
        try:
            response = await client.send(request)
            return response.status, await read_bounded(response, _MAX_BYTES)
        finally:
            await client.aclose()
