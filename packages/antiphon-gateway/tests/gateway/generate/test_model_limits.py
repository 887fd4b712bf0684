"""What a named model refuses, over HTTP: every client format, whole and streamed, translated and in the same format.

The upstreams refuse as the models do. A request whose model the client names itself is sent as it came first, so the upstream may
refuse it once; what arrives last must be accepted, and an alias or a translation must be right at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.rig import Rig, rig
from support.corpus import recorded

pytestmark = pytest.mark.pairwise(1)
CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"
LOSSES = "x-antiphon-losses"
MODELS = {
    CHAT: ("gpt-5", "gpt-4o", "gpt-audio", "deepseek-chat"),
    RESPONSES: ("gpt-5-mini", "gpt-4o-mini"),
    ANTHROPIC: ("claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-2.1"),
    GEMINI: ("gemini-3-pro-preview", "gemini-2.5-flash", "gemini-2.5-flash-image"),
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FUNCTION = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
LIST = {
    "type": "object",
    "properties": {"l": {"type": "array", "items": {"type": "object"}, "minItems": 3, "maxItems": 9}},
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    own = {model: [f"{name}/{model}"] for name, models in MODELS.items() for model in models}
    aliases = {f"alias-{model}": targets for model, targets in own.items()}
    unknown = {f"unknown-{name}": [f"{name}/unknown-{name}"] for name in MODELS}
    with rig(models={**own, **aliases, **unknown}) as running:
        yield running


def ask_in(name: str, **fields: Any) -> dict[str, Any]:
    """A small request in a format."""
    if name == RESPONSES:
        return {"input": "hi", **fields}
    if name == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], **fields}
    limit = {"max_tokens": 5000} if name == ANTHROPIC else {}
    return {"messages": [{"role": "user", "content": "hi"}], **limit, **fields}


def arrived(
    gateway: Rig, client: str, model: str, body: dict[str, Any], *, streams: bool
) -> tuple[dict[str, Any], str]:
    """The body that the upstream accepted, and the losses reported to the client."""
    gateway.clear()
    with gateway.client() as connection:
        got = connection.ask(client, model, body, streams=streams)
    assert got.status == 200, got.body
    (upstream,) = [one for one in gateway.upstreams.values() if one.received]
    is_direct = not model.startswith("alias-") and upstream.format == client
    assert len(upstream.received) <= 1 + is_direct, upstream.refused
    accepted: dict[str, Any] = upstream.bodies[-1]
    return {**accepted, **accepted.get("generationConfig", {})}, got.headers.get(LOSSES, "")


def lacks(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda body: not body.keys() & {*names}


def has(**fields: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda body: {name: body.get(name) for name in fields} == fields


SAMPLING = {"temperature": 0.2, "top_p": 0.5}
CHAT_SAMPLING = {
    **SAMPLING,
    "presence_penalty": 1.0,
    "frequency_penalty": 0.5,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"50256": -100},
}
THOUGHT = {"type": "enabled", "budget_tokens": 2000}
TOOL = {"name": "f", "description": "d", "input_schema": FUNCTION}
FORCED = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}}
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "out", "schema": LIST}}


def at(outer: str, inner: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda body: body[outer][inner] == value


def one_candidate(body: dict[str, Any]) -> bool:
    return body.get("candidateCount") in (None, 1)


def is_not_thinking(body: dict[str, Any]) -> bool:
    return body.get("thinking", {}).get("type") in (None, "disabled")


def generation(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": fields}


Case = tuple[str, str, dict[str, Any], Callable[[dict[str, Any]], bool]]
# Each client format with each target; what each model takes is judged without sockets, in wire/capabilities.
CASES: dict[str, Case] = {
    "sampling to gpt-5": (CHAT, "gpt-5", CHAT_SAMPLING, lacks(*CHAT_SAMPLING)),
    "chat sampling to Responses": (CHAT, "gpt-5-mini", CHAT_SAMPLING, lacks(*CHAT_SAMPLING)),
    "Responses sampling to chat": (RESPONSES, "gpt-5", SAMPLING, lacks(*SAMPLING)),
    "Claude's sampling to gpt-5": (ANTHROPIC, "gpt-5", {"temperature": 0.2, "top_k": 4}, lacks("temperature", "top_k")),
    "max_tokens": (CHAT, "gpt-5", {"max_tokens": 77}, has(max_completion_tokens=77, max_tokens=None)),
    "both to Claude 4.5": (ANTHROPIC, "claude-sonnet-4-5", SAMPLING, has(temperature=0.2, top_p=None)),
    "both from Gemini to Claude 4.5": (
        GEMINI,
        "claude-sonnet-4-5",
        generation(temperature=0.2, topP=0.5),
        has(temperature=0.2, top_p=None),
    ),
    "effort and a forced tool from Responses to Claude 4.6": (
        RESPONSES,
        "claude-opus-4-6",
        {
            "reasoning": {"effort": "high"},
            "tools": [{"type": "function", "name": "f", "parameters": FUNCTION}],
            "tool_choice": "required",
        },
        is_not_thinking,
    ),
    "effort xhigh to gpt-5-mini in Responses": (
        RESPONSES,
        "gpt-5-mini",
        {"reasoning": {"effort": "xhigh"}},
        at("reasoning", "effort", "high"),
    ),
    "level minimal to gemini-3-pro": (
        GEMINI,
        "gemini-3-pro-preview",
        generation(thinkingConfig={"thinkingLevel": "MINIMAL"}),
        at("thinkingConfig", "thinkingLevel", "LOW"),
    ),
    "budget from Claude's client to gemini-2.5-flash": (
        ANTHROPIC,
        "gemini-2.5-flash",
        {"max_tokens": 64_000, "thinking": {"type": "enabled", "budget_tokens": 30_000}},
        at("thinkingConfig", "thinkingBudget", 24_576),
    ),
    "candidates from chat to gemini-3": (CHAT, "gemini-3-pro-preview", {"n": 2}, one_candidate),
    "output schema from chat to Claude": (
        CHAT,
        "claude-opus-4-6",
        {"response_format": SCHEMA_FORMAT},
        lambda body: (
            body["output_config"]["format"]["schema"]["additionalProperties"] is False
            and body["output_config"]["format"]["schema"]["properties"]["l"]["items"]["additionalProperties"] is False
            and not {"minItems", "maxItems"} & body["output_config"]["format"]["schema"]["properties"]["l"].keys()
        ),
    ),
}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", ["", "alias-"], ids=["named", "alias"])
@pytest.mark.parametrize("case", CASES)
def test_parameters_that_the_model_refuses_are_adapted_and_reported(
    gateway: Rig, case: str, route: str, streams: bool
) -> None:
    client, model, fields, is_right = CASES[case]
    body, losses = arrived(gateway, client, route + model, ask_in(client, **fields), streams=streams)
    assert is_right(body), body
    renamed = case.startswith("max_tokens")
    assert renamed or losses, "nothing was reported to the client"


PREFILL = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "It"}]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", ["", "alias-"], ids=["named", "alias"])
def test_thinking_with_prefill(gateway: Rig, route: str, streams: bool) -> None:
    fields = {"messages": PREFILL, "thinking": THOUGHT, "max_tokens": 5000}
    body, losses = arrived(gateway, ANTHROPIC, f"{route}claude-sonnet-4-5", fields, streams=streams)
    assert body.get("thinking", {}).get("type") != "enabled"
    assert body["messages"][-1]["role"] == "assistant"
    assert losses


WAV = "UklGRgAAAABXQVZF"
MEDIA: dict[str, list[dict[str, Any]]] = {
    CHAT: [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
    ],
    RESPONSES: [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}],
    ANTHROPIC: [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
    GEMINI: [
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"inlineData": {"mimeType": "audio/wav", "data": WAV}},
    ],
}


def with_media(client: str) -> dict[str, Any]:
    if client == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": "see"}, *MEDIA[client]]}]}
    text = {"type": "input_text" if client == RESPONSES else "text", "text": "see"}
    content = [{"role": "user", "content": [text, *MEDIA[client]]}]
    return {"input": content} if client == RESPONSES else ask_in(client, messages=content)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", ["", "alias-"], ids=["named", "alias"])
@pytest.mark.parametrize("client", MEDIA)
@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("gpt-4o", ("image",)),
        ("gpt-4o-mini", ("image",)),
        ("gpt-audio", ("audio",)),
        ("deepseek-chat", ()),
        ("claude-sonnet-4-5", ("image",)),
        ("claude-2.1", ()),
        ("gemini-2.5-flash", ("image", "audio")),
        ("gemini-2.5-flash-image", ("image",)),
    ],
)
def test_media_that_the_model_refuses_become_notes(
    gateway: Rig, client: str, model: str, kept: tuple[str, ...], route: str, streams: bool
) -> None:
    body, losses = arrived(gateway, client, route + model, with_media(client), streams=streams)
    text = str(body)
    kinds = ("image", "audio") if len(MEDIA[client]) == 2 else ("image",)
    for kind in kinds:
        assert ((PIXEL if kind == "image" else WAV) in text) == (kind in kept)
        assert (f"[{kind} omitted: " in text) == (kind not in kept)
    assert ("messages[0].parts" in losses) == any(kind not in kept for kind in kinds)


def test_a_model_that_refuses_system_messages_gets_them_another_way(gateway: Rig) -> None:
    """The recorded refusal of claude-opus-4-8, which accepts the same request today."""
    (record,) = (one for one in recorded(ANTHROPIC) if one["id"] == "e80ad441f5d09156")
    refusal = record["response"]["error"]["message"]
    for model in ("claude-opus-4-8", "alias-claude-opus-4-8"):
        first, second = refused_once(gateway, ANTHROPIC, ANTHROPIC, model, record["request"], refusal)
        assert [message["role"] for message in first["messages"]] == ["user", "system"]
        assert {message["role"] for message in second["messages"]} == {"user"}
        assert "answer with exactly UPDATED" in str(second)


def refused_once(
    gateway: Rig, client: str, upstream_format: str, model: str, request: dict[str, Any], refusal: str
) -> list[dict[str, Any]]:
    """The bodies that an upstream got, which refused the first and accepted the last."""
    gateway.clear()
    upstream = gateway.upstreams[upstream_format]
    upstream.faults.append(upstream.error(400, "invalid_request", refusal))
    with gateway.client() as connection:
        got = connection.ask(client, model, request, streams=False)
    assert got.status == 200, got.body
    return upstream.bodies


REFUSALS: dict[str, tuple[str, dict[str, Any], str, Callable[[dict[str, Any]], bool]]] = {
    "both": (ANTHROPIC, SAMPLING, "`temperature` and `top_p` cannot both be specified for this model.", lacks("top_p")),
    "prefill": (
        ANTHROPIC,
        {"messages": PREFILL},
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        lambda body: body["messages"][-1]["role"] == "user",
    ),
    "adaptive thinking": (
        ANTHROPIC,
        {"thinking": {"type": "adaptive"}, **FORCED},
        "Thinking may not be enabled when tool_choice forces tool use.",
        is_not_thinking,
    ),
    "deprecated": (ANTHROPIC, SAMPLING, "temperature is deprecated for this model", lacks(*SAMPLING)),
    "max_tokens": (
        CHAT,
        {"max_tokens": 9},
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        has(max_completion_tokens=9, max_tokens=None),
    ),
    "temperature": (
        CHAT,
        SAMPLING,
        "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
        lacks(*SAMPLING),
    ),
    "temperature in Responses": (
        RESPONSES,
        SAMPLING,
        "Unsupported parameter: 'temperature' is not supported with this model.",
        lacks(*SAMPLING),
    ),
    "stop": (CHAT, {"stop": ["x"]}, "Unsupported parameter: 'stop' is not supported with this model.", lacks("stop")),
    "system": (
        CHAT,
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]},
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        lambda body: {message["role"] for message in body["messages"]} == {"user"},
    ),
    "candidates": (
        GEMINI,
        generation(candidateCount=2),
        "Multiple candidates is not enabled for this model",
        one_candidate,
    ),
}
"""What providers say about models that the table does not know, and what arrives after that."""


@pytest.mark.parametrize("case", REFUSALS)
def test_an_unknown_model_is_asked_again_without_what_it_refused(gateway: Rig, case: str) -> None:
    name, fields, refusal, is_right = REFUSALS[case]
    request = ask_in(name, **fields)
    first, second = refused_once(gateway, name, name, f"unknown-{name}", request, refusal)
    assert not is_right({**first, **first.get("generationConfig", {})})
    assert is_right({**second, **second.get("generationConfig", {})}), second


def test_another_refusal_is_passed_on(gateway: Rig) -> None:
    gateway.clear()
    upstream = gateway.upstreams[CHAT]
    upstream.faults.append(upstream.error(400, "invalid_request", "Your prompt was refused."))
    with gateway.client() as connection:
        got = connection.ask(CHAT, f"unknown-{CHAT}", ask_in(CHAT), streams=False)
    assert got.status == 400
    assert len(upstream.received) == 1
