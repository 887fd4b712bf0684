"""The choices of a Chat Completions stream: the deviations of hosts, candidates, log probabilities, and the whole answer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.parts import (
    Audio,
    Image,
    Native,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
)
from antiphon.wire.delta import (
    Failed,
)
from antiphon.wire.provenance import GENERATED_IMAGE, LEGACY_FUNCTION
from support.wire_formats import CHAT
from wire.openai_chat.bodies import FORMAT, assembled, chunk, read_all
from wire.openai_chat.stream_helpers import (
    PNG,
    STOP,
    USAGE,
    call,
    calls,
    fragment,
    rewritten,
    stream,
    without_spelling,
)
from wire.stream_grammar import check_grammar

read_response = CHAT.read_response


def thinks(text: str, *fields: str) -> Thinking:
    return Thinking(text, source=Source(FORMAT, fields or ("reasoning_content",)))


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
        (ToolCallRequest("look", "call_function_0", '{"a":1}', source=LEGACY_FUNCTION),),
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
        (thinks("hm", "reasoning_content", "reasoning"), Text("a")),
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
            Image("image/png", "iVBORw0KGgo=", source=GENERATED_IMAGE),
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
        assert without_spelling(again).parts == without_spelling(output).parts or name.startswith("Mistral")


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
