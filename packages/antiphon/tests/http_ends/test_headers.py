"""One codec: what is read is written again byte for byte, no header brings another, and a kept head equals one just written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.http.client.connection import SharedHeaders, parse_url, request_head
from antiphon.http.client.request import HttpRequest
from antiphon.http.messages import CODEC, ERRORS, read_fields, write_fields

NAMES = st.from_regex(r"[a-z][a-z-]{0,12}", fullmatch=True)
VALUES = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte not in b"\r\n\0").strip(b" \t"))
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), max_size=20)
METHODS = st.sampled_from(["GET", "POST", "DELETE"])


@given(st.dictionaries(NAMES.map(str.encode), VALUES, max_size=8))
def test_fields_are_written_as_they_were_read(fields: dict[bytes, bytes]) -> None:
    lines = b"".join(b"%b: %b\r\n" % field for field in fields.items())
    assert write_fields(read_fields(list(fields.items()))).encode(CODEC, ERRORS) == lines


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\r", "a\0"])
@pytest.mark.parametrize("is_name", [True, False])
def test_no_header_brings_another(value: str, is_name: bool) -> None:
    headers = {value: "x"} if is_name else {"x-name": value}
    with pytest.raises(ValueError, match="line break"):
        write_fields(headers)
    for given_headers in (headers, SharedHeaders(headers)):
        request = HttpRequest(url="http://host.example/v1", headers=given_headers)
        with pytest.raises(TransportError, match="characters that HTTP does not allow"):
            request_head(request, "/v1", parse_url(request.url).origin)


@given(
    st.dictionaries(NAMES, TEXTS, max_size=6), st.lists(st.tuples(METHODS, NAMES, st.binary(max_size=9)), max_size=5)
)
def test_a_head_that_is_kept_is_the_one_that_would_be_written(
    headers: dict[str, str], sent: list[tuple[str, str, bytes]]
) -> None:
    """The headers of a key are shared by requests of any method, address and size."""
    shared = SharedHeaders(headers)
    for method, place, body in sent * 2:
        request = HttpRequest(url=f"http://{place}.example/{place}", method=method, body=[body], headers=headers)
        kept = HttpRequest(url=request.url, method=method, body=[body], headers=shared)
        origin, target = parse_url(request.url)
        assert request_head(kept, target, origin) == request_head(request, target, origin)


def test_own_values_replace_ours_and_lengths_are_computed() -> None:
    headers = {"User-Agent": "mine", "Host": "other.example", "Content-Length": "9", "x-one": "1"}
    request = HttpRequest(url="http://host.example/v1", headers=headers, body=[b"ab"])
    head = request_head(request, "/v1", parse_url(request.url).origin).decode()
    assert head.splitlines() == [
        "POST /v1 HTTP/1.1",
        "host: other.example",
        "user-agent: mine",
        "accept-encoding: identity",
        "x-one: 1",
        "content-length: 2",
        "",
    ]
