"""A history processor for pydantic-ai: `repair_history` gives a model no sequence that its API refuses.

    agent = Agent("openai:gpt-5.5", capabilities=[ProcessHistory(repair_history)])

A run that ended in the middle of its tools leaves calls without results; a list that was cut leaves results without calls. Calls
get their results, results their calls, and what interrupted them comes after; every word stays. Messages that need no change are
passed on as the same objects, and a list that needs none as the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from antiphon.repair import fix_tool_call_sequence

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
else:
    ModelMessage = Any  # pydantic-ai reads the annotations of a processor

_PLACE = "antiphon_place"
_CALLS = frozenset({"tool-call", "tool-search-call", "capability-load-call"})
_RESULTS = frozenset({"tool-return", "tool-search-return", "capability-load-return", "retry-prompt"})


def repair_history(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages in an order that every provider takes; the same list if it is one already."""
    outline = [one for index, message in enumerate(messages) for one in _outline(message, index)]
    fixed = fix_tool_call_sequence(outline)
    if fixed is outline:
        return messages
    repaired: list[ModelMessage] = []
    pending: list[tuple[Any, int]] = []  # parts of a request, and the request they come from
    for one in fixed:
        index, part = one.get(_PLACE, (-1, -1))
        if one["role"] == "assistant":
            repaired += _requests(pending, messages)
            pending = []
            repaired.append(_response(messages[index], one))
        else:
            pending.append((_request_part(one, messages, index, part), index))
    return [*repaired, *_requests(pending, messages)]


def _outline(message: ModelMessage, index: int) -> list[dict[str, Any]]:
    """What decides about the order: who speaks, and which calls are made and answered."""
    if message.kind == "response":
        calls = [
            {"id": part.tool_call_id, "type": "function", "function": {"name": part.tool_name, "arguments": "{}"}}
            for part in message.parts
            if part.part_kind in _CALLS
        ]
        said = " " if len(calls) < len(message.parts) else ""
        made = {"tool_calls": calls} if calls else {}
        return [{"role": "assistant", "content": said, **made, _PLACE: (index, 0)}]
    return [_part_outline(part, (index, number)) for number, part in enumerate(message.parts)]


def _part_outline(part: Any, place: tuple[int, int]) -> dict[str, Any]:
    if part.part_kind in _RESULTS and part.tool_name:
        text = part.model_response_str() if hasattr(part, "model_response_str") else part.model_response()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text, _PLACE: place}
    return {"role": "system" if part.part_kind == "system-prompt" else "user", "content": " ", _PLACE: place}


def _request_part(outline: dict[str, Any], messages: Sequence[ModelMessage], index: int, part: int) -> Any:
    """The part of an outline: the one it was made of, one with another id, or one that repair added."""
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    original: Any = messages[index].parts[part] if index >= 0 else None
    if outline["role"] != "tool":
        if original is not None and original.part_kind not in _RESULTS:
            return original
        blocks = outline["content"]
        return UserPromptPart(blocks if isinstance(blocks, str) else "\n".join(block["text"] for block in blocks))
    if original is None:
        name = _tool_name(messages, outline["tool_call_id"])
        return ToolReturnPart(name, outline["content"], outline["tool_call_id"], outcome="interrupted")
    if original.tool_call_id == outline["tool_call_id"]:
        return original
    return replace(original, tool_call_id=outline["tool_call_id"])


def _tool_name(messages: Sequence[ModelMessage], call_id: str) -> str:
    calls = (part for message in messages for part in message.parts if part.part_kind in _CALLS)
    return next((call.tool_name for call in calls if call_id.startswith(call.tool_call_id)), "unknown")


def _response(message: ModelMessage, outline: dict[str, Any]) -> ModelResponse:
    """The response with the ids that its calls have now; the same one if none changed."""
    ids = [call["id"] for call in outline.get("tool_calls", ())]
    parts: list[Any] = []
    for part in message.parts:
        name = ids.pop(0) if part.part_kind in _CALLS and ids else None
        parts.append(part if name in (None, getattr(part, "tool_call_id", None)) else replace(part, tool_call_id=name))
    is_same = all(one is other for one, other in zip(parts, message.parts, strict=True))
    return message if is_same else replace(message, parts=parts)


def _requests(pending: list[tuple[Any, int]], messages: Sequence[ModelMessage]) -> list[ModelRequest]:
    """The parts as requests: a request that is whole stays itself, and what was added belongs to the one beside it."""
    from pydantic_ai.messages import ModelRequest

    groups: list[tuple[int, list[Any]]] = []
    for part, index in pending:
        if groups and (index in (-1, groups[-1][0]) or groups[-1][0] == -1):
            before, parts = groups[-1]
            groups[-1] = (max(before, index), [*parts, part])
        else:
            groups.append((index, [part]))
    requests: list[ModelRequest] = []
    for index, parts in groups:
        original: Any = messages[index] if index >= 0 else None
        if original is None:
            requests.append(ModelRequest(parts=parts))
        elif len(parts) == len(original.parts) and all(map(lambda a, b: a is b, parts, original.parts)):
            requests.append(original)
        else:
            requests.append(replace(original, parts=parts))
    return requests
