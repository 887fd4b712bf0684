"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.parts import Native, Part
from antiphon.wire.rules import name_set
from antiphon.wire.spec import FormatSignature, FormatSpec, MediaBlocks, SequenceRule, ServerCompaction

FORMAT = "anthropic"


def _continues_thread(thread: Any) -> bool:
    return isinstance(thread, dict) and thread.get("type") == "continue"


def _is_local_detail(name: str, value: Any) -> bool:
    """The model itself made a call."""
    return name == "caller" and bool(value == {"type": "direct"})


def _media_type(block: Mapping[str, Any]) -> str:
    source = block.get("source")
    media_type = source.get("media_type") if isinstance(source, dict) else None
    return media_type.partition(";")[0].lower() if isinstance(media_type, str) else ""


def _read_pasted(block: Mapping[str, Any]) -> Part | None:
    from antiphon.wire.anthropic.content import read_value

    part = read_value(block)
    return None if isinstance(part, Native) else part


def _compaction(tokens: int) -> dict[str, object]:
    trigger = {"type": "input_tokens", "value": tokens}
    return {"edits": [{"type": "compact_20260112", "trigger": trigger}]}


SPEC = FormatSpec(
    messages_key="messages",
    sequence_rule=SequenceRule(merges_assistant_turns=True, unique_ids=True),
    required=frozenset({"max_tokens"}),
    options=frozenset({"version", "dialect"}),
    server_state={"thread": _continues_thread},
    is_local_detail=_is_local_detail,
    has_native_text=True,
    media_blocks=MediaBlocks(kinds={"image": "image", "document": "document"}, type_of=_media_type),
    pasted_types=name_set("tool_use tool_result image thinking"),
    read_pasted=_read_pasted,
    reads_pasted=True,
    calls_need_tools=True,
    tool_parameters=frozenset({"mcp_servers"}),
    marked_messages=2,  # beside the tools and the system prompt: four in all (AN-18)
    compaction=ServerCompaction(_compaction, least_tokens=50_000, beta="compact-2026-01-12"),
    signature=FormatSignature(
        body_keys=name_set("system anthropic_version stop_sequences"),
        tool_keys=name_set("input_schema"),
        block_types=name_set("tool_use tool_result thinking redacted_thinking document image"),
    ),
)
