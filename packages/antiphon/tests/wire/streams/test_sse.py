"""Server-sent events: the same events however the bytes are cut and the lines are ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.streams import sse
from antiphon.wire.streams.sse import SseEvent, SseOverflow, SseReader

payloads = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
    | st.sampled_from(["{}", "[DONE]", "data: x", "下雨🙂"]),
    min_size=1,
    max_size=6,
)


def read(*chunks: bytes) -> list[SseEvent]:
    reader = SseReader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


@given(payloads, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 300), max_size=12), st.booleans())
def test_events_do_not_depend_on_chunking(texts: list[str], end: bytes, cuts: list[int], marked: bool) -> None:
    lines = [b"\xef\xbb\xbf"] if marked else []
    for number, text in enumerate(texts):
        lines += [b": a comment", end, b"event: e%d" % number, end, b"data: " + text.encode(), end, b"id: 7", end, end]
    stream = b"".join(lines)
    places = sorted({min(cut, len(stream)) for cut in cuts})
    chunks = [stream[start:stop] for start, stop in zip([0, *places], [*places, len(stream)], strict=True)]
    expected = [SseEvent(b"e%d" % number, text.encode()) for number, text in enumerate(texts)]
    assert read(*chunks) == expected
    assert read(*(bytes([byte]) for byte in stream)) == expected


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data:x\n\n", [(b"", b"x")]),
        (b"data:  x\n\n", [(b"", b" x")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"data\n\n", [(b"", b"")]),
        (b"data: x\n", [(b"", b"x")]),
        (b"data: x", [(b"", b"x")]),
        (b"data: x\r", [(b"", b"x")]),
        (b"event: ping\n\ndata: x\n\n", [(b"", b"x")]),
        (b"\n\n\n", []),
        (b": only a comment\n\n", []),
        (b"", []),
        (b"retry: 3\nfoo: bar\ndata: x\n\n", [(b"", b"x")]),
    ],
)
def test_cases_of_the_standard(stream: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert [(event.event, event.data) for event in read(stream)] == events


@pytest.mark.parametrize("line", [b"x" * 50, b"data: " + b"x" * 10 + b"\n"])
def test_an_event_that_never_ends_is_refused(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 1_000)
    with pytest.raises(SseOverflow):
        read(*[line] * 200)
