"""Chat Completions streams that we write: recorded ones again, deltas of other formats, and as OpenAI assembles them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

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
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ModelOutput, ProviderError
from support.wire_formats import CHAT
from wire.openai_chat.bodies import all_streams, assembled, read_all, served
from wire.openai_chat.stream_helpers import DONE, rewritten
from wire.stream_grammar import FOREIGN

read_response = CHAT.read_response
StreamWriter = CHAT.stream_writer


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
    # its library knows no freeform calls in streams
    data, _ = rewritten([delta for delta in FOREIGN if getattr(delta, "index", None) != 5])
    failed = StreamWriter()
    broken = failed.write(Started(id="x")) + failed.write(Failed(ProviderError("boom", "overloaded"))) + failed.close()
    pages = {"m": (200, "text/event-stream", data), "broken": (200, "text/event-stream", broken)}
    with served(pages) as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        with client.chat.completions.stream(model="m", messages=[]) as events:
            kinds = {each.type for each in events}
            completion = events.get_final_completion()
        assert {"content.delta", "content.done", "tool_calls.function.arguments.done"} <= kinds
        message = completion.choices[0].message
        assert message.content == "Let me look."
        calls = [call.function.arguments for call in message.tool_calls if call.type == "function"]
        assert [json.loads(arguments) for arguments in calls] == [{"city": "Oslo"}, {"city": "Bergen"}, [1], {}]
        assert completion.usage.total_tokens == 15
        with pytest.raises(openai.APIError, match="boom"):
            list(client.chat.completions.create(model="broken", messages=[], stream=True))


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


def test_usage_has_a_chunk_of_its_own_if_there_is_one() -> None:
    all_deltas: list[ModelOutputDelta] = [Started(), UsageReported(TokenUsage(1, 2)), Finished()]
    for deltas in (all_deltas, [all_deltas[0], all_deltas[2]]):
        writer = StreamWriter("m")
        data = b"".join(map(writer.write, deltas)) + writer.close()
        assert (b'"choices":[],"usage"' in data) is (deltas is all_deltas)


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
