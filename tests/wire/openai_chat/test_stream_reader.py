"""Chat Completions streams that we read: recorded ones in any chunks, every known deviation, errors, generated ones."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.history.entries import TokenUsage
from antiphon.parts import (
    Audio,
    Image,
    Native,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
)
from antiphon.wire.delta import (
    Failed,
    Finished,
)
from antiphon.wire.openai_chat.response import read_response
from antiphon.wire.openai_chat.stream_reader import StreamReader
from antiphon.wire.rules import name_set
from wire.openai_chat.bodies import FORMAT, all_streams, assembled, chunk, encoded, event, read_all
from wire.openai_chat.stream_helpers import (
    DONE,
    PNG,
    call,
    calls,
    check_grammar,
    fragment,
    rewritten,
    stream,
    without_marks,
)


def test_recorded_streams_do_not_depend_on_chunking(capsys: pytest.CaptureFixture[str]) -> None:
    """L6."""
    chance = random.Random(7)
    streams = cuts = finished = 0
    for _, name, data in all_streams():
        whole = read_all(data)
        check_grammar(whole)
        finished += isinstance(whole[-1], Finished)
        ways = [[chance.randint(1, 40) for _ in range(9)], [chance.randint(1, 2000) for _ in range(9)]]
        if len(data) < 6000:
            ways.append([1])
        for sizes in ways:
            assert read_all(data, *sizes) == whole, name
            cuts += len(data) * len(sizes) // sum(sizes)
        streams += 1
    with capsys.disabled():
        print(f"\n  openai-chat streams: {streams} read ({finished} finished), {cuts} cuts", end="")
    assert finished > 470


def test_line_ends_comments_and_byte_order_marks_are_ignored() -> None:
    for _, name, data in islice(all_streams(), 0, None, 9):
        whole = read_all(data)
        plain = data.replace(b"\r\n", b"\n")
        noisy = b": hello\n\n" + plain.replace(b"\n\n", b"\n\n: keep-alive\n\n")
        for other in (plain.replace(b"\n", b"\r\n"), plain.replace(b"\n", b"\r"), b"\xef\xbb\xbf" + plain, noisy):
            assert read_all(other) == whole, name
            assert read_all(other, 3, 7, 1) == whole, name
        assert read_all(plain.rstrip(b"\n")) == whole, name


def finish_of(data: bytes) -> int:
    """Where the last event with a finish reason that is needed begins: nothing before it is a finished answer."""
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


def test_a_stream_that_is_cut_is_never_finished(capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(11)
    cuts = 0
    for _, name, data in all_streams():
        end = finish_of(data)
        for _ in range(12):
            cut = data[: chance.randrange(end + 1)]
            deltas = read_all(cut)
            check_grammar(deltas)
            assert isinstance(deltas[-1], Failed), (name, len(cut))
            cuts += 1
    small = stream(chunk({"role": "assistant", "content": "é"}), chunk({"content": "b"}), chunk({}, "stop"))
    end = finish_of(small)
    for size in range(len(small)):
        last = read_all(small[:size])[-1]
        assert isinstance(last, Failed) == (size < end + len(event(chunk({}, "stop"))) - 2)
        cuts += 1
    with capsys.disabled():
        print(f"\n  openai-chat streams cut off: {cuts}", end="")


def thinks(text: str, field: str = "reasoning_content", **more: Any) -> Thinking:
    return Thinking(text, native={FORMAT: {"field": field, **more}})


USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}

STOP = chunk({}, "stop")

# Each row is a known deviation: its chunks, the parts, why it stopped.
DEVIATIONS: dict[str, tuple[list[Any], tuple[Any, ...], str]] = {
    "fragments": (
        [
            calls(fragment("", "look", "c1", type="function")),
            calls(fragment('{"a":')),
            calls(fragment("1}")),
            chunk({}, "tool_calls"),
        ],
        (call("look", "c1", '{"a":1}'),),
        "tool_calls",
    ),
    "parallel calls by index, out of order": (
        [
            calls(fragment("", "a", "c1"), fragment("", "b", "c2", 1)),
            calls(fragment('{"b":', index=1)),
            calls(fragment('{"a":1}')),
            calls(fragment("2}", index=1)),
            STOP,
        ],
        (call("a", "c1", '{"a":1}'), call("b", "c2", '{"b":2}')),
        "tool_calls",
    ),
    "Ollama: every call has index 0": (
        [calls(fragment('{"a":1}', "a", "c1")), calls(fragment('{"b":2}', "b", "c2")), chunk({}, "tool_calls")],
        (call("a", "c1", '{"a":1}'), call("b", "c2", '{"b":2}')),
        "tool_calls",
    ),
    "Gemini's endpoint: no index, empty ids, whole calls": (
        [calls(fragment('{"a":1}', "a", "", None)), calls(fragment('{"b":2}', "b", "", None)), STOP],
        (call("a", "call_0", '{"a":1}'), call("b", "call_1", '{"b":2}')),
        "tool_calls",
    ),
    "index 0 and no id, whole calls": (
        [calls(fragment('{"a":1}', "a")), calls(fragment('{"b":2}', "b")), STOP],
        (call("a", "call_0", '{"a":1}'), call("b", "call_1", '{"b":2}')),
        "tool_calls",
    ),
    "neither id nor index, arrays of several": (
        [
            calls(fragment("", "a", "c1", None), fragment("", "b", "c2", None)),
            calls(fragment('{"a":1}', index=None), fragment('{"b":2}', index=None)),
            STOP,
        ],
        (call("a", "c1", '{"a":1}'), call("b", "c2", '{"b":2}')),
        "tool_calls",
    ),
    "no index: the last call continues": (
        [
            calls(fragment("", "a", "c1", None)),
            calls(fragment('{"a":', index=None)),
            calls(fragment("1}", None, "c1", None)),
            STOP,
        ],
        (call("a", "c1", '{"a":1}'),),
        "tool_calls",
    ),
    "id, name and type in every fragment": (
        [
            calls(fragment('{"a"', "a", "c1", type="function")),
            calls(fragment(":1", "a", "c1", type="")),
            calls(fragment("}", "a", "c1", type="function")),
            STOP,
        ],
        (call("a", "c1", '{"a":1}'),),
        "tool_calls",
    ),
    "the id comes late": (
        [calls(fragment("", "a")), calls(fragment('{"a":1')), calls(fragment("}", None, "c1")), STOP],
        (call("a", "c1", '{"a":1}'),),
        "tool_calls",
    ),
    "arguments as an object, in pieces": (
        [calls(fragment({"a": {"b": 1}}, "a", "c1")), calls(fragment({"a": {"c": 2}, "d": 3})), STOP],
        (call("a", "c1", '{"a":{"b":1,"c":2},"d":3}'),),
        "tool_calls",
    ),
    "null arguments": ([calls(fragment(None, "a", "c1")), STOP], (call("a", "c1"),), "tool_calls"),
    "an empty fragment is not a call": ([calls({"index": 0}), chunk({"content": "a"}), STOP], (Text("a"),), "end"),
    "a reason of calls without a call": ([chunk({"content": "a"}), chunk({}, "tool_calls")], (Text("a"),), "end"),
    "a call cut by the length": (
        [calls(fragment('{"a":', "a", "c1")), chunk({}, "length")],
        (call("a", "c1", '{"a":'),),
        "length",
    ),
    "extra content of a call": (
        [
            calls(fragment("{}", "a", "c1", extra_content={"google": {"thought_signature": "s"}})),
            calls(fragment("", None, None, x_late=1)),
            STOP,
        ],
        (
            ToolCallRequest(
                "a",
                "c1",
                native={FORMAT: {"extra_content": {"google": {"thought_signature": "s"}}, "x_late": 1}},
            ),
        ),
        "tool_calls",
    ),
    "a custom call": (
        [
            calls({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}),
            calls({"index": 0, "custom": {"input": " -l"}}),
            chunk({}, "tool_calls"),
        ],
        (ToolCallRequest("run", "c1", "ls -l", freeform=True),),
        "tool_calls",
    ),
    "a deprecated function call": (
        [
            chunk({"function_call": {"name": "look", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"a":1}'}}),
            chunk({}, "function_call"),
        ],
        (ToolCallRequest("look", "call_function_0", '{"a":1}', native={FORMAT: {"function_call": True}}),),
        "tool_calls",
    ),
    "a refusal": ([chunk({"refusal": "I "}), chunk({"refusal": "can't"}), STOP], (Refusal("I can't"),), "refusal"),
    "DeepSeek: reasoning before content": (
        [
            chunk({"role": "assistant", "content": None, "reasoning_content": "h"}),
            chunk({"content": None, "reasoning_content": "m"}),
            chunk({"content": "a", "reasoning_content": None}),
            STOP,
        ],
        (thinks("hm"), Text("a")),
        "end",
    ),
    "several aliases in one chunk": (
        [chunk({"content": "", "reasoning_content": "hm", "reasoning": "hm"}), chunk({"content": "a"}), STOP],
        (thinks("hm", also=["reasoning"]), Text("a")),
        "end",
    ),
    "OpenRouter: details beside the reasoning": (
        [
            chunk({"reasoning": "h", "reasoning_details": [{"type": "reasoning.text", "text": "h", "index": 0}]}),
            chunk({"reasoning": "m", "reasoning_details": [{"type": "reasoning.text", "text": "m", "index": 0}]}),
            chunk({"content": "a"}),
            chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "s", "index": 0}]}),
            chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]}),
            STOP,
        ],
        (
            thinks("hm", "reasoning"),
            Text("a"),
            Thinking(
                native={
                    FORMAT: {
                        "reasoning_details": [
                            {"type": "reasoning.text", "text": "hm", "index": 0, "signature": "s"},
                            {"type": "reasoning.encrypted", "data": "x", "index": 0},
                        ]
                    }
                }
            ),
        ),
        "end",
    ),
    "OpenRouter: only details": (
        [chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}), chunk({"content": "a"}), STOP],
        (
            thinks("hm", "reasoning_details"),
            Text("a"),
            Thinking(native={FORMAT: {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}}),
        ),
        "end",
    ),
    "MiniMax: the whole reasoning in every chunk": (
        [
            chunk({"reasoning_content": "The user"}, input_sensitive=False),
            chunk({"reasoning_content": "The user wants"}),
            chunk({"reasoning_content": "The user wants"}),
            chunk({"reasoning_content": "The user wants rain"}),
            chunk({"content": "a"}),
            STOP,
        ],
        (thinks("The user wants rain"), Text("a")),
        "end",
    ),
    "Mistral: content as a list, and content on the last chunk": (
        [
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]}),
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}]}),
            chunk({"content": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]}),
            chunk({"content": "b"}, "stop"),
        ],
        (thinks("hm", "thinking"), Text("a"), Native(FORMAT, {"type": "reference", "reference_ids": [1]}), Text("b")),
        "end",
    ),
    "OpenRouter: two chunks that finish": (
        [chunk({"content": "a"}), STOP, chunk({"role": "assistant", "content": ""}, "stop", usage=USAGE)],
        (Text("a"),),
        "end",
    ),
    "a host that says it all at once": (
        [
            {
                "id": "x",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
            }
        ],
        (Text("a"),),
        "end",
    ),
    "pictures and citations": (
        [
            chunk({"content": "a"}),
            chunk({"annotations": [{"type": "url_citation", "n": 1}]}),
            chunk({"annotations": [{"type": "url_citation", "n": 2}]}),
            chunk({"images": [{**PNG, "index": 0}]}),
            STOP,
        ],
        (
            Text(
                "a",
                native={FORMAT: {"annotations": [{"type": "url_citation", "n": 1}, {"type": "url_citation", "n": 2}]}},
            ),
            Image("image/png", "iVBORw0KGgo=", native={FORMAT: {"images": True}}),
        ),
        "end",
    ),
    "sound": (
        [
            chunk({"audio": {"id": "audio_1", "transcript": "It "}}),
            chunk({"audio": {"data": "QQ==", "transcript": "rains"}}),
            chunk({"audio": {"data": "Qg==", "expires_at": 9}}),
            STOP,
        ],
        (Audio(data="QUI=", file_id="audio_1", native={FORMAT: {"transcript": "It rains", "expires_at": 9}}),),
        "end",
    ),
    "content that is an object": ([chunk({"content": {"a": 1}}), STOP], (), "end"),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_known_deviations(name: str) -> None:
    chunks, parts, reason = DEVIATIONS[name]
    for data in (stream(*chunks), stream(*chunks, done=False)):
        deltas = read_all(data)
        check_grammar(deltas)
        output = assembled(deltas).output
        assert output.parts == parts
        assert output.stop_reason == reason
        assert read_all(data, 1) == deltas
        again = assembled(read_all(rewritten(deltas)[0])).output
        assert without_marks(again).parts == without_marks(output).parts or name.startswith("Mistral")


def test_usage_may_come_before_on_or_after_the_end() -> None:
    only_usage = {"id": "x", "choices": [], "usage": USAGE}
    for chunks in (
        [chunk({"content": "a"}), STOP, only_usage],
        [chunk({"content": "a"}), chunk({}, "stop", usage=USAGE)],
        [chunk({"content": "a"}, usage={**USAGE, "completion_tokens": 0}), chunk({}, "stop", usage=USAGE)],
        [only_usage, chunk({"content": "a"}), STOP],
        [chunk({"content": "a"}), chunk({}, "stop", x_groq={"usage": USAGE})],
        [
            chunk({"content": "a"}),
            {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]},
        ],
    ):
        output = assembled(read_all(stream(*chunks))).output
        assert output.usage == TokenUsage(1, 2, total_tokens=3, raw=USAGE, format=FORMAT)
        assert output.stop_reason == "end"


def test_azure_begins_without_choices() -> None:
    filters = [{"prompt_index": 0}]
    first = {"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": filters}
    annotation = {"id": "", "model": "", "object": "", "choices": [{"index": 0, "content_filter_results": {"hate": 1}}]}
    deltas = read_all(stream(first, chunk({"content": "a"}), annotation, STOP))
    check_grammar(deltas)
    output = assembled(deltas).output
    assert (output.id, output.model, output.parts) == ("chatcmpl-1", "m", (Text("a"),))
    assert output.native == {
        FORMAT: {"prompt_filter_results": filters, "choice": {"content_filter_results": {"hate": 1}}}
    }


def test_several_candidates_interleave() -> None:
    data = stream(
        chunk({"content": "a"}),
        chunk({"content": "x"}, index=1),
        chunk({"content": "b"}),
        chunk({}, "length", index=1),
        chunk({"content": "c"}),
        STOP,
    )
    output = assembled(read_all(data)).output
    assert output.parts == (Text("abc"),)
    assert [(other.parts, other.stop_reason) for other in output.others] == [((Text("x"),), "length")]
    assert isinstance(read_all(data[: data.rindex(b"data: {")])[-1], Failed)


def test_log_probabilities_are_gathered_and_padding_is_dropped() -> None:
    def probable(token: str, content: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": token}, "logprobs": content, "finish_reason": None}
        return {**chunk(), "choices": [choice], "obfuscation": "xxx", "p": "ab"}

    data = stream(
        probable("a", {"content": [{"token": "a"}], "refusal": None}),
        probable("b", {"content": [{"token": "b"}], "refusal": None}),
        probable("c", None),
        STOP,
    )
    output = assembled(read_all(data)).output
    tokens = {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}
    assert output.native == {FORMAT: {"choice": {"logprobs": tokens}}}


def test_extras_of_the_body_are_reported_once() -> None:
    data = stream(
        chunk({"content": "a"}, service_tier="default", citations=["x"], provider="p"),
        chunk({"content": "b"}, service_tier="default", citations=["x"], provider="q"),
        STOP,
    )
    output = assembled(read_all(data)).output
    assert output.native == {FORMAT: {"service_tier": "default", "citations": ["x"], "provider": "q"}}


ERRORS: list[tuple[bytes, str]] = [
    (event({"error": {"message": "Token limit reached", "code": 400}}), "context_length"),
    (event({"error": {"message": "slow", "code": 429}, "choices": []}), "rate_limit"),
    (event({"code": 429, "status": "Too Many Requests", "message": "slow"}), "rate_limit"),
    (event({"object": "error", "message": "bad", "code": 400}), "invalid_request"),
    (b'event: error\ndata: {"message": "boom", "type": "server_error"}\n\n', "server"),
    (
        event({**chunk(), "choices": [{"index": 0, "error": {"message": "x", "code": 502}, "finish_reason": "error"}]}),
        "server",
    ),
    (event(b"{oops"), "server"),
    (event(b"7"), "server"),
    (event([{"error": {"message": "slow", "code": 429}}]), "rate_limit"),
    (b"", "stream_cut"),
]


@pytest.mark.parametrize(("data", "kind"), ERRORS, ids=str)
def test_errors_inside_a_stream_are_failures(data: bytes, kind: str) -> None:
    for before in (b"", event(chunk({"content": "a"}))):
        deltas = read_all(before + data, 5)
        check_grammar(deltas)
        last = deltas[-1]
        assert isinstance(last, Failed)
        assert last.error.kind == kind
    reader = StreamReader()
    reader.feed(event(chunk({"content": "a"})) + data)
    reader.close()
    assert reader.feed(stream(STOP)) == []
    assert reader.close() == []


def test_a_plain_error_instead_of_a_stream_is_read() -> None:
    last = read_all(b'{"error": {"message": "slow down", "code": 429}}', 9)[-1]
    assert isinstance(last, Failed)
    assert (last.error.kind, last.error.message) == ("rate_limit", "slow down")


def test_done_ends_a_stream_with_or_without_a_reason() -> None:
    parts_seen = read_all(stream(chunk({"content": "a"})))
    assert isinstance(parts_seen[-1], Finished)
    assert isinstance(read_all(stream(chunk({"content": "a"}), done=False))[-1], Failed)
    assert isinstance(read_all(DONE)[-1], Failed)
    assert isinstance(read_all(stream(chunk({"content": "a"}), STOP) + event(chunk({"content": "late"})))[-1], Finished)


PIECES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=3)


@given(PIECES, PIECES, st.lists(PIECES, max_size=3), st.sampled_from(["stop", "length", "tool_calls"]), st.randoms())
def test_a_stream_equals_the_whole_answer(
    thoughts: list[str], words: list[str], called: list[list[str]], finish: str, chance: random.Random
) -> None:
    """L6: an answer cut into deltas, its calls in any order, is assembled to what the whole answer is read as."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(words) or None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if called:
        message["tool_calls"] = [
            {"id": f"c{place}", "type": "function", "function": {"name": "look", "arguments": "".join(pieces) or "{}"}}
            for place, pieces in enumerate(called)
        ]
    whole = {**chunk(), "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": USAGE}
    chunks = [chunk({"reasoning_content": piece}) for piece in thoughts]
    chunks += [chunk({"content": piece}) for piece in words]
    chunks += [calls(fragment("", "look", f"c{place}", place)) for place in range(len(called))]
    rest = [[(place, piece) for piece in pieces] for place, pieces in enumerate(called)]
    while any(rest):
        place, piece = chance.choice([pieces for pieces in rest if pieces]).pop(0)
        chunks.append(calls(fragment(piece, index=place)))
    data = stream(*chunks, chunk({}, finish), {**chunk(), "choices": [], "usage": USAGE})
    output = assembled(read_all(data, *[chance.randint(1, 60) for _ in range(5)])).output
    assert output == read_response({**whole, "object": "chat.completion"})


KEYS = name_set(
    "content role tool_calls index id function name arguments custom input refusal reasoning reasoning_content"
    " reasoning_details audio data type text function_call"
)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "a", "{}", "stop", "assistant", "c1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(KEYS)), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(JSON, max_size=4), st.booleans(), st.integers(1, 30))
def test_the_grammar_holds_for_any_deltas(deltas: list[Any], done: bool, size: int) -> None:
    data = stream(*(chunk(delta) for delta in deltas), chunk({}, "stop"), done=done)
    read = read_all(data)
    check_grammar(read)
    assert read_all(data, size) == read
    assembler = assembled(read)
    assert assembler.is_finished
    encoded(assembler.output)
    second = assembled(read_all(rewritten(read)[0]))
    assert second.is_finished


@given(st.lists(JSON, max_size=3))
def test_no_events_raise(events: list[Any]) -> None:
    read = read_all(b"".join(event(msgspec.json.encode(value)) for value in events))
    check_grammar(read)
