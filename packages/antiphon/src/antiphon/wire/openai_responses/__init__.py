"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.parts import Text
from antiphon.wire.media import parse_data_url
from antiphon.wire.rules import name_set
from antiphon.wire.spec import FormatSpec, MediaBlocks, SequenceRule, ServerCompaction

FORMAT = "openai-responses"


def _is_local_detail(name: str, value: Any) -> bool:
    """The id of an item, by which only its own server finds it again, that it is complete, and a summary in one piece, whose text
    is the thought."""
    if name == "item":
        return isinstance(value, dict) and all(_is_local_detail(*field) for field in value.items())
    if name == "summary":
        return (
            type(value) is list and len(value) == 1 and type(value[0]) is dict and value[0].keys() <= {"type", "text"}
        )
    return value == "completed" if name == "status" else name == "id" and isinstance(value, str)


def _media_type(block: Mapping[str, Any]) -> str:
    data = block.get("file_data")
    parsed = parse_data_url(data) if isinstance(data, str) else None
    return parsed.media_type.lower() if parsed else ""


def _read_pasted(block: Mapping[str, Any]) -> Text | None:
    text = block.get("text")
    return Text(text) if isinstance(text, str) else None


SPEC = FormatSpec(
    messages_key="input",
    required=frozenset({"input"}),
    sequence_rule=SequenceRule(
        results_follow_calls=False, stored_items=("item_reference", "compaction"), origin=FORMAT
    ),
    server_state={"previous_response_id": bool, "conversation": bool, "prompt": bool},
    is_local_detail=_is_local_detail,
    has_native_text=True,
    media_blocks=MediaBlocks(
        kinds={"input_image": "image", "input_file": "document", "input_audio": "audio"},
        containers=("content", "output"),
        type_of=_media_type,
    ),
    pasted_types=name_set("input_text output_text"),
    read_pasted=_read_pasted,
    reads_pasted=True,
    has_tool_namespaces=True,
    has_freeform_tools=True,
    repeats_settings=True,
    compaction=ServerCompaction(
        lambda tokens: [{"type": "compaction", "compact_threshold": tokens}], least_tokens=1_000
    ),
)
