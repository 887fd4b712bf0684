"""L6 over every recorded stream of every format: the deltas obey the grammar, and are the same however the bytes are cut.

The same for streams of events in any order and number, with any value in any place.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.wire import FORMATS, Assembler, ModelOutputDelta, formats
from antiphon.wire.delta import Failed, Finished
from antiphon.wire.streams.writer import decoded_events
from support.corpus import in_collection, streams
from support.examples import scaled
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


def chat_end(data: bytes) -> int:
    """Where the last event with a finish reason that is needed begins."""
    position, last = 0, None
    open_candidates: dict[int, bool] = {}
    for line in data.splitlines(keepends=True):
        if line.startswith(b"data:") and line[5:].strip() not in (b"[DONE]", b'"[DONE]"'):
            for choice in msgspec.json.decode(line[5:]).get("choices") or ():
                was_open = not all(open_candidates.values()) or not open_candidates
                open_candidates[choice.get("index", 0)] = bool(choice.get("finish_reason")) or open_candidates.get(
                    choice.get("index", 0), False
                )
                if was_open and all(open_candidates.values()):
                    last = position
        elif line.startswith(b"data:") and last is None:
            last = position
        position += len(line)
    return len(data) if last is None else last


def anthropic_end(data: bytes) -> int:
    """The end of the line with the stop reason."""
    stated = re.search(rb'"stop_reason": ?"', data)
    assert stated is not None
    return len(data[: data.index(b"\n", stated.end())].rstrip())


ENDS: dict[str, Callable[[bytes], int]] = {
    "openai-chat": chat_end,
    "openai-responses": lambda data: data.rindex(b"}"),
    "anthropic": anthropic_end,
    "gemini": lambda data: data.rindex(b'"finishReason"') if b'"finishReason"' in data else len(data.rstrip()),
    "gemini-interactions": lambda data: data.index(b"event: interaction.completed"),
}
"""A stream that is cut before this place has failed."""


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_that_is_cut_has_failed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(11)
    cuts = taken_for_whole = 0
    for identifier, data in RECORDED[name]():
        whole = read(name, data)
        if not isinstance(whole[-1], Finished):
            continue
        end = ENDS[name](data)
        for place in {0, max(0, end - 1), *(range(end) if end < 1_100 else (chance.randrange(end) for _ in range(12)))}:
            deltas = read(name, data[:place])
            check_grammar(deltas)
            cuts += 1
            if isinstance(deltas[-1], Failed):
                assert deltas[-1].error.kind == "stream_cut", (identifier, place)
                assert deltas[:-1] == whole[: len(deltas) - 1] or name == "gemini", (identifier, place)
            else:  # a model of Gemini may continue after a finish reason: cut right after that, an answer looks complete
                assert name == "gemini", (identifier, place)
                assert b"finishReason" in data[:place].rstrip().splitlines()[-1], (identifier, place)
                taken_for_whole += 1
    assert taken_for_whole < cuts / 100
    with capsys.disabled():
        print(f"\n{name}: {cuts} streams cut off", end="")


@cache
def vocabulary(name: str) -> list[dict[str, Any]]:
    """The events of a few short recorded streams."""
    short = (data for _, data in RECORDED[name]() if len(data) < 8_000 and data[:1] not in b"[{")
    return [event for data in islice(short, 30) for event in decoded_events(data)]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: what holds it, and its key or index there."""
    for key in value if type(value) is dict else range(len(value)) if type(value) is list else ():
        yield value, key
        yield from places(value[key])


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "a", "{}", "stop", "c1", "function", "text"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner),
    max_leaves=4,
)


@st.composite
def any_stream(draw: st.DrawFn, name: str) -> bytes:
    """Recorded events, in any order, each with any value in any place, and perhaps an end."""
    known = vocabulary(name)
    chosen = draw(st.lists(st.integers(0, len(known) - 1), max_size=8))
    events: Any = msgspec.json.decode(msgspec.json.encode([known[number] for number in chosen]))
    for _ in range(draw(st.integers(0, 4))):
        found = list(places(events))
        if found:
            holder, key = (
                draw(st.sampled_from(found)) if len(found) < 9 else found[draw(st.integers(0, len(found) - 1))]
            )
            holder[key] = draw(VALUES)
    if draw(st.booleans()):
        events.append(known[-1])
    lines = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]
    return b"".join([*lines, b"data: [DONE]\n\n"] if draw(st.booleans()) else lines)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), size=st.integers(1, 30))
@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_events_give_one_end_and_are_written_again(name: str, data: st.DataObject, size: int) -> None:
    stream = data.draw(any_stream(name))
    deltas = read(name, stream)
    check_grammar(deltas)
    assert read(name, stream, range(size, len(stream), size)) == deltas
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    msgspec.json.encode(assembler.output)
    writer = formats[name].stream_writer()
    again = read(name, b"".join(map(writer.write, deltas)) + writer.close())
    check_grammar(again)
    assert type(again[-1]) is type(deltas[-1])
