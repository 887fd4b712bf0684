"""Google's Gemini generateContent API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.wire.spec import FormatSpec, MediaBlocks, SequenceRule

FORMAT = "gemini"

_MEDIA_FIELDS = ("inlineData", "inline_data", "fileData", "file_data")


def _media_type(part: Mapping[str, Any]) -> str:
    medium = next((part[name] for name in _MEDIA_FIELDS if name in part), None)
    if not isinstance(medium, dict):
        return ""
    named = (medium.get("mimeType"), medium.get("mime_type"))
    return next((value.partition(";")[0].lower() for value in named if isinstance(value, str)), "")


def _is_local_detail(name: str, value: Any) -> bool:
    """A Schema, whose JSON Schema every other format gets."""
    return name in ("parameters", "responseSchema") and isinstance(value, dict)


SPEC = FormatSpec(
    messages_key="contents",
    sequence_rule=SequenceRule(results_first=False, merges_assistant_turns=True),
    required=frozenset({"contents"}),
    options=frozenset({"model"}),
    tag="",
    server_state={"cachedContent": bool},
    is_local_detail=_is_local_detail,
    has_native_text=True,
    media_blocks=MediaBlocks(
        fields=_MEDIA_FIELDS, containers=("parts", "functionResponse", "function_response"), type_of=_media_type
    ),
    keep_alive=b"data: ",
    has_comments=False,  # google-genai takes any line that is not data for JSON
)
