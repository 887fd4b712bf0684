"""`to_langchain` and `from_langchain`: a history as LangChain messages, and back.

One entry is one message; results are one message per call. Messages show what LangChain's types can express. What they cannot
(signatures, one provider's blocks, the exact text of arguments, the position of a call among the text) is reported as a loss,
and the entry itself travels in the `additional_kwargs` of its first message, so that `from_langchain` restores it exactly. If
the messages were edited on the way, the messages count. Fields of a foreign message that entries do not have (id, name,
provider extras) are kept in the entry's metadata and put back. Sequence numbers, times and other metadata are not carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.context import render_live_context
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ContextEntry,
    ContextEntryRole,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.history.entries import KnownEntry
from antiphon.integrations.langchain_blocks import LANGCHAIN, from_block, to_block
from antiphon.parts import (
    Part,
    Text,
    TokenUsage,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
    text_of,
)
from antiphon.wire.loss import Loss

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

ENTRY_KEY = "antiphon"
"""The key of `additional_kwargs` and `response_metadata` with what a message cannot show of an entry."""

_CALL_BLOCKS = frozenset({"tool_call", "tool_call_chunk", "invalid_tool_call", "tool_use", "function_call"})
_STANDARD_BLOCKS = _CALL_BLOCKS | {"text", "reasoning", "refusal", "text-plain", "non_standard"}
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class LangChainMessages(list["BaseMessage"]):
    """Messages, with the `losses` of the conversion."""

    losses: tuple[Loss, ...] = ()


class LangChainEntries(list[HistoryEntry]):
    """Entries, with the `losses` of the conversion."""

    losses: tuple[Loss, ...] = ()


def to_langchain(
    history: AgentHistory | AgentHistorySnapshot | Iterable[HistoryEntry | ContextEntry],
) -> LangChainMessages:
    """The messages of a history as a model would see it now, or of the given entries."""
    losses: list[Loss] = []
    if isinstance(history, AgentHistory):
        history = history.snapshot()
    if isinstance(history, AgentHistorySnapshot):
        context = render_live_context(history)
        losses += (Loss(f"entries {left.sequence_numbers}", "entries", left.why) for left in context.left_out)
        history = context
    messages = LangChainMessages()
    previous: HistoryEntry | ContextEntry | None = None
    for index, entry in enumerate(history):
        written = to_messages(entry, f"entries[{index}]", losses)
        if written and isinstance(entry, HistoryEntry) and not _round_trips(entry, written, previous, not messages):
            carried = {
                "entry": msgspec.json.decode(msgspec.json.encode(without_metadata(entry))),
                "messages": len(written),
            }
            written[0].additional_kwargs = {**written[0].additional_kwargs, ENTRY_KEY: carried}
        messages += written
        previous = entry if written else previous
    messages.losses = tuple(losses)
    return messages


def from_langchain(messages: Iterable[BaseMessage]) -> LangChainEntries:
    """The entries of messages, ready to append to a history."""
    given = list(messages)
    entries, losses = LangChainEntries(), list[Loss]()
    at = 0
    while at < len(given):
        path = f"messages[{at}]"
        carried, length = _carried_entry(given[at:])
        if carried is not None:
            entries.append(carried)
            at += length
        elif given[at].type == "tool":
            end = next((end for end in range(at + 1, len(given)) if not _is_plain_result(given[end])), len(given))
            entries.append(to_results(given[at:end], path, losses, _tool_names(entries)))  # type: ignore[arg-type]
            at = end
        else:
            entry = to_entry(given[at], not entries, path, losses)
            if entry is not None:
                entries.append(entry)
            at += 1
    entries.losses = tuple(losses)
    return entries


def without_metadata(entry: HistoryEntry) -> HistoryEntry:
    """An entry without its sequence number, time and metadata."""
    return msgspec.structs.replace(entry, sequence_number=0, timestamp=None, metadata=None)


def _round_trips(entry: HistoryEntry, written: list[Any], previous: Any, is_first: bool) -> bool:
    """Whether the messages read back give the entry."""
    if isinstance(entry, ToolCallResultsEntry):
        # Results after results would be read as one entry.
        return not isinstance(previous, ToolCallResultsEntry) and (
            without_metadata(to_results(written, "", [])) == without_metadata(entry)
        )
    if isinstance(entry, ModelInputEntry | SetSystemInstructionEntry) and written[0].type == "system" and not is_first:
        return isinstance(entry, ModelInputEntry) and to_entry(written[0], False, "", []) == without_metadata(entry)
    read = to_entry(written[0], is_first, "", [])
    return read is not None and without_metadata(read) == without_metadata(entry)


def _carried_entry(messages: Sequence[BaseMessage]) -> tuple[HistoryEntry | None, int]:
    """The entry a message carries, if the messages still show it; and the number of its messages."""
    carried = messages[0].additional_kwargs.get(ENTRY_KEY)
    if not isinstance(carried, dict):
        return None, 0
    try:
        entry: HistoryEntry = msgspec.convert(carried["entry"], KnownEntry)
        length = int(carried["messages"])
    except (msgspec.ValidationError, KeyError, TypeError, ValueError):
        return None, 0
    shown = [_shown(message) for message in to_messages(entry, "", [])]
    return (entry, length) if shown == [_shown(message) for message in messages[:length]] else (None, 0)


def _shown(message: BaseMessage) -> Any:
    """What a message shows, without ids, names and extras."""
    fields = ("type", "content", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
    return {name: getattr(message, name, None) for name in fields}


def _is_plain_result(message: BaseMessage) -> bool:
    """Whether a message belongs to the results before it."""
    return message.type == "tool" and ENTRY_KEY not in message.additional_kwargs


def _tool_names(entries: Sequence[HistoryEntry]) -> dict[str, str]:
    """The tools the last output calls, by call id."""
    output = next((entry for entry in reversed(entries) if isinstance(entry, ModelOutputEntry)), None)
    return {call.tool_call_id: call.tool_name for call in output.tool_calls} if output is not None else {}


# Entries to messages.


def to_messages(entry: HistoryEntry | ContextEntry, path: str, losses: list[Loss]) -> list[BaseMessage]:
    """The messages of an entry; none for an entry that no model sees."""
    from langchain_core.messages import HumanMessage, SystemMessage

    if isinstance(entry, ModelOutputEntry):
        return [_to_ai_message(entry, path, losses)]
    if isinstance(entry, ToolCallResultsEntry):
        return _to_tool_messages(entry, path, losses)
    if isinstance(entry, SetSystemInstructionEntry):
        return [SystemMessage(entry.text, **_restored_fields(entry.metadata))]
    if isinstance(entry, ModelInputEntry):
        fields = _restored_fields(entry.metadata)
        content = _to_content(entry.content, path, losses)
        if entry.channel == "developer":
            fields["additional_kwargs"] = {**fields.get("additional_kwargs", {}), "__openai_role__": "developer"}
        if entry.channel in ("system", "developer"):
            return [SystemMessage(content, **fields)]
        return [HumanMessage(content, **fields)]
    if isinstance(entry, HistoryEntry):
        losses.append(Loss(path, f"a {entry.kind} entry", "no model sees it, and messages cannot express it"))
        return []
    message = SystemMessage if entry.role is ContextEntryRole.SYSTEM else HumanMessage
    screen = (Text(entry.live_screen),) if entry.live_screen else ()
    return [message(_to_content((*entry.content, *screen), path, losses))]


def _to_ai_message(entry: ModelOutputEntry, path: str, losses: list[Loss]) -> AIMessage:
    from langchain_core.messages import AIMessage

    content = [part for part in entry.content if not isinstance(part, ToolCallRequest)]
    calls, invalid = [], []
    for call in entry.tool_calls:
        if call.native:
            losses.append(Loss(f"{path}.tool_calls", f"extras of {call.tool_call_id}", "a call has no field for them"))
        try:
            arguments = call.arguments_object()
            calls.append({"name": call.tool_name, "args": arguments, "id": call.tool_call_id})
        except ValueError as error:
            invalid.append(
                {"name": call.tool_name, "args": call.arguments, "id": call.tool_call_id, "error": str(error)}
            )
    fields = _restored_fields(entry.metadata)
    response = dict(fields.pop("response_metadata", {}))
    if entry.stop_reason:
        response["stop_reason"] = entry.stop_reason
    if entry.origin is not None:
        response |= {"model_name": entry.origin.model, ENTRY_KEY: msgspec.to_builtins(entry.origin)}
    return AIMessage(
        _to_content(content, path, losses),
        tool_calls=calls,
        invalid_tool_calls=invalid,
        response_metadata=response,
        usage_metadata=_to_usage(entry.metadata.usage) if entry.metadata and entry.metadata.usage else None,
        **fields,
    )


def _to_tool_messages(entry: ToolCallResultsEntry, path: str, losses: list[Loss]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for index, result in enumerate(entry.results):
        is_last = index == len(entry.results) - 1
        overall = (Text(entry.overall_result),) if entry.overall_result and is_last else ()
        fields = _restored_fields(entry.metadata, str(index))
        messages.append(_to_tool_message(result, overall, f"{path}.results[{index}]", losses, fields))
    if not messages:
        losses.append(Loss(path, "results without calls", "a tool message answers a call"))
    return messages


def _to_tool_message(
    result: ToolCallResult, overall: Sequence[Part], path: str, losses: list[Loss], fields: dict[str, Any]
) -> ToolMessage:
    from langchain_core.messages import ToolMessage

    if result.native:
        losses.append(Loss(path, f"extras of {', '.join(result.native)}", "a tool message has no field for them"))
    if result.status is ToolExecutionStatus.SKIPPED:
        losses.append(Loss(path, "status skipped", "a tool message succeeds or fails; sent as an error"))
    return ToolMessage(
        _to_content((*result.content, *overall), path, losses),
        tool_call_id=result.tool_call_id,
        status="success" if result.status is ToolExecutionStatus.SUCCESS else "error",
        **{"name": result.tool_name, **fields},
    )


def _to_content(parts: Sequence[Part], path: str, losses: list[Loss]) -> Any:
    """The content of a message: a string if it is one text, else blocks."""
    blocks = [to_block(part, f"{path}.content[{index}]", losses) for index, part in enumerate(parts)]
    if not blocks:
        return ""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def _restored_fields(metadata: EntryMetadata | None, index: str = "0") -> dict[str, Any]:
    """The fields of the LangChain message this entry was made from."""
    extra = (metadata.extra or {}).get(LANGCHAIN) if metadata is not None else None
    fields = extra.get(index) if isinstance(extra, Mapping) else None
    return dict(fields) if isinstance(fields, Mapping) else {}


def _to_usage(usage: TokenUsage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total,
    }
    if usage.cached_tokens or usage.cache_write_tokens:
        counts["input_token_details"] = {"cache_read": usage.cached_tokens, "cache_creation": usage.cache_write_tokens}
    if usage.reasoning_tokens:
        counts["output_token_details"] = {"reasoning": usage.reasoning_tokens}
    return counts


# Messages to entries.


def to_entry(message: BaseMessage, is_first: bool, path: str, losses: list[Loss]) -> HistoryEntry | None:
    """The entry of a message that is not a tool's (see `to_results`); None if there is no entry for it.

    A system message at the very start is the system instruction; a later one is an input of the operator.
    """
    if message.type == "ai" or message.type == "AIMessageChunk":
        return _to_output(message, path, losses)  # type: ignore[arg-type]
    role = getattr(message, "role", message.type)  # a ChatMessage names its role
    metadata = _to_metadata([_extra_fields(message, path, losses)])
    if role == "assistant":
        return ModelOutputEntry(tuple(_from_content(message)), metadata=metadata)
    if role in ("system", "developer"):
        is_developer = role == "developer" or message.additional_kwargs.get("__openai_role__") == "developer"
        parts = tuple(_from_content(message))
        if is_first and not is_developer and all(isinstance(part, Text) and not part.native for part in parts):
            return SetSystemInstructionEntry(text_of(parts), metadata=metadata)
        return ModelInputEntry(parts, "developer" if is_developer else "system", metadata=metadata)
    if role in ("human", "user"):
        return ModelInputEntry(tuple(_from_content(message)), metadata=metadata)
    why = {"remove": "it is an instruction for a reducer, without content"}.get(
        role, "its role is not user, assistant, system or tool"
    )
    losses.append(Loss(path, f"a message of type {role}", why))
    return None


def to_results(
    messages: Sequence[ToolMessage], path: str, losses: list[Loss], names: Mapping[str, str] = _NO_NAMES
) -> ToolCallResultsEntry:
    """Consecutive tool messages as one entry. `names` are the tools by call id, for messages without a name."""
    results = tuple(
        ToolCallResult(
            message.name or names.get(message.tool_call_id, ""),
            message.tool_call_id,
            ToolExecutionStatus.FAILED if message.status == "error" else ToolExecutionStatus.SUCCESS,
            tuple(_from_content(message)),
        )
        for message in messages
    )
    fields = [_extra_fields(message, f"{path}[{index}]", losses) for index, message in enumerate(messages)]
    for index, message in enumerate(messages):
        if message.artifact is not None:
            losses.append(Loss(f"{path}[{index}].artifact", "an artifact", "it is not for the model"))
    return ToolCallResultsEntry(results, metadata=_to_metadata(fields))


def _to_output(message: AIMessage, path: str, losses: list[Loss]) -> ModelOutputEntry:
    provider = str(message.response_metadata.get("model_provider", ""))
    calls = [*map(_to_call, message.tool_calls), *map(_invalid_call, message.invalid_tool_calls)]
    parts: list[Any] = []
    for block in message_blocks(message):
        call_id = str(block.get("id") or "")
        if block.get("type") not in _CALL_BLOCKS:
            parts.append(from_block(block, provider))
        elif (call := next((call for call in calls if call.tool_call_id == call_id), None)) is not None:
            calls.remove(call)
            parts.append(call)
        elif not any(isinstance(part, ToolCallRequest) and part.tool_call_id == block.get("id") for part in parts):
            parts.append(_to_call(block) if block.get("name") else from_block(block, provider))
    parts += calls
    if "function_call" in message.additional_kwargs and not any(isinstance(part, ToolCallRequest) for part in parts):
        losses.append(Loss(f"{path}.additional_kwargs.function_call", "a function call", "it has no id"))
    response = dict(message.response_metadata)
    stop = str(response.pop("stop_reason", "") or response.get("finish_reason") or "")
    fields = _extra_fields(message, path, losses)
    origin = _to_origin(response, provider)
    if response:
        fields |= _json_values({"response_metadata": response}, path, losses)
    metadata = _to_metadata([fields], read_usage(message.usage_metadata))
    return ModelOutputEntry(tuple(parts), stop, origin, metadata=metadata)


def _to_origin(response: dict[str, Any], provider: str) -> Origin | None:
    """The model that answered. Removes from `response` the fields that `to_langchain` wrote."""
    model = str(response.get("model_name") or response.get("model") or "")
    ours = response.pop(ENTRY_KEY, None)
    if isinstance(ours, dict):
        response.pop("model_name", None)
        return msgspec.convert(ours, Origin)
    return Origin(provider, "", model) if provider or model else None


def _to_call(call: Mapping[str, Any]) -> ToolCallRequest:
    arguments = call.get("args", call.get("input", {}))
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCallRequest(str(call["name"]), str(call.get("id") or ""), text)


def _invalid_call(call: Mapping[str, Any]) -> ToolCallRequest:
    return ToolCallRequest(str(call.get("name") or ""), str(call.get("id") or ""), str(call.get("args") or ""))


def _from_content(message: BaseMessage) -> Iterable[Any]:
    provider = str(message.response_metadata.get("model_provider", ""))
    return (from_block(block, provider) for block in message_blocks(message))


def message_blocks(message: BaseMessage) -> list[dict[str, Any]]:
    """The content as LangChain's standard blocks, whichever provider's blocks it was written in."""
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    if all(isinstance(block, dict) and block.get("type") in _STANDARD_BLOCKS for block in message.content):
        return list(message.content)  # type: ignore[arg-type]
    return [dict(block) for block in message.content_blocks]


def _extra_fields(message: BaseMessage, path: str, losses: list[Loss]) -> dict[str, Any]:
    """The fields of a message that an entry does not have."""
    kwargs = {
        name: value for name, value in message.additional_kwargs.items() if name not in (ENTRY_KEY, "__openai_role__")
    }
    if message.type == "ai":  # a second copy of the calls, as OpenAI wrote them
        kwargs.pop("tool_calls", None)
    fields = {"id": message.id, "name": message.name if message.type != "tool" else None, "additional_kwargs": kwargs}
    return _json_values({name: value for name, value in fields.items() if value}, path, losses)


def _json_values(values: dict[str, Any], path: str, losses: list[Loss]) -> dict[str, Any]:
    """The `values` that can be JSON; the others are losses."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        try:
            kept[name] = msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError) as error:
            losses.append(Loss(f"{path}.{name}", name, f"not JSON: {error}"))
    return kept


def _to_metadata(fields: Sequence[dict[str, Any]], usage: TokenUsage | None = None) -> EntryMetadata | None:
    extra = {LANGCHAIN: {str(index): one for index, one in enumerate(fields) if one}} if any(fields) else None
    return EntryMetadata(usage=usage, extra=extra) if extra or usage else None


def read_usage(usage: Any) -> TokenUsage | None:
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
