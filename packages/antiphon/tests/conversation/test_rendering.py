"""Rendering again and again equals rendering once: live contexts and request bodies; and proofs of reasoning go home only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.context import LiveContextOptions, LiveContextRenderer, render_live_context
from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, Origin, ToolCallResultsEntry
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import RenderedRequest, render_call
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import ModelRequest, ToolDefinition
from support.cases import each_case
from support.history_strategies import any_text, append_any, conversations, entries
from support.planned_turns import MODELS

# Any history, step by step.

Step = Callable[[AgentHistory], Any]


def roll_back(share: float) -> Step:
    return lambda history: history.rollback(int(history.version * share))


def compact(share: float, summary: str) -> Step:
    return lambda history: history.compact(summary, int(history.version * share))


def append_all(log: list[Any]) -> Step:
    return lambda history: [append_any(history, entry) for entry in log]


shares = st.floats(0, 1)
steps: st.SearchStrategy[Step] = st.one_of(
    entries.map(lambda entry: append_all([entry])),
    entries.map(lambda entry: append_all([entry])),
    conversations.map(append_all),
    shares.map(roll_back),
    st.builds(compact, shares, any_text),
)
options = st.builds(
    LiveContextOptions,
    live_screen=st.sampled_from([None, None, "", "It is noon."]),
    max_tokens=st.sampled_from([None, None, 0, 20, 500]),
    max_entries=st.sampled_from([None, None, 0, 3, 10]),
    notebook=st.sampled_from(["system", "screen", "none"]),
)


@given(st.lists(st.tuples(steps, options), max_size=12))
def test_an_incremental_renderer_equals_a_full_rendering(played: list[tuple[Step, LiveContextOptions]]) -> None:
    history, renderer = AgentHistory(), LiveContextRenderer()
    snapshots = []
    for step, asked in played:
        step(history)
        snapshots.append(history.snapshot())
        for snapshot in (snapshots[-1], snapshots[0], snapshots[-1]):  # an old one in between disturbs nothing
            rendered, full = renderer.render(snapshot, asked), render_live_context(snapshot, asked)
            assert list(rendered) == list(full)
            assert (rendered.left_out, rendered.screen) == (full.left_out, full.screen)
            assert rendered.injected() == full.injected()


def test_the_rendered_context_is_a_copy() -> None:
    history, renderer = AgentHistory(), LiveContextRenderer()
    history.append(ModelInputEntry.of("Hi."))
    first = renderer.render(history.snapshot())
    first.clear()
    assert len(renderer.render(history.snapshot())) == 1


# The bytes of a request.

TARGETS = [Origin("house", name, MODELS[name]) for name in FORMATS]
TARGETS += [Origin("house", "anthropic", "claude-opus-4-1"), Origin("other", "openai-chat", "gpt-4o")]
TOOL = ToolDefinition("weather", "Current weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def asked_for(tools: int, temperature: float | None) -> ProviderCallOptions:
    return ProviderCallOptions(tools=(TOOL,) * tools, settings=ModelRequest(temperature=temperature))


calls = st.builds(asked_for, st.integers(0, 1), st.sampled_from([None, None, 0.5]))


def comparable(rendered: RenderedRequest) -> tuple[bytes, Any, list[str], list[str]]:
    body = b"".join(rendered.chunks)
    return body, rendered.request, sorted(map(str, rendered.losses)), sorted(map(str, rendered.repairs))


@given(st.lists(st.tuples(steps, options, calls, st.sampled_from(TARGETS)), max_size=10))
def test_an_incremental_body_equals_a_full_body(
    played: list[tuple[Step, LiveContextOptions, ProviderCallOptions, Origin]],
) -> None:
    history, renderer = AgentHistory(), LiveContextRenderer()
    for step, shown, asked, target in played:
        step(history)
        snapshot = history.snapshot()
        grown = render_call(renderer.render(snapshot, shown), asked, target)
        full = render_call(render_live_context(snapshot, shown), asked, target)
        assert comparable(grown) == comparable(full)
        assert list(msgspec.json.decode(b"".join(grown.chunks))) != []


@given(conversations, st.sampled_from(TARGETS), st.booleans())
def test_a_conversation_is_accepted_at_every_entry(log: list[Any], target: Origin, has_screen: bool) -> None:
    history, renderer = AgentHistory(), LiveContextRenderer()
    shown = LiveContextOptions(live_screen="It is noon." if has_screen else None)
    for entry in log:
        append_any(history, entry)
        snapshot = history.snapshot()
        grown = render_call(renderer.render(snapshot, shown), asked_for(1, None), target)
        full = render_call(render_live_context(snapshot, shown), asked_for(1, None), target)
        assert b"".join(grown.chunks) == b"".join(full.chunks)


# Proofs of reasoning.

PROOF = "cHJvb2Ygb2YgcmVhc29uaW5n"
CALL = {"name": "weather", "arguments": "{}"}
ANTHROPIC_CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
RESPONSES_CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", **CALL, "status": "completed"}
CHAT_CALL = {"id": "call_1", "type": "function", "function": CALL}


def anthropic(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODELS["anthropic"],
        "content": [*blocks, ANTHROPIC_CALL],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def responses(*items: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODELS["openai-responses"],
        "output": [*items, RESPONSES_CALL],
    }


def gemini(*parts: dict[str, Any]) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}


def chat(**message: Any) -> dict[str, Any]:
    any_text = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL], **message}
    return {
        "id": "chatcmpl_1",
        "object": "chat.completion",
        "created": 1,
        "model": MODELS["openai-chat"],
        "choices": [{"index": 0, "message": any_text, "finish_reason": "tool_calls"}],
    }


PROVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "signature": ("anthropic", anthropic({"type": "thinking", "thinking": "I look.", "signature": PROOF})),
    "redacted_thinking": ("anthropic", anthropic({"type": "redacted_thinking", "data": PROOF})),
    "encrypted_content": (
        "openai-responses",
        responses(
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "I look."}],
                "encrypted_content": PROOF,
            }
        ),
    ),
    "thoughtSignature of a call": (
        "gemini",
        gemini({"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": PROOF}),
    ),
    "thoughtSignature of words": (
        "gemini",
        gemini({"text": "I look.", "thoughtSignature": PROOF}, {"functionCall": {"name": "weather", "args": {}}}),
    ),
    "thoughtSignature of code": (
        "gemini",
        gemini(
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": PROOF},
            {"functionCall": {"name": "weather", "args": {}}},
        ),
    ),
    "reasoning_details": (
        "openai-chat",
        chat(reasoning_details=[{"type": "reasoning.encrypted", "data": PROOF, "id": "r1", "format": "any-v1"}]),
    ),
}


def after_a_round(format_name: str, body: dict[str, Any], origin: Origin) -> AgentHistory:
    """A question, an answer that proves its reasoning and makes a call, and the result."""
    output = formats[format_name].read_response(body)
    history = AgentHistory()
    history.append(ModelInputEntry.of("Is it raining?"))
    history.append(ModelOutputEntry(output.parts, output.stop_reason, origin))
    made = [part for part in output.parts if isinstance(part, ToolCallRequest)]
    history.append(ToolCallResultsEntry(tuple(ToolCallResult.of(call, "rain") for call in made)))
    return history


@pytest.mark.parametrize("case", PROVEN)
def test_a_reasoning_signature_goes_back_to_its_provider(case: str) -> None:
    name, body = PROVEN[case]
    origin = Origin("house", name, MODELS[name])
    rendered = render_call(
        LiveContextRenderer().render(after_a_round(name, body, origin).snapshot()), asked_for(1, None), origin
    )
    assert PROOF.encode() in b"".join(rendered.chunks)
    assert rendered.losses == []


OTHERS: list[tuple[str, Callable[[Origin], Origin]]] = [
    ("another model", lambda origin: Origin(origin.provider, origin.format, f"{origin.model}-next")),
    ("another provider", lambda origin: Origin("elsewhere", origin.format, origin.model)),
    *((name, lambda origin, name=name: Origin(origin.provider, name, MODELS[name])) for name in FORMATS),
]


@each_case("case", PROVEN)
@each_case(("where", "moved"), OTHERS)
def test_a_reasoning_signature_goes_to_no_other_provider_and_is_a_loss(
    case: str, where: str, moved: Callable[[Origin], Origin]
) -> None:
    name, body = PROVEN[case]
    origin = Origin("house", name, MODELS[name])
    target = moved(origin)
    if target == origin:
        return
    history = after_a_round(name, body, origin)
    rendered = render_call(LiveContextRenderer().render(history.snapshot()), asked_for(1, None), target)
    sent = b"".join(rendered.chunks)
    assert PROOF.encode() not in sent
    assert rendered.losses != [], "a loss is reported"
    wire_options: dict[str, Any] = {"model": target.model} if target.format == "gemini" else {}
    assert formats[target.format].check_request(msgspec.json.decode(sent), **wire_options) == []


@pytest.mark.parametrize("case", PROVEN)
def test_a_reasoning_signature_without_an_origin_is_not_sent(case: str) -> None:
    name, body = PROVEN[case]
    history = after_a_round(name, body, Origin())
    rendered = render_call(
        LiveContextRenderer().render(history.snapshot()), asked_for(1, None), Origin("house", name, MODELS[name])
    )
    assert PROOF.encode() not in b"".join(rendered.chunks)
