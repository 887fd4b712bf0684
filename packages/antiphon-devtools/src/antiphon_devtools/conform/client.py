"""The client: sends one request to the gateway under test and reads the answer as a strict client of that format would."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from antiphon.json_text import NOT_JSON
from antiphon_devtools.conform.bodies import error_of
from antiphon_devtools.conform.conversation import Event, Reply
from antiphon_devtools.conform.formats import Format

NO_KEY = "none"
_NO_SUCH_KEY = "sk-conform-no-such-key"
_KEPT = 4_000
"""How many characters of an answer are kept for the report."""


class Client:
    """Sends requests to `url`. `seconds` bounds each."""

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._address = urlsplit(url)
        self._key = key
        self.has_key = key != NO_KEY
        self._seconds = seconds

    def why_unreachable(self) -> str:
        """Why nothing answers at the address; empty if something does."""
        port = self._address.port or (443 if self._address.scheme == "https" else 80)
        try:
            socket.create_connection((self._address.hostname or "", port), timeout=self._seconds).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def send(
        self,
        known: Format,
        body: Any,
        model: str,
        *,
        streams: bool,
        headers: Mapping[str, str],
        prefix: str = "",
        mistake: str = "",
        leave: Callable[[], bool] | None = None,
    ) -> Reply:
        """One request. With `leave`, the client waits for that, reads the first piece of a stream, and closes the connection.

        `mistake` is that of a case: JSON that is cut, or a key or path that does not exist.
        """
        began = time.monotonic()
        secure = self._address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._address.hostname or "", self._address.port, timeout=self._seconds)
        key = _NO_SUCH_KEY if mistake == "key" else self._key
        sent = {"content-type": "application/json", **known.endpoint.headers(key), **headers}
        endpoint = known.endpoint.path_of(model, streams)
        if mistake == "path":
            endpoint = f"{endpoint.rpartition('/')[0]}/conform-no-such-path"
        data = msgspec.json.encode(body)
        if mistake == "json":
            data = data[: len(data) // 2]
        try:
            connection.request("POST", self._address.path.rstrip("/") + prefix + endpoint, data, sent)
            if leave is not None:
                leave()
                reply = Reply()
                if streams:
                    with connection.getresponse() as response:
                        reply.status = response.status
                        response.read1(65536)
            else:
                response = connection.getresponse()
                reply = self._read(known, response, streams, began + self._seconds)
        except TimeoutError:
            reply = Reply(status=0, error="no answer in time", problems=[f"no answer within {self._seconds:g} s"])
        except (http.client.HTTPException, OSError) as error:
            reply = Reply(status=0, error=f"{type(error).__name__}: {error}", problems=["the connection broke"])
        finally:
            connection.close()
        reply.seconds = time.monotonic() - began
        return reply

    def _read(self, known: Format, response: http.client.HTTPResponse, streams: bool, deadline: float) -> Reply:
        data, broke = _read_all(response, deadline)
        text = data.decode("utf-8", "replace")
        kind = response.headers.get("content-type") or ""
        if response.status >= 400:
            reply = _read_error(known, text)
        elif streams:
            reply = _read_stream(known, text, kind)
        else:
            reply = _read_whole(known, data)
        if broke:
            reply.is_complete = False
            reply.error = reply.error or broke
        reply.status, reply.raw = response.status, text[:_KEPT]
        return reply


def _read_all(response: http.client.HTTPResponse, deadline: float) -> tuple[bytes, str]:
    """What came, and how the connection broke if it did."""
    data = b""
    try:
        while piece := response.read1(65536):
            data += piece
            if time.monotonic() > deadline:
                return data, "the answer did not end in time"
    except (http.client.HTTPException, OSError) as error:
        return data, f"the connection broke: {type(error).__name__}"
    return data, ""


def _read_error(known: Format, text: str) -> Reply:
    try:
        body = msgspec.json.decode(text)
    except NOT_JSON:
        return Reply(error=text[:200] or "(empty body)", problems=["the error body is not JSON"])
    problems = known.error_problems(body)
    return Reply(error=text[:200] if problems else error_of(body)["message"], problems=problems)


def _read_whole(known: Format, data: bytes) -> Reply:
    try:
        body = msgspec.json.decode(data)
    except NOT_JSON:
        return Reply(problems=["the answer is not JSON"])
    if not isinstance(body, dict):
        return Reply(problems=["the answer is not a JSON object"])
    try:
        return known.read_answer(body)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        return Reply(problems=[f"the answer has an unexpected shape: {error}"])


def _read_stream(known: Format, text: str, kind: str) -> Reply:
    if "text/event-stream" not in kind:
        return Reply(problems=[f"content-type is {kind!r}, not text/event-stream"])
    try:
        return known.read_events(_events(text))
    except (*NOT_JSON, TypeError, AttributeError, KeyError, ValueError) as error:
        return Reply(problems=[f"an event of the stream cannot be read: {error}"])


def _events(text: str) -> list[Event]:
    """The complete events; what follows the last blank line was cut and does not count."""
    found = []
    blocks = text.replace("\r\n", "\n").split("\n\n")
    for block in blocks[:-1]:
        lines = block.split("\n")
        name = "".join(line[6:].strip() for line in lines if line.startswith("event:"))
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        if data:
            found.append(Event(name, data))
    return found
