"""What an MCP server answered, as a result with parts.

Text, pictures and sound are the same things in our words. Embedded resources are shown as what they hold; links are named. The
structured form of an answer is added as JSON unless the text already says it, as the protocol asks servers to do.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.parts import Audio, Document, Image, ResultPart, Text, ToolCallResult, ToolExecutionStatus

if TYPE_CHECKING:
    from mcp.types import CallToolResult


def as_result(answer: CallToolResult) -> ToolCallResult:
    """The answer, failed if the server says so. It names no call: whoever made the call knows it."""
    parts = [part for block in answer.content for part in _parts(block)]
    structured = answer.structured_content
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append(Text(json.dumps(structured, ensure_ascii=False)))
    if answer.is_error:
        return ToolCallResult(
            "", "", ToolExecutionStatus.FAILED, tuple(parts) or (Text("The tool failed without saying why."),)
        )
    return ToolCallResult("", "", content=tuple(parts))


def _says(part: ResultPart, structured: Any) -> bool:
    """Whether a text is the JSON of `structured`, or of the one value it wraps."""
    if not isinstance(part, Text):
        return False
    alone = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    if part.text == alone:
        return True
    try:
        said = msgspec.json.decode(part.text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return bool(said in (structured, alone))


def _parts(block: Any) -> list[ResultPart]:
    match block.type:
        case "text":
            return [Text(block.text)] if block.text else []
        case "image":
            return [Image(block.mime_type, block.data)]
        case "audio":
            return [Audio(block.mime_type, block.data)]
        case "resource":
            return [_resource(block.resource)]
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return [Text(f"[{block.title or block.name}]({block.uri}){about}")]
        case _:
            return [Text(block.model_dump_json(by_alias=True, exclude_none=True))]


def _resource(resource: Any) -> ResultPart:
    media_type = resource.mime_type or ""
    text = getattr(resource, "text", None)
    if text is None and media_type.startswith("text/"):
        text = base64.b64decode(resource.blob).decode(errors="replace")
    if text is not None:
        return Text(f"{resource.uri}\n{text}")
    if media_type.startswith("image/"):
        return Image(media_type, resource.blob)
    if media_type.startswith("audio/"):
        return Audio(media_type, resource.blob)
    if media_type == "application/pdf":
        return Document(media_type, resource.blob, name=str(resource.uri))
    size = len(resource.blob) * 3 // 4
    return Text(f"({resource.uri}: about {size:,} bytes of {media_type or 'unknown type'}, which cannot be shown)")
