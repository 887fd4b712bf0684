"""An entry as LangChain messages: what they show to whoever reads them as messages.

One entry is one message, but for results: each call's is a message of its own. What was on a message when it came from
LangChain (its id, its name, whatever else hung on it) is put back on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.graph.content_blocks import CARRIED, LANGCHAIN, block_of
from antiphon.history import (
    ContextEntry,
    ContextEntryRole,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SetSystemInstructionEntry,
    TokenUsage,
    ToolCallResultsEntry,
)
from antiphon.parts import Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.loss import Loss

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


def messages_of(entry: HistoryEntry | ContextEntry, path: str, losses: list[Loss]) -> list[BaseMessage]:
    """The messages that say what `entry` says; none for what no model sees."""
    from langchain_core.messages import HumanMessage, SystemMessage

    if isinstance(entry, ModelOutputEntry):
        return [_assistant(entry, path, losses)]
    if isinstance(entry, ToolCallResultsEntry):
        return _results(entry, path, losses)
    if isinstance(entry, SetSystemInstructionEntry):
        return [SystemMessage(entry.text, **_kept(entry.metadata))]
    if isinstance(entry, ModelInputEntry):
        kept = _kept(entry.metadata)
        content = _content(entry.content, path, losses)
        if entry.channel == "developer":
            kept["additional_kwargs"] = {**kept.get("additional_kwargs", {}), "__openai_role__": "developer"}
        if entry.channel in ("system", "developer"):
            return [SystemMessage(content, **kept)]
        return [HumanMessage(content, **kept)]
    if isinstance(entry, HistoryEntry):
        losses.append(Loss(path, f"a {entry.kind} entry", "no model sees it, and messages have no place for it"))
        return []
    message = SystemMessage if entry.role is ContextEntryRole.SYSTEM else HumanMessage
    screen = (Text(entry.live_screen),) if entry.live_screen else ()
    return [message(_content((*entry.content, *screen), path, losses))]


def _assistant(entry: ModelOutputEntry, path: str, losses: list[Loss]) -> AIMessage:
    from langchain_core.messages import AIMessage

    said = [part for part in entry.content if not isinstance(part, ToolCallRequest)]
    calls, unreadable = [], []
    for call in entry.tool_calls:
        if call.native:
            losses.append(Loss(f"{path}.tool_calls", f"extras of {call.tool_call_id}", "a call has no place for them"))
        try:
            arguments = {"input": call.arguments} if call.freeform else call.parse_arguments()
            calls.append({"name": call.tool_name, "args": arguments, "id": call.tool_call_id})
        except ValueError as error:
            unreadable.append(
                {"name": call.tool_name, "args": call.arguments, "id": call.tool_call_id, "error": str(error)}
            )
    kept = _kept(entry.metadata)
    response = dict(kept.pop("response_metadata", {}))
    if entry.stop_reason:
        response["stop_reason"] = entry.stop_reason
    if entry.origin is not None:
        response |= {"model_name": entry.origin.model, CARRIED: msgspec.to_builtins(entry.origin)}
    return AIMessage(
        _content(said, path, losses),
        tool_calls=calls,
        invalid_tool_calls=unreadable,
        response_metadata=response,
        usage_metadata=_usage(entry.metadata.usage) if entry.metadata and entry.metadata.usage else None,
        **kept,
    )


def _results(entry: ToolCallResultsEntry, path: str, losses: list[Loss]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for index, result in enumerate(entry.results):
        is_last = index == len(entry.results) - 1
        more = (Text(entry.overall_result),) if entry.overall_result and is_last else ()
        messages.append(_result(result, more, f"{path}.results[{index}]", losses, _kept(entry.metadata, str(index))))
    if not messages:
        losses.append(Loss(path, "results of no call", "a tool message answers a call"))
    return messages


def _result(
    result: ToolCallResult, more: Sequence[Part], path: str, losses: list[Loss], kept: dict[str, Any]
) -> ToolMessage:
    from langchain_core.messages import ToolMessage

    if result.native:
        losses.append(Loss(path, f"extras of {', '.join(result.native)}", "a tool message has no place for them"))
    if result.status is ToolExecutionStatus.SKIPPED:
        losses.append(Loss(path, "status skipped", "a tool message succeeds or fails; told as an error"))
    return ToolMessage(
        _content((*result.content, *more), path, losses),
        tool_call_id=result.tool_call_id,
        status="success" if result.status is ToolExecutionStatus.SUCCESS else "error",
        **{"name": result.tool_name, **kept},
    )


def _content(parts: Sequence[Part], path: str, losses: list[Loss]) -> Any:
    """The content of a message: a plain string where it is one text, else blocks."""
    blocks = [block_of(part, f"{path}.content[{index}]", losses) for index, part in enumerate(parts)]
    if not blocks:
        return ""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def _kept(metadata: EntryMetadata | None, index: str = "0") -> dict[str, Any]:
    """What hung on a message that came from LangChain."""
    extra = (metadata.extra or {}).get(LANGCHAIN) if metadata is not None else None
    kept = extra.get(index) if isinstance(extra, Mapping) else None
    return dict(kept) if isinstance(kept, Mapping) else {}


def _usage(usage: TokenUsage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total,
    }
    if usage.cached_tokens or usage.cache_write_tokens:
        told["input_token_details"] = {"cache_read": usage.cached_tokens, "cache_creation": usage.cache_write_tokens}
    if usage.reasoning_tokens:
        told["output_token_details"] = {"reasoning": usage.reasoning_tokens}
    return told
