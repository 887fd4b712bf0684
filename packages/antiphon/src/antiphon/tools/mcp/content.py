"""What an MCP server offers and answers, in our own types: results, resources, prompts, and questions to the user."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.history import HistoryEntry, ModelInputEntry, ModelOutputEntry
from antiphon.json_text import NOT_JSON
from antiphon.parts import Audio, Image, ResultPart, Text, ToolCallResult, ToolExecutionStatus, media_part

if TYPE_CHECKING:
    from mcp.types import CallToolResult, GetPromptResult, Prompt, Resource, ResourceTemplate


class McpResource(Struct, frozen=True, kw_only=True):
    """Something an MCP server lets you read. `uri` is its address, or a template of addresses (`file:///{path}`)."""

    uri: str
    name: str
    description: str = ""
    media_type: str = ""
    size: int | None = None
    is_template: bool = False


class McpPrompt(Struct, frozen=True, kw_only=True):
    """A prompt that an MCP server has prepared. `required` are the arguments it must get, `optional` those it may get."""

    name: str
    description: str = ""
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class McpElicitation(Struct, frozen=True, kw_only=True):
    """What an MCP server asks the user while a tool runs (elicitation): a text, and the JSON Schema of the answer.

    With `url`, the user is to open that page instead; the answer is an empty mapping once they did.
    """

    message: str
    schema: Mapping[str, Any] = {}
    url: str = ""

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each field that has one."""
        fields: Mapping[str, Any] = self.schema.get("properties", {})
        return {name: field["default"] for name, field in fields.items() if "default" in field}


McpAnswer: TypeAlias = Mapping[str, Any] | None
ElicitationHandler: TypeAlias = Callable[[McpElicitation], McpAnswer | Awaitable[McpAnswer]]
"""Asks the user. Fields it leaves out get their defaults; None declines."""


def to_resource(listed: Resource | ResourceTemplate) -> McpResource:
    """A resource or template as it was listed."""
    template = getattr(listed, "uri_template", None)
    return McpResource(
        uri=str(template or listed.uri),  # type: ignore[union-attr]  # the one or the other
        name=listed.title or listed.name,
        description=listed.description or "",
        media_type=listed.mime_type or "",
        size=getattr(listed, "size", None),
        is_template=template is not None,
    )


def to_prompt(listed: Prompt) -> McpPrompt:
    """A prompt as it was listed."""
    arguments = listed.arguments or []
    return McpPrompt(
        name=listed.name,
        description=listed.description or listed.title or "",
        required=tuple(argument.name for argument in arguments if argument.required),
        optional=tuple(argument.name for argument in arguments if not argument.required),
    )


def prompt_entries(prompt: GetPromptResult) -> tuple[HistoryEntry, ...]:
    """The messages of a prompt, as entries to append to a conversation."""
    return tuple(
        (ModelInputEntry if message.role == "user" else ModelOutputEntry)(tuple(block_parts(message.content)))
        for message in prompt.messages
    )


def describe_resources(resources: list[McpResource]) -> str:
    """A list of resources as text for a model."""
    if not resources:
        return "There are no resources."
    lines = [
        f"- {one.uri} ({', '.join(filter(None, (one.name, one.media_type)))})"
        + (" [template: fill in what is in braces]" if one.is_template else "")
        + (f": {one.description}" if one.description else "")
        for one in resources
    ]
    return "\n".join(lines)


def to_result(answer: CallToolResult) -> ToolCallResult:
    """The answer, failed if the server marked it as an error. It has no call id: the caller adds it."""
    parts = [part for block in answer.content for part in block_parts(block)]
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
        decoded = msgspec.json.decode(part.text)
    except NOT_JSON:
        return False
    return bool(decoded in (structured, alone))


def block_parts(block: Any) -> list[ResultPart]:
    match block.type:
        case "text":
            return [Text(block.text)] if block.text else []
        case "image":
            return [Image(block.mime_type, block.data)]
        case "audio":
            return [Audio(block.mime_type, block.data)]
        case "resource":
            return [resource_part(block.resource)]
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return [Text(f"[{block.title or block.name}]({block.uri}){about}")]
        case _:
            return [Text(block.model_dump_json(by_alias=True, exclude_none=True))]


def resource_part(resource: Any) -> ResultPart:
    media_type = resource.mime_type or ""
    text = getattr(resource, "text", None)
    if text is None and media_type.startswith("text/"):
        text = base64.b64decode(resource.blob).decode(errors="replace")
    if text is not None:
        return Text(f"{resource.uri}\n{text}")
    if media_type.startswith(("image/", "audio/")) or media_type == "application/pdf":
        return media_part(media_type, resource.blob, name=str(resource.uri))
    size = len(resource.blob) * 3 // 4
    return Text(f"({resource.uri}: about {size:,} bytes of {media_type or 'unknown type'}, which cannot be shown)")
