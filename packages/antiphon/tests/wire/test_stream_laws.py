"""L6 over every recorded stream of every format: the deltas obey the grammar, and are the same however the bytes are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from antiphon.wire import FORMATS, ModelOutputDelta, formats
from antiphon.wire.delta import Finished
from support.corpus import in_collection, streams
from wire.anthropic import bodies as anthropic
from wire.gemini import bodies as gemini
from wire.openai_chat import bodies as openai_chat
from wire.openai_responses import bodies as openai_responses
from wire.stream_grammar import check_grammar

RECORDED: dict[str, Callable[[], Iterable[tuple[str, bytes]]]] = {
    "openai-chat": lambda: ((name, data) for _, name, data in openai_chat.all_streams()),
    "openai-responses": openai_responses.all_streams,
    "anthropic": anthropic.streams,
    "gemini": gemini.streams,
    "gemini-interactions": lambda: (("", data) for data in streams("gemini-interactions")),
}
FINISHED = {"openai-chat": 470, "openai-responses": 200, "anthropic": 250, "gemini": 250, "gemini-interactions": 300}
"""At least so many streams of the collection are those of a finished answer."""


def read(name: str, data: bytes, places: Iterable[int] = ()) -> list[ModelOutputDelta]:
    """The deltas of a stream that is cut at these places."""
    reader = formats[name].stream_reader()
    deltas: list[ModelOutputDelta] = []
    start = 0
    for end in (*sorted(places), len(data)):
        deltas += reader.feed(data[start:end])
        start = end
    deltas += reader.close()
    assert reader.feed(data) == reader.close() == [], "nothing comes after the end"
    return deltas


def spellings(data: bytes) -> Iterator[bytes]:
    """The same events with other line ends, a byte order mark, comments, and without the last blank line."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for ending in (b"\n", b"\r\n", b"\r"):
        yield lines.replace(b"\n", ending)
    yield b"\xef\xbb\xbf" + data
    yield b": hello\n\n" + lines.replace(b"\n\n", b"\n\n: keep-alive\n\n")
    yield lines.rstrip(b"\n")


@pytest.mark.parametrize("name", FORMATS)
def test_a_recorded_stream_is_read_the_same_however_it_is_cut_and_spelled(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(7)
    count = cuts = finished = 0
    for identifier, data in RECORDED[name]():
        whole = read(name, data)
        check_grammar(whole)
        is_finished = isinstance(whole[-1], Finished)
        ways = [(data, chance.sample(range(len(data)), min(size, len(data)))) for size in (1, 9, 40)]
        if len(data) < 6_000:
            ways.append((data, [*range(len(data))]))
        if data[:1] not in b"[{" and is_finished and count % 3 == 0:
            ways += [(other, chance.sample(range(len(other)), 9)) for other in spellings(data)]
        for other, places in ways:
            assert read(name, other, places) == whole, identifier
            cuts += len(places)
        finished += is_finished
        count += 1
    with capsys.disabled():
        print(f"\n{name}: {count} streams, {finished} of them finished, read in {cuts} cuts", end="")
    assert finished >= max(1, in_collection(FINISHED[name]))
