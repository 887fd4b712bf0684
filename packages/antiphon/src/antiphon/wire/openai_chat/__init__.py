"""OpenAI Chat Completions and the hosts that imitate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.wire.media import audio_media_type, parse_data_url
from antiphon.wire.rules import name_set
from antiphon.wire.spec import FormatSignature, FormatSpec, MediaBlocks, SequenceRule

FORMAT = "openai-chat"


def _media_type(block: Mapping[str, Any]) -> str:
    audio, file = block.get("input_audio"), block.get("file")
    if isinstance(audio, dict):
        named = audio.get("format")
        return audio_media_type(named.partition(";")[0].lower() if isinstance(named, str) and named else "wav")
    data = file.get("file_data") if isinstance(file, dict) else None
    parsed = parse_data_url(data) if isinstance(data, str) else None
    return parsed.media_type.lower() if parsed else ""


SPEC = FormatSpec(
    messages_key="messages",
    sequence_rule=SequenceRule(),
    options=frozenset({"dialect"}),
    normalizes_streams=True,
    media_blocks=MediaBlocks(
        kinds={
            "image_url": "image",
            "input_audio": "audio",
            "file": "document",
            "document_url": "document",
            "video_url": "video",
        },
        type_of=_media_type,
    ),
    reads_pasted=True,
    signature=FormatSignature(
        body_keys=name_set("max_completion_tokens response_format stream_options"),
        tool_keys=name_set("function"),
        message_keys=name_set("tool_calls"),
        roles=name_set("tool developer function"),
        block_types=name_set("image_url input_audio file"),
    ),
)
