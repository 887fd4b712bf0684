"""`ResponseParser`: damaged responses are read, or refused, however their bytes are cut."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from antiphon.http.client.response_parser import ResponseParser
from antiphon.http.decompress import Malformed
from http_ends.client.raw_host import CONTENT, LENGTH, OK
from http_ends.client.test_client import CHUNKED, CHUNKS, FRAMED, PACKED
from support.damage import cut, damaged_bytes

RESPONSES = [
    *FRAMED.values(),
    OK + b"\r\n" + CONTENT,
    OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED,
    b"HTTP/1.1 204 No Content\r\n\r\n",
]
INSERTED = [
    *(b"\r", b" ", b"\0", b":", b"\xff\xfe", b"ffffffff", b"transfer-encoding: chunked\r\n"),
    *(LENGTH, CHUNKS, CHUNKED, OK),
]
DAMAGED = damaged_bytes(st.sampled_from(RESPONSES), INSERTED)


def read(pieces: Sequence[bytes], *, ends: bool) -> tuple[int, dict[str, str], bytes, bool] | None:
    """The status, the headers, the content, and whether that is all; None of what is refused."""
    parser = ResponseParser()
    try:
        content = b"".join(parser.feed(piece) for piece in pieces)
        return parser.status, parser.headers, content, parser.end() if ends else parser.is_complete
    except Malformed:
        return None


@given(st.lists(DAMAGED, min_size=1, max_size=2), st.booleans(), st.data())
def test_damaged_responses_are_the_same_however_their_bytes_are_cut(
    responses: list[bytes], ends: bool, data: st.DataObject
) -> None:
    stream = b"".join(responses)
    assert read([stream], ends=ends) == read(cut(stream, data), ends=ends)
