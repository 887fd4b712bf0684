"""Chat Completions streams that we write: recorded ones again, deltas of other formats, and as OpenAI assembles them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Refusal,
    Text,
    Thinking,
    TokenUsage,
    ToolCallRequest,
)
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ModelOutput, ProviderError
from support.wire_formats import CHAT
from wire.openai_chat.bodies import all_streams, assembled, read_all, served
from wire.openai_chat.stream_helpers import DONE, is_of, rewritten, without_spelling
from wire.stream_grammar import check_grammar

read_response = CHAT.read_response
StreamWriter = CHAT.stream_writer


def test_recorded_streams_are_written_and_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    count = 0
    for _, name, data in all_streams():
        deltas = read_all(data)
        first = assembled(deltas)
        again_data, writer = rewritten(deltas)
        assert writer.losses == []
        again = read_all(again_data)
        check_grammar(again)
        second = assembled(again)
        assert (first.error is None) == (second.error is None)
        if first.error is None:
            output = second.output
            if first.output.created is None:
                output = msgspec.structs.replace(output, created=None)
            if not first.output.id:
                output = msgspec.structs.replace(output, id="")
            assert without_spelling(output) == without_spelling(first.output), name
            assert again_data.endswith(DONE)
        count += 1
    with capsys.disabled():
        print(f"\n  openai-chat streams written and read again: {count}", end="")


def joined(output: ModelOutput) -> list[Any]:
    """What an answer says, as a whole answer would: words of a kind joined, then the calls."""
    words = [
        (kind.__name__, "".join(part.text for part in output.parts if type(part) is kind))
        for kind in (Thinking, Text, Refusal)
    ]
    calls = [
        (part.tool_name, part.tool_call_id, part.arguments or "{}", part.freeform)
        for part in output.parts
        if isinstance(part, ToolCallRequest)
    ]
    counts = output.usage and (output.usage.prompt_tokens, output.usage.completion_tokens)
    return [
        words,
        calls,
        output.stop_reason,
        counts,
        output.id,
        output.model,
        [joined(other) for other in output.others],
    ]


def test_openai_assembles_recorded_and_rewritten_streams_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """L6: OpenAI's own library, over HTTP, assembles a stream to what we assemble."""
    openai = pytest.importorskip("openai")
    from openai.lib.streaming.chat import ChatCompletionStreamState

    wanted: dict[str, ModelOutput] = {}
    pages: dict[str, tuple[int, str, bytes]] = {}
    for place, (vendor, name, data) in enumerate(all_streams()):
        deltas = read_all(data)
        if isinstance(deltas[-1], Failed) or place % 3:
            continue
        wanted[name] = assembled(deltas).output
        pages[name] = (200, "text/event-stream", rewritten(deltas)[0])
        # OpenAI's own streams as they were recorded; other hosts' deviations are too much for its library.
        if vendor == "openai" and data.endswith(DONE):
            wanted[f"raw {name}"] = wanted[name]
            pages[f"raw {name}"] = (200, "text/event-stream", data)
    with served(pages) as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        for name, output in wanted.items():
            state: Any = ChatCompletionStreamState()
            for piece in client.chat.completions.create(model=name, messages=[], stream=True):
                state.handle_chunk(piece)
            again = read_response(state.current_completion_snapshot.to_dict(warnings=False))
            if not output.id:
                again = msgspec.structs.replace(again, id="")
            assert joined(again) == joined(output), name
    with capsys.disabled():
        print(f"\n  openai-chat streams assembled by openai {openai.__version__}: {len(wanted)}", end="")


def test_openai_streams_events_of_what_we_write_and_raises_our_errors() -> None:
    openai = pytest.importorskip("openai")
    data, _ = rewritten(list(interleaved()))
    failed = StreamWriter()
    broken = failed.write(Started(id="x")) + failed.write(Failed(ProviderError("boom", "overloaded"))) + failed.close()
    pages = {"m": (200, "text/event-stream", data), "broken": (200, "text/event-stream", broken)}
    with served(pages) as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        with client.chat.completions.stream(model="m", messages=[]) as events:
            kinds = {each.type for each in events}
            completion = events.get_final_completion()
        assert {"content.delta", "content.done", "tool_calls.function.arguments.done"} <= kinds
        message = completion.choices[0].message
        assert message.content == "It rains."
        assert [call.function.arguments for call in message.tool_calls] == ['{"city":"Oslo"}', "{}"]
        assert completion.usage.total_tokens == 3
        with pytest.raises(openai.APIError, match="boom"):
            list(client.chat.completions.create(model="broken", messages=[], stream=True))


def interleaved() -> Iterator[ModelOutputDelta]:
    """Deltas of another format, its parts open at once."""
    yield Started(id="msg_1", model="claude", format="anthropic", native={"anthropic": {"container": 1}})
    yield PartStarted(0, Thinking())
    yield PartStarted(1, Text(""))
    yield PartDelta(0, "hm")
    yield PartDelta(1, "It ")
    yield PartStarted(2, ToolCallRequest("look", "toolu_1", ""))
    yield PartStarted(3, ToolCallRequest("wait", "toolu_2", ""))
    yield PartDelta(2, '{"city":')
    yield PartDelta(1, "rains.")
    yield PartExtended(0, {"anthropic": {"signature": "s"}})
    yield PartEnded(3)
    yield PartDelta(2, '"Oslo"}')
    for index in (0, 1, 2):
        yield PartEnded(index)
    yield UsageReported(TokenUsage(1, 2))
    yield Finished("tool_calls", native={"anthropic": {"stop_details": 1}})


def test_deltas_from_other_formats_are_written_with_losses() -> None:
    data, writer = rewritten(list(interleaved()))
    output = assembled(read_all(data)).output
    assert joined(output)[:4] == [
        [("Thinking", "hm"), ("Text", "It rains."), ("Refusal", "")],
        [("look", "toolu_1", '{"city":"Oslo"}', False), ("wait", "toolu_2", "{}", False)],
        "tool_calls",
        (1, 2),
    ]
    assert output.id == "chatcmpl-msg_1"
    assert [loss.path for loss in writer.losses] == ["native.container", "parts[0].signature", "native.stop_details"]


def test_whole_parts_are_written_or_losses() -> None:
    parts: list[Any] = [
        Image("image/png", "iVBORw0KGgo="),
        Image("image/png", "iVBORw0KGgo="),
        Audio(data="UklGRg==", file_id="audio_1"),
        ToolCallRequest("run", "c1", "ls", freeform=True),
        Document("application/pdf", "JVBE"),
        Native("gemini", {"executableCode": {}}),
    ]
    deltas: list[Any] = [PartStarted(place, part) for place, part in enumerate(parts)]
    deltas += [PartEnded(place) for place in range(len(parts))]
    deltas.append(Finished("malformed_call", "END"))
    data, writer = rewritten(deltas)
    again = assembled(read_all(data)).output
    kinds = sorted(type(part).__name__ for part in again.parts)
    assert kinds == ["Audio", "Image", "Image", "ToolCallRequest"]
    assert [loss.what for loss in writer.losses] == ["document", "native", "stop_sequence", "malformed_call"]


def test_a_writer_closed_too_early_reports_it() -> None:
    writer = StreamWriter("m")
    data = writer.write(PartStarted(0, Text("a"))) + writer.close()
    assert isinstance(read_all(data)[-1], Failed)
    assert b"[DONE]" not in data
    error = assembled(read_all(data)).error
    assert error is not None
    assert error.code == "stream_cut"


def test_usage_has_a_chunk_of_its_own_if_there_is_one() -> None:
    all_deltas: list[ModelOutputDelta] = [Started(), UsageReported(TokenUsage(1, 2)), Finished()]
    for deltas in (all_deltas, [all_deltas[0], all_deltas[2]]):
        writer = StreamWriter("m")
        data = b"".join(map(writer.write, deltas)) + writer.close()
        assert (b'"choices":[],"usage"' in data) is (deltas is all_deltas)


ANY_PART = st.one_of(
    st.builds(Text, st.just("")),
    st.builds(Thinking, st.just("")),
    st.builds(Refusal, st.just("")),
    st.builds(ToolCallRequest, st.sampled_from(["look", "run"]), st.just("c"), st.just(""), st.booleans()),
)


@given(st.data())
def test_any_interleaving_is_written_equivalently(data: st.DataObject) -> None:
    """Parts of several candidates, open at once, their pieces in any order."""
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    deltas: list[Any] = [Started(id="x", format="gemini")]
    parts_seen: dict[int, tuple[Any, list[str]]] = {}
    waiting: list[int] = []
    candidates = data.draw(st.integers(1, 3))
    for _ in range(data.draw(st.integers(0, 12))):
        if not waiting or data.draw(st.booleans()):
            part, index = data.draw(ANY_PART), len(parts_seen)
            if isinstance(part, ToolCallRequest):
                part = msgspec.structs.replace(part, tool_call_id=f"c{index}")
            start = PartStarted(index, part, data.draw(st.integers(0, candidates - 1)))
            parts_seen[index] = (start, [])
            waiting.append(index)
            deltas.append(start)
        else:
            index = data.draw(st.sampled_from(waiting))
            text = data.draw(texts)
            parts_seen[index][1].append(text)
            deltas.append(PartDelta(index, text))
    deltas += [PartEnded(index) for index in waiting]
    deltas += [Finished("end", candidate=number) for number in range(candidates)]
    written, writer = rewritten(deltas)
    assert writer.losses == []
    again = assembled(read_all(written))
    assert again.is_finished
    outputs = [again.output, *again.output.others]
    assert len(outputs) == candidates
    for number, output in enumerate(outputs):
        calls = [
            (start.part.tool_call_id, start.part.freeform, "".join(pieces) or ("" if start.part.freeform else "{}"))
            for start, pieces in parts_seen.values()
            if start.candidate == number and isinstance(start.part, ToolCallRequest)
        ]
        found = [
            (part.tool_call_id, part.freeform, "" if part.freeform and part.arguments == "{}" else part.arguments)
            for part in output.parts
            if isinstance(part, ToolCallRequest)
        ]
        assert [(a, b, "" if c == "{}" and b else c) for a, b, c in calls] == found
        for kind in (Text, Thinking, Refusal):
            spoken = [
                delta.text
                for delta in deltas
                if isinstance(delta, PartDelta) and is_of(parts_seen, delta, kind, number)
            ]
            assert "".join(part.text for part in output.parts if type(part) is kind) == "".join(spoken)


def test_a_call_with_an_index_of_its_own_is_numbered_among_the_calls() -> None:
    """Hosts number calls among all parts: the fragments that follow must have the number of the first."""
    call = {"id": "c", "index": 1, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    output = read_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    (part,) = output.parts
    assert isinstance(part, ToolCallRequest)
    start = PartStarted(0, msgspec.structs.replace(part, arguments=""))
    deltas: list[ModelOutputDelta] = [
        Started(),
        start,
        PartDelta(0, part.arguments),
        PartEnded(0),
        Finished("tool_calls"),
    ]
    writer = StreamWriter("m")
    made = assembled(read_all(b"".join(map(writer.write, deltas)) + writer.close())).parts
    assert [(call.tool_call_id, call.arguments) for call in made if isinstance(call, ToolCallRequest)] == [
        ("c", '{"a":1}')
    ]
