"""Chat Completions answers and errors: recorded, odd, of other formats, and as OpenAI's own library parses them."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given

from antiphon.errors import WireError
from antiphon.parts import Audio, Document, Image, Native, Refusal, Source, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.response import read_usage, write_usage
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.provenance import GENERATED_IMAGE, LEGACY_FUNCTION
from support.corpus import in_collection
from support.history_strategies import json_values
from support.wire_formats import CHAT
from wire.openai_chat.bodies import FORMAT, encoded, normalised_answer, response_bodies, served

read_error = CHAT.read_error
write_error = CHAT.write_error
read_response = CHAT.read_response
write_response = CHAT.write_response

PNG = "data:image/png;base64,iVBORw0KGgo="
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def answer(message: Any, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice], **more}


def answer_with(**message: Any) -> dict[str, Any]:
    return answer({"role": "assistant", **message})


def written(output: ModelOutput) -> tuple[dict[str, Any], list[Loss]]:
    losses: list[Loss] = []
    return encoded(write_response(output, losses)), losses


def test_recorded_answers_come_back_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """L2."""
    reasons: Counter[str] = Counter()
    for _, name, body in response_bodies():
        before = copy.deepcopy(body)
        output = read_response(body)
        again, losses = written(output)
        assert losses == [], name
        assert normalised_answer(again) == normalised_answer(body), name
        assert body == before, f"{name} was changed"
        assert output.format == FORMAT
        reasons[output.stop_reason] += 1
    with capsys.disabled():
        print(f"\n  openai-chat responses: {sum(reasons.values())} bodies, {dict(reasons)}", end="")
    assert sum(reasons.values()) > in_collection(900)


# A message as it comes, its finish reason, and what is read: parts, and why it stopped.
ANSWERS: list[tuple[dict[str, Any], Any, tuple[Any, ...], str]] = [
    ({"content": "hi"}, "stop", (Text("hi"),), "end"),
    ({"content": "hi"}, "length", (Text("hi"),), "length"),
    ({"content": "hi"}, "content_filter", (Text("hi"),), "content_filter"),
    ({"content": "hi"}, None, (Text("hi"),), ""),
    ({"content": "hi"}, "tool_calls", (Text("hi"),), "end"),
    ({"content": "hi"}, "eos", (Text("hi"),), "end"),
    ({"content": "hi"}, "unheard of", (Text("hi"),), "other"),
    ({"content": "", "tool_calls": [CALL]}, "stop", (ToolCallRequest("look", "c1", "{}"),), "tool_calls"),
    ({"content": None, "tool_calls": [CALL]}, "length", (ToolCallRequest("look", "c1", "{}"),), "length"),
    ({"content": None, "refusal": "no"}, "stop", (Refusal("no"),), "refusal"),
    (
        {"content": None, "function_call": {"name": "look", "arguments": "{}"}},
        "function_call",
        (ToolCallRequest("look", "call_function_0", "{}", source=LEGACY_FUNCTION),),
        "tool_calls",
    ),
    (
        {"content": None, "audio": {"id": "audio_1", "data": "UklGRg==", "transcript": "hi", "expires_at": 9}},
        "stop",
        (Audio(data="UklGRg==", file_id="audio_1", native={FORMAT: {"transcript": "hi", "expires_at": 9}}),),
        "end",
    ),
    (
        {"content": {"a": 1}},
        "stop",
        (Text('{"a":1}', native={FORMAT: {"content": {"a": 1}}}),),
        "end",
    ),
    (
        {"content": "a", "images": [{"type": "image_url", "image_url": {"url": PNG}}]},
        "stop",
        (Text("a"), Image("image/png", "iVBORw0KGgo=", source=GENERATED_IMAGE)),
        "end",
    ),
    (
        {"content": "a", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        "stop",
        (
            Thinking("hm", source=Source(FORMAT, ("reasoning_details",))),
            Text("a"),
            Thinking(native={FORMAT: {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}}),
        ),
        "end",
    ),
    (
        {"content": None, "tool_calls": [{"function": {"name": "look", "arguments": {"a": 1}}}, {"x": 1}]},
        "tool_calls",
        (ToolCallRequest("look", "call_0", '{"a":1}'), Native(FORMAT, {"tool_calls": [{"x": 1}]})),
        "tool_calls",
    ),
]


@pytest.mark.parametrize(("message", "finish", "parts", "reason"), ANSWERS, ids=lambda value: str(value)[:50])
def test_answers_are_read_and_written(
    message: dict[str, Any], finish: Any, parts: tuple[Any, ...], reason: str
) -> None:
    body = answer({"role": "assistant", **message}, finish)
    output = read_response(body)
    assert output.parts == parts
    assert output.stop_reason == reason
    again, losses = written(output)
    assert losses == []
    assert normalised_answer(again) == normalised_answer(body)


def test_several_choices_are_candidates() -> None:
    body = answer({"role": "assistant", "content": "a"}, system_fingerprint="fp")
    body["choices"] += [
        {"index": 1, "message": {"content": "b"}, "finish_reason": "length", "logprobs": {"content": []}},
        5,
    ]
    output = read_response(body)
    assert [other.parts for other in output.others] == [(Text("b"),), ()]
    assert output.others[0].stop_reason == "length"
    assert output.others[0].id == output.id == "chatcmpl-1"
    assert normalised_answer(written(output)[0]) == normalised_answer(body)


@given(json_values, json_values, json_values)
def test_anything_below_the_top_is_read_and_comes_back(message: Any, choice: Any, extra: Any) -> None:
    for body in (
        {"choices": [message, choice]},
        {"choices": [{"message": message, "finish_reason": extra}]},
        answer_with(content=message, tool_calls=choice, refusal=extra),
        answer_with(audio=message, reasoning=choice, annotations=extra, function_call=message, images=choice),
        {"choices": [], "usage": message, "id": choice, "x": extra},
    ):
        again, losses = written(read_response(body))
        assert losses == []
        if not (isinstance(body["choices"], list) and any(is_joined(entry) for entry in body["choices"])):
            assert normalised_answer(again) == normalised_answer(body)


def is_joined(choice: Any) -> bool:
    """Whether a choice falls under a normalisation that compares differently: texts that are joined."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return False
    return isinstance(choice["message"].get("content"), list)


def test_an_invalid_answer_is_refused_with_its_reason() -> None:
    with pytest.raises(WireError, match="choices: expected an array, got null"):
        read_response({})
    with pytest.raises(WireError, match="Provider returned error"):
        read_response({"error": {"message": "Provider returned error", "code": 429}})


OTHER = ModelOutput(
    parts=(
        Thinking("hm", native={"anthropic": {"signature": "s"}}),
        Text("a"),
        Text("b", native={"anthropic": {"citations": []}}),
        ToolCallRequest("look", "toolu_1", '{"a":1}'),
        ToolCallRequest("run", "toolu_2", "ls", freeform=True),
        Image("image/png", "iVBORw0KGgo="),
        Document("application/pdf", "JVBE"),
        Native("anthropic", {"type": "server_tool_use"}),
    ),
    stop_reason="tool_calls",
    stop_sequence="END",
    id="msg_1",
    model="claude",
    usage=TokenUsage(10, 5, 4, 3, 2, format="anthropic", raw={"input_tokens": 3}),
    format="anthropic",
    native={"anthropic": {"container": {}}},
)


def test_answers_from_other_formats_are_written_with_losses() -> None:
    body, losses = written(OTHER)
    message = body["choices"][0]["message"]
    assert body["id"] == "chatcmpl-msg_1"
    assert body["created"] > 0
    assert message["content"] == "ab"
    assert message["reasoning_content"] == "hm"
    assert [call["type"] for call in message["tool_calls"]] == ["function", "custom"]
    assert message["images"][0]["image_url"]["url"] == PNG
    assert body["usage"]["total_tokens"] == 15
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 3}
    assert {loss.path for loss in losses} == {
        "native.container",
        "stop_sequence",
        "parts[0].signature",
        "parts[2].citations",
        "parts[6]",
        "parts[7]",
    }


@pytest.mark.parametrize(
    ("reason", "word", "is_told"),
    [
        ("end", "stop", False),
        ("stop_sequence", "stop", False),
        ("length", "length", False),
        ("content_filter", "content_filter", False),
        ("refusal", "content_filter", False),
        ("paused", "stop", True),
        ("malformed_call", "stop", True),
        ("other", "stop", True),
        ("", "stop", False),
    ],
)
def test_stop_reasons_of_other_formats_are_mapped(reason: Any, word: str, is_told: bool) -> None:
    body, losses = written(ModelOutput(parts=(Text("a"),), stop_reason=reason, format="gemini"))
    assert body["choices"][0]["finish_reason"] == word
    assert bool(losses) is is_told


def test_every_field_of_an_output_is_written_or_a_loss() -> None:
    """L3."""
    plain = ModelOutput(parts=(Text("a"),), id="x", model="m", created=1, stop_reason="end", format="gemini")
    changes: dict[str, Any] = {
        "parts": (Text("b"),),
        "stop_reason": "length",
        "stop_sequence": "x",
        "id": "y",
        "model": "n",
        "created": 2,
        "usage": TokenUsage(1),
        "others": (plain,),
        "native": {"gemini": {"x": 1}},
    }
    assert set(changes) == set(ModelOutput.__struct_fields__) - {"format", "source"}
    before, _ = written(plain)
    for field, value in changes.items():
        body, losses = written(msgspec.structs.replace(plain, **{field: value}))
        assert body != before or losses, field


USAGES: list[tuple[dict[str, Any], tuple[int, int, int, int, int]]] = [
    ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, (10, 5, 0, 0, 0)),
    (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        (10, 5, 4, 2, 3),
    ),
    (  # xAI counts reasoning beside the completion
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 18,
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        (10, 8, 0, 0, 3),
    ),
    ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18}, (10, 8, 0, 0, 3)),  # Gemini's OpenAI endpoint
    (  # Grok at Azure counts cached tokens beside the prompt
        {
            "prompt_tokens": 7,
            "completion_tokens": 1,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 163},
        },
        (170, 1, 163, 0, 0),
    ),
    (  # Mistral counts sound beside the prompt
        {
            "prompt_tokens": 11,
            "completion_tokens": 15,
            "total_tokens": 401,
            "prompt_tokens_details": {"audio_tokens": 375},
        },
        (386, 15, 0, 0, 0),
    ),
    (  # DeepSeek
        {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_cache_hit_tokens": 8},
        (9, 1, 8, 0, 0),
    ),
    ({"prompt_tokens": None, "completion_tokens": "many"}, (0, 0, 0, 0, 0)),
]


@pytest.mark.parametrize(("raw", "counts"), USAGES, ids=str)
def test_counts_are_inclusive_for_every_host(raw: dict[str, Any], counts: tuple[int, ...]) -> None:
    usage = read_usage(raw)
    assert usage is not None
    assert usage.raw is raw
    assert (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    ) == counts
    assert write_usage(usage) == raw
    again = read_usage(write_usage(msgspec.structs.replace(usage, raw=None)))
    assert again is not None
    assert (again.prompt_tokens, again.completion_tokens) == counts[:2]


def test_openai_parses_what_we_write(capsys: pytest.CaptureFixture[str]) -> None:
    """Our whole answers, over HTTP, through OpenAI's own library, read again: the same."""
    openai = pytest.importorskip("openai")
    outputs = {name: read_response(body) for _, name, body in islice(response_bodies(), 0, None, 3)}
    outputs["other"] = OTHER
    pages = {
        name: (200, "application/json", msgspec.json.encode(write_response(output, [])))
        for name, output in outputs.items()
    }
    with served(pages) as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        for name, output in outputs.items():
            raw = client.chat.completions.with_raw_response.create(model=name, messages=[])
            completion = raw.parse()
            assert type(completion).__name__ == "ChatCompletion"
            again = read_response(completion.to_dict(warnings=False))
            wanted = read_response(encoded(write_response(output, [])))
            assert (again.parts, again.stop_reason, again.usage) == (wanted.parts, wanted.stop_reason, wanted.usage), (
                name
            )
    with capsys.disabled():
        print(f"\n  openai-chat responses parsed by openai {openai.__version__}: {len(outputs)}", end="")


def test_openai_raises_what_we_write_as_an_error() -> None:
    openai = pytest.importorskip("openai")
    error = ProviderError("slow down", "rate_limit", 429)
    pages = {"m": (429, "application/json", msgspec.json.encode(write_error(error)))}
    with served(pages) as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError, match="slow down") as raised:
            client.chat.completions.create(model="m", messages=[])
        assert raised.value.code == "rate_limit_exceeded"
