"""What the server refuses by itself is written in the format of the client."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection

import msgspec
import pytest

from gateway.rig import Rig, rig


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as one:
        yield one


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"message", "type", "param", "code"}),
        ("/v1/messages", {"message", "type"}),
        ("/v1beta/models/m:generateContent", {"message", "status", "code"}),
    ],
)
@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-encoding": "br"}, b"xxxxx", 415),
        ({"content-encoding": "gzip"}, b"xxxxx", 400),
        ({"content-encoding": "zstd"}, b"xxxxx", 400),
        ({"content-type": "text/plain"}, b"{}", 415),
        ({"connection": "upgrade", "upgrade": "websocket"}, b"{}", 426),
    ],
)
def test_refusals_are_in_the_shape_of_the_client(
    gateway: Rig, path: str, fields: set[str], headers: dict[str, str], body: bytes, status: int
) -> None:
    connection = HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("POST", path, body, {"content-type": "application/json"} | headers)
    answer = connection.getresponse()
    assert answer.status == status
    assert msgspec.json.decode(answer.read())["error"].keys() == fields
    connection.close()
