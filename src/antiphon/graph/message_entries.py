"""LangChain messages as entries: what is read of messages that somebody else wrote.

Messages of tools that follow each other are one entry, as they are in the log. A system message at the very beginning is the
system instruction; a later one is an operator's input. What hangs on a message beyond what it says (id, name, what providers
added) is kept with the entry, as far as JSON can say it, and goes back onto the message when the entry becomes one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.graph.content_blocks import CARRIED, LANGCHAIN, part_of
from antiphon.history import (
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetSystemInstructionEntry,
    TokenUsage,
    ToolCallResultsEntry,
)
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of
from antiphon.wire.loss import Loss

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

_CALLS = frozenset({"tool_call", "tool_call_chunk", "invalid_tool_call", "tool_use", "function_call"})


def entry_of(message: BaseMessage, is_first: bool, path: str, losses: list[Loss]) -> HistoryEntry | None:
    """The entry a message becomes; None for what is no message. Those of tools are for `results_of`."""
    if message.type == "ai" or message.type == "AIMessageChunk":
        return _output(message, path, losses)  # type: ignore[arg-type]
    role = getattr(message, "role", message.type)  # a ChatMessage says who speaks in a word
    metadata = _metadata([_hung(message, path, losses)])
    if role == "assistant":
        return ModelOutputEntry(tuple(_parts(message)), metadata=metadata)
    if role in ("system", "developer"):
        is_developer = role == "developer" or message.additional_kwargs.get("__openai_role__") == "developer"
        parts = tuple(_parts(message))
        if is_first and not is_developer and all(isinstance(part, Text) and not part.native for part in parts):
            return SetSystemInstructionEntry(text_of(parts), metadata=metadata)
        return ModelInputEntry(parts, "developer" if is_developer else "system", metadata=metadata)
    if role in ("human", "user"):
        return ModelInputEntry(tuple(_parts(message)), metadata=metadata)
    why = {"remove": "it tells a reducer what to do, and says nothing"}.get(
        role, "it is neither a person's, a model's, a system's nor the result of a call with an id"
    )
    losses.append(Loss(path, f"a message of type {role}", why))
    return None


def results_of(
    messages: Sequence[ToolMessage], path: str, losses: list[Loss], names: Mapping[str, str] = MappingProxyType({})
) -> ToolCallResultsEntry:
    """Messages of tools that follow each other, as the one entry they are. `names` are those of the tools, by their calls."""
    results = tuple(
        ToolCallResult(
            message.name or names.get(message.tool_call_id, ""),
            message.tool_call_id,
            ToolExecutionStatus.FAILED if message.status == "error" else ToolExecutionStatus.SUCCESS,
            tuple(_parts(message)),
        )
        for message in messages
    )
    hung = [_hung(message, f"{path}[{index}]", losses) for index, message in enumerate(messages)]
    for index, message in enumerate(messages):
        if message.artifact is not None:
            losses.append(
                Loss(f"{path}[{index}].artifact", "an artifact", "it is not for the model, and may be anything")
            )
    return ToolCallResultsEntry(results, metadata=_metadata(hung))


def _output(message: AIMessage, path: str, losses: list[Loss]) -> ModelOutputEntry:
    provider = str(message.response_metadata.get("model_provider", ""))
    calls = [*map(_call, message.tool_calls), *map(_unreadable, message.invalid_tool_calls)]
    parts: list[Any] = []
    for block in _blocks(message):
        if block.get("type") not in _CALLS:
            parts.append(part_of(block, provider))
        elif (call := _named(calls, str(block.get("id") or ""))) is not None:
            calls.remove(call)
            parts.append(call)
        elif not any(isinstance(part, ToolCallRequest) and part.tool_call_id == block.get("id") for part in parts):
            parts.append(_call(block) if block.get("name") else part_of(block, provider))
    parts += calls
    if "function_call" in message.additional_kwargs and not any(isinstance(part, ToolCallRequest) for part in parts):
        losses.append(Loss(f"{path}.additional_kwargs.function_call", "a function call", "it has no id to answer to"))
    response = dict(message.response_metadata)
    stop = str(response.pop("stop_reason", "") or response.get("finish_reason") or "")
    hung = _hung(message, path, losses)
    origin = _origin(response, provider)
    if response:
        hung |= _json({"response_metadata": response}, path, losses)
    return ModelOutputEntry(tuple(parts), stop, origin, metadata=_metadata([hung], _usage(message.usage_metadata)))


def _origin(response: dict[str, Any], provider: str) -> Origin | None:
    """Who answered; taken out of what the message says about its answer, where it was us who wrote that."""
    model = str(response.get("model_name") or response.get("model") or "")
    ours = response.pop(CARRIED, None)
    if isinstance(ours, dict):
        response.pop("model_name", None)
        return msgspec.convert(ours, Origin)
    return Origin(provider, "", model) if provider or model else None


def _named(calls: Iterable[ToolCallRequest], name: str) -> ToolCallRequest | None:
    return next((call for call in calls if call.tool_call_id == name), None)


def _call(call: Mapping[str, Any]) -> ToolCallRequest:
    arguments = call.get("args", call.get("input", {}))
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCallRequest(str(call["name"]), str(call.get("id") or ""), text)


def _unreadable(call: Mapping[str, Any]) -> ToolCallRequest:
    return ToolCallRequest(str(call.get("name") or ""), str(call.get("id") or ""), str(call.get("args") or ""))


def _parts(message: BaseMessage) -> Iterable[Any]:
    provider = str(message.response_metadata.get("model_provider", ""))
    return (part_of(block, provider) for block in _blocks(message))


def _blocks(message: BaseMessage) -> list[dict[str, Any]]:
    """The content in LangChain's standard blocks, whatever provider's blocks it was written in."""
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    ours = {"text", "reasoning", "refusal", "text-plain", "non_standard"} | _CALLS
    if all(isinstance(block, dict) and block.get("type") in ours for block in message.content):
        return list(message.content)  # type: ignore[arg-type]
    return [dict(block) for block in message.content_blocks]


def _hung(message: BaseMessage, path: str, losses: list[Loss]) -> dict[str, Any]:
    """What hangs on a message beside what it says."""
    kwargs = {
        name: value for name, value in message.additional_kwargs.items() if name not in (CARRIED, "__openai_role__")
    }
    if message.type == "ai":  # the calls once more, as OpenAI wrote them
        kwargs.pop("tool_calls", None)
    hung = {"id": message.id, "name": message.name if message.type != "tool" else None, "additional_kwargs": kwargs}
    return _json({name: value for name, value in hung.items() if value}, path, losses)


def _json(values: dict[str, Any], path: str, losses: list[Loss]) -> dict[str, Any]:
    """What of `values` JSON can say; the rest is a loss."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        try:
            kept[name] = msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError) as error:
            losses.append(Loss(f"{path}.{name}", name, f"JSON cannot say it: {error}"))
    return kept


def _metadata(hung: Sequence[dict[str, Any]], usage: TokenUsage | None = None) -> EntryMetadata | None:
    extra = {LANGCHAIN: {str(index): one for index, one in enumerate(hung) if one}} if any(hung) else None
    return EntryMetadata(usage=usage, extra=extra) if extra or usage else None


def _usage(usage: Any) -> TokenUsage | None:
    if not usage:
        return None
    read, written = usage.get("input_token_details") or {}, usage.get("output_token_details") or {}
    return TokenUsage(
        usage.get("input_tokens", 0),
        usage.get("output_tokens", 0),
        read.get("cache_read") or 0,
        read.get("cache_creation") or 0,
        written.get("reasoning") or 0,
        usage.get("total_tokens", 0),
    )
