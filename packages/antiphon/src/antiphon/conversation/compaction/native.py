"""A compaction that the provider made itself: Anthropic's `compaction` block, the `compaction` item of the Responses API.

It is part of an answer and replaces everything before it. The log keeps it in the answer, and a `CompactionEntry` says what it
replaces: so what is shown and counted is right, other models get its text (or, if it is encrypted, the originals), and what it
cost is in the usage: providers report it beside the tokens of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.context.model_usage import ModelCallUsage, with_model_calls
from antiphon.conversation.compaction.auto import protected_entries
from antiphon.history import CompactionEntry, EntryMetadata, ModelOutputEntry, Origin
from antiphon.parts import Native, TokenUsage
from antiphon.wire import formats

if TYPE_CHECKING:
    from antiphon.conversation.conversation import Conversation


def record_compaction(chat: Conversation, output: ModelOutputEntry) -> None:
    """Append the entry for the compaction in an answer, if it has one."""
    block = find_compaction(output)
    if block is not None:
        chat.history.append(compaction_by_provider(chat, output, block))


def find_compaction(output: ModelOutputEntry) -> Native | None:
    """The last block of an answer that replaces everything before it. One without content is a compaction that failed."""
    for part in reversed(output.content):
        data = part.data if type(part) is Native else None
        if not isinstance(data, dict) or data.get("type") != "compaction":
            continue
        if data.get("content") or data.get("encrypted_content"):
            return part  # type: ignore[return-value]
    return None


def compaction_by_provider(chat: Conversation, output: ModelOutputEntry, block: Native) -> CompactionEntry:
    """The entry for a block. What is never compacted here follows it."""
    up_to = output.sequence_number - 1
    kept = tuple(sorted(number for number in protected_entries(chat) if number <= up_to))
    origin = output.origin or Origin()
    metadata = EntryMetadata(source=origin.name)
    if (usage := _usage_of(output)) is not None:
        metadata = with_model_calls(metadata, [ModelCallUsage(origin, usage)])
    return CompactionEntry(_text_of(block.data.get("content")), up_to, 0, kept, block, metadata=metadata)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [one.get("text", "") for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _usage_of(output: ModelOutputEntry) -> TokenUsage | None:
    """What the compaction used, where the provider lists it beside the tokens of the answer (`usage.iterations`)."""
    usage = output.metadata.usage if output.metadata is not None else None
    raw = usage.raw if usage is not None else None
    listed = raw.get("iterations") if isinstance(raw, dict) else None
    if usage is None or not isinstance(listed, list) or usage.format not in formats:
        return None
    read = formats[usage.format].read_usage
    found = [read(one) for one in listed if isinstance(one, dict) and one.get("type") == "compaction"]
    total: TokenUsage | None = None
    for one in found:
        total = one if total is None or one is None else total + one
    return total
