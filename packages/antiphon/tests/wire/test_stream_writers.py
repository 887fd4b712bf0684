"""Streams that we write, by the same laws in every format: recorded streams, any deltas, and deltas of another format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from antiphon.parts import Audio, Native, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire import FORMATS, Assembler, ModelOutput, ModelOutputDelta, ProviderError, formats
from antiphon.wire.delta import (
    Failed,
    Finished,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
)
from support.examples import scaled
from support.interactions_spec import EVENT, problems
from wire.anthropic import stream_helpers as anthropic
from wire.openai_chat.stream_helpers import without_spelling
from wire.openai_responses import bodies as openai_responses
from wire.stream_grammar import FOREIGN, any_deltas, check_grammar
from wire.test_stream_laws import RECORDED, read

CANDIDATES = {"openai-chat": 3, "gemini": 3}
"""How many answers side by side a stream of a format may have; others have the first."""


def written(name: str, deltas: list[ModelOutputDelta], model: str = "") -> tuple[bytes, list[str]]:
    """The stream of these deltas, and the paths of what it has no place for."""
    writer = formats[name].stream_writer(model)
    data = b"".join([*map(writer.write, deltas), writer.close()])
    return data, [loss.path for loss in writer.losses]


def assembled(deltas: list[ModelOutputDelta]) -> Assembler:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler


def check_chat(data: bytes) -> None:
    """The last event of an answer is `[DONE]`; a failure has none."""
    assert data.endswith(b"data: [DONE]\n\n") is isinstance(read("openai-chat", data)[-1], Finished)


def check_responses(data: bytes) -> None:
    """Numbered, every item and part opened and closed, the items repeated at the end."""
    events = openai_responses.events_of(data)
    assert [found["sequence_number"] for found in events] == list(range(len(events)))
    names = [line[7:].decode() for line in data.split(b"\n") if line.startswith(b"event: ")]
    assert names == [found["type"] for found in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    if names[-1] != "response.failed":
        for thing in ("output_item", "content_part", "reasoning_summary_part"):
            assert names.count(f"response.{thing}.added") == names.count(f"response.{thing}.done")
        done = {
            found["output_index"]: found["item"] for found in events if found["type"] == "response.output_item.done"
        }
        assert events[-1]["response"]["output"] == [done[index] for index in range(len(done))]


def check_anthropic(data: bytes) -> None:
    events = anthropic.events_of(data)
    if events[-1]["type"] != "error":
        anthropic.check_grammar(events)


def check_gemini(data: bytes) -> None:
    """Usage comes with an end."""
    for chunk in anthropic.events_of(data)[:-1]:
        assert "usageMetadata" not in chunk or "finishReason" in chunk["candidates"][0]


def check_interactions(data: bytes) -> None:
    for event in anthropic.events_of(data):
        assert problems(EVENT, event) == []


FORMS: dict[str, Callable[[bytes], None]] = {
    "openai-chat": check_chat,
    "openai-responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": check_gemini,
    "gemini-interactions": check_interactions,
}
"""What the official stream of a format looks like, beyond what its reader needs."""


def check(name: str, data: bytes) -> list[ModelOutputDelta]:
    """The deltas of a stream of ours, which has the form of the official one."""
    FORMS[name](data)
    deltas = read(name, data)
    check_grammar(deltas)
    return deltas


CHANGING_IDS = {"3cff7ef22532f6de"}  # a host that gives an item another id with every event


def without_ids(output: ModelOutput) -> ModelOutput:
    """An answer without the ids of its items."""

    def stripped(part: Any) -> Any:
        own = {key: value for key, value in (part.native or {}).get("openai-responses", {}).items() if key != "id"}
        if "item" in own:
            own["item"] = {key: value for key, value in own["item"].items() if key != "id"}
        return structs.replace(part, native={"openai-responses": own})

    return structs.replace(output, parts=tuple(map(stripped, output.parts)))


def up_to_spelling(output: ModelOutput, like: ModelOutput) -> ModelOutput:
    """An answer of a rewritten stream of chat, which may gain an id and a time, and spells reasoning in our way."""
    return structs.replace(
        without_spelling(output),
        id=output.id if like.id else "",
        created=output.created if like.created is not None else None,
    )


def comparable(name: str, identifier: str, output: ModelOutput, like: ModelOutput) -> Any:
    """An answer up to what the same stream may say in two ways."""
    if name == "openai-chat":
        return up_to_spelling(output, like)
    if name == "gemini-interactions":
        return [(type(part), arguments(part) if isinstance(part, ToolCallRequest) else part) for part in output.parts]
    return without_ids(output) if identifier in CHANGING_IDS else output


@pytest.mark.parametrize("name", FORMATS)
def test_a_recorded_stream_is_written_so_that_it_is_read_the_same(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 0
    for identifier, data in RECORDED[name]():
        first = assembled(read(name, data))
        again, losses = written(name, read(name, data))
        second = assembled(check(name, again))
        assert losses == [], identifier
        if first.error is not None:
            assert second.error is not None, identifier
            assert second.error.message == first.error.message
        else:
            found, expected = (comparable(name, identifier, it, first.output) for it in (second.output, first.output))
            assert found == expected, identifier
        count += 1
    with capsys.disabled():
        print(f"\n{name}: {count} streams written and read again", end="")
    assert count


def arguments(call: ToolCallRequest) -> str:
    """The arguments of a call in one spelling: formats without freeform calls wrap other texts in an object."""
    text = call.arguments
    if not call.freeform:
        try:
            value = msgspec.json.decode(text.strip() or "{}")
        except msgspec.DecodeError:
            return text
        is_wrapped = isinstance(value, dict) and value.keys() in ({"input"}, {"_raw"})
        text = next(iter(value.values())) if is_wrapped else msgspec.json.encode(value).decode()
    return text or "{}"


def content_of(name: str, output: ModelOutput) -> list[tuple[str, Any]]:
    """What an answer says: texts side by side are one, empty ones none; a text where a format has no refusals."""
    found: list[tuple[str, Any]] = []
    for part in output.parts:
        if isinstance(part, ToolCallRequest):
            is_freeform = part.freeform and name.startswith("openai")
            found.append(("call", (part.tool_name, part.tool_call_id, arguments(part), is_freeform)))
        elif isinstance(part, Text | Thinking | Refusal):
            has_kind = not isinstance(part, Refusal) or name.startswith("openai")
            found.append((type(part).__name__ if has_kind else "Text", part.text))
    if name == "gemini-interactions":  # what is open side by side is read in the order of the first words
        return sorted(filter(lambda each: each[1], found))
    if name == "openai-chat":  # a field for each kind
        found.sort(key=lambda each: each[0])
    joined: list[tuple[str, Any]] = []
    for kind, value in found:
        if joined and kind != "call" and joined[-1][0] == kind:
            value = joined.pop()[1] + value
        if value:
            joined.append((kind, value))
    return joined


def as_chat(deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
    """Deltas for one field of each kind of text, whose pieces are in the order in which they came."""
    fields: dict[tuple[type, int], int] = {}
    places: dict[int, int] = {}
    result: list[ModelOutputDelta] = []
    for delta in deltas:
        if isinstance(delta, PartStarted) and isinstance(delta.part, Text | Thinking | Refusal):
            place = fields.setdefault((type(delta.part), delta.candidate), delta.index)
            places[delta.index] = place
            result.append(delta if place == delta.index else PartDelta(place, delta.part.text))
        elif isinstance(delta, PartDelta):
            result.append(PartDelta(places.get(delta.index, delta.index), delta.text))
        elif not isinstance(delta, PartEnded) or delta.index not in places:
            result.append(delta)
    return result


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=scaled(60), deadline=None)
def test_any_deltas_make_a_legal_stream_that_says_the_same(name: str, data: st.DataObject) -> None:
    deltas = data.draw(any_deltas(CANDIDATES.get(name, 2)))
    stream, losses = written(name, deltas)
    first, second = assembled(as_chat(deltas) if name == "openai-chat" else deltas), assembled(check(name, stream))
    starts = [delta for delta in deltas if isinstance(delta, PartStarted)]
    assert losses.count("others[0]") == (name not in CANDIDATES and any(start.candidate for start in starts))
    native = {f"parts[{it.index}]" for it in starts if isinstance(it.part, Native) and not it.candidate}
    assert native <= {*losses}
    if first.error is not None:
        assert second.error is not None
        assert (second.error.message, second.error.kind) == ("oh", "overloaded")
        return
    outputs, expected = ([it.output, *it.output.others] for it in (second, first))
    usage = outputs[0].usage
    if name == "gemini":  # which may write a later one first; they are numbered in the order in which they come
        chunks = anthropic.events_of(stream)
        order = [*dict.fromkeys(it["index"] for chunk in chunks for it in chunk.get("candidates", ()))]
        outputs = [outputs[order.index(number)] for number in range(len(outputs))]
    assert len(outputs) == (len(expected) if name in CANDIDATES else 1)
    for again, before in zip(outputs, expected, strict=False):
        assert content_of(name, again) == content_of(name, before)
        assert again.stop_reason == before.stop_reason or again.stop_reason in ("tool_calls", "refusal")
    if expected[0].usage:
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (3, 4)


def lone_candidate(source: str, index: int) -> bytes:
    """A stream whose only candidate has that index."""
    if source == "openai-chat":
        choices: list[Any] = [{"delta": {"content": "It "}}, {"delta": {"content": "rains."}, "finish_reason": "stop"}]
        events: list[Any] = [{"id": "1", "model": "m", "choices": [{"index": index, **each}]} for each in choices]
    else:
        contents = [{"role": "model", "parts": [{"text": text}]} for text in ("It ", "rains.")]
        events = [{"candidates": [{"index": index, "content": each, "finishReason": "STOP"}]} for each in contents]
    return b"".join([b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("source", CANDIDATES)
def test_the_only_candidate_is_the_answer_whatever_its_index_is(source: str, name: str) -> None:
    """A log kept no text of it, and a format with one candidate dropped it and reported a cut stream."""
    deltas = read(source, lone_candidate(source, 1))
    stream, losses = written(name, deltas)
    for output in (assembled(deltas).output, assembled(check(name, stream)).output):
        assert (output.parts[0].text, output.stop_reason, output.others) == ("It rains.", "end", ())  # type: ignore[union-attr]
    assert not any(path.startswith("others") for path in losses)


WITHOUT_PLACE = {"native.fingerprint", "native.details", "parts[0].mood", "parts[2].mood", "parts[9]"}
"""What no format has a place for."""
FOREIGN_LOSSES: dict[str, set[str]] = {
    "openai-chat": set(),
    "openai-responses": {"parts[7]", "others[0]"},
    "anthropic": {"parts[7]", "parts[8].arguments", "others[0]", "created"},
    "gemini": {"parts[4].refusal", "parts[8].arguments", "usage.cache_write_tokens"},
    "gemini-interactions": {"parts[4].refusal", "others[0]", "usage.cache_write_tokens"},
}
IDS = {"openai-chat": "chatcmpl-1", "openai-responses": "resp_1", "anthropic": "msg_1", "gemini": "1"}


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_of_another_format_is_written_with_its_losses(name: str) -> None:
    data, losses = written(name, FOREIGN, "m")
    answer = assembled(check(name, data)).output
    assert {*losses} == WITHOUT_PLACE | FOREIGN_LOSSES[name]
    first, *others = expected = [assembled(FOREIGN).output, *assembled(FOREIGN).output.others]
    found = content_of(name, answer)
    if name == "anthropic":  # which has no colon in an id
        found = [(kind, ("weather", "call:1", *value[2:]) if "Oslo" in str(value) else value) for kind, value in found]
    assert found == content_of(name, first)
    assert [content_of(name, other) for other in answer.others] == [
        content_of(name, it) for it in others if name in CANDIDATES
    ]
    assert len(expected) == 2
    assert any(isinstance(part, Audio) for part in answer.parts) is ("parts[7]" not in losses)
    assert (answer.id, answer.model, answer.stop_reason) == (IDS.get(name, "v1_1"), "m", "tool_calls")
    assert answer.created == (None if "created" in losses else 1_700_000_000)
    assert answer.usage is not None
    written_tokens = 0 if "usage.cache_write_tokens" in losses else 2
    assert structs.astuple(answer.usage)[:5] == (10, 5, 3, written_tokens, 1)


@pytest.mark.parametrize("name", FORMATS)
def test_text_is_not_held_back(name: str) -> None:
    writer = formats[name].stream_writer("m")
    writer.write(Started("x", "m", format="toy"))
    writer.write(PartStarted(0, Text("")))
    for text in ("now", "then"):
        assert text.encode() in writer.write(PartDelta(0, text))
    beside = writer.write(PartStarted(1, Text(""))) + writer.write(PartDelta(1, "beside"))
    assert b"later" in writer.write(PartDelta(0, "later"))
    assert b"beside" in beside + writer.write(PartEnded(0)), "it may wait for the end of the text before it, no longer"
    assert b"after" in writer.write(PartDelta(1, "after"))


CUT = {"anthropic": ("server", 500), "gemini": ("server", 500), "gemini-interactions": ("server", None)}
"""How a format reports that an answer broke off, where it has no word of its own for that."""


BEGUN: list[list[ModelOutputDelta]] = [
    [],
    [Started("x")],
    [PartStarted(0, Text("a"))],
    [Started("x"), PartStarted(0, Text("")), PartDelta(0, "a")],
]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("begun", BEGUN)
def test_a_stream_without_an_end_is_a_failure(name: str, begun: list[ModelOutputDelta]) -> None:
    failed = check(name, written(name, begun)[0])[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.kind, failed.error.status) == CUT.get(name, ("stream_cut", None))


@pytest.mark.parametrize("name", FORMATS)
def test_an_error_is_the_error_that_is_read(name: str) -> None:
    error = ProviderError("Slow down.", "rate_limit", 429, "slow_down", native={"toy": {}})
    for begun in BEGUN:
        failed = check(name, written(name, [*begun, Failed(error)])[0])[-1]
        assert isinstance(failed, Failed)
        assert (failed.error.message, failed.error.kind) == ("Slow down.", "rate_limit")


@pytest.mark.parametrize("name", FORMATS)
def test_an_end_alone_is_an_empty_answer(name: str) -> None:
    answer = assembled(check(name, written(name, [Finished()])[0]))
    assert (answer.error, answer.output.parts) == (None, ())
