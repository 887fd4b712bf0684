"""OpenAI's fine-tuning format: one JSON object per line with `messages` and `tools`, as for Chat Completions.

The rules are those of `FineTuneChatRequestInput` in OpenAI's API description and of its fine-tuning guide: system, user,
assistant and tool messages; text and images (JPEG, PNG, WebP) only, images only from the user; the assistant writes last.
`weight` 0 keeps a message as context without training on it: that is how copied turns are marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Audio, Document, Image, Part, ToolCallResult
from antiphon.wire.loss import Loss
from antiphon.wire.media import media_type_of_url, sniff_base64
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.layouts import write_messages
from antiphon.wire.openai_chat.tools import write_tools
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon_devtools.trajectories.media_files import MediaFolder
from antiphon_devtools.trajectories.selection import Trajectory
from antiphon_devtools.trajectories.tool_definitions import definitions_for
from antiphon_devtools.trajectories.turn_messages import messages_by_turn

_DIALECT = structs.replace(get_dialect("openai"), has_developer_role=False, has_custom_tools=False)
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/webp", ""})
_MAX_IMAGE_BYTES = 10 * 1024 * 1024


def write_openai_finetune(
    trajectory: Trajectory,
    definitions: Sequence[ToolDefinition],
    media: MediaFolder,  # noqa: ARG001 - an example has its images inside
) -> tuple[dict[str, Any] | None, list[str]]:
    """The example of a trajectory, or None if the model wrote nothing in it; and what could not be carried."""
    notes: list[str] = []
    messages: list[Any] = []
    for each in messages_by_turn(trajectory):
        losses: list[Loss] = []
        allowed = [_allowed_message(message, f"messages[{n}]", losses) for n, message in enumerate(each.messages)]
        written = write_messages([message for message in allowed if message.parts], losses, dialect=_DIALECT)
        for message in written if each.turn.is_copied else ():
            if message["role"] == "assistant":
                message["weight"] = 0
        messages += filter(_has_content, written)
        notes += (f"turn {each.turn.number}: {note}" for note in (*each.notes, *(f"lost {loss}" for loss in losses)))
    while messages and messages[-1]["role"] != "assistant":  # its answer could not be carried
        notes.append(f"left out the last {messages[-1]['role']} message: nothing of its answer could be carried")
        messages.pop()
    if not messages:
        return None, notes
    example: dict[str, Any] = {"messages": msgspec.json.decode(msgspec.json.encode(messages))}
    tools, inferred = definitions_for(trajectory, definitions)
    losses = []
    write_tools(ModelRequest(tools=tools), example, losses, _DIALECT)
    notes += (*inferred, *(f"lost {loss}" for loss in losses))
    return example, notes


def _has_content(message: dict[str, Any]) -> bool:
    """Whether a message has something to read. A result may be empty: its call needs it."""
    return message["role"] == "tool" or any(message.get(field) for field in ("content", "tool_calls", "refusal"))


def _allowed_message(message: Message, path: str, losses: list[Loss]) -> Message:
    """The message with the parts that an example may have."""
    kept = [
        part for index, part in enumerate(message.parts) if _is_allowed(part, message, f"{path}.parts[{index}]", losses)
    ]
    parts: list[Part] = []
    for index, part in enumerate(kept):
        if isinstance(part, ToolCallResult):
            place = f"{path}.parts[{index}].content"
            content = tuple(
                inner for n, inner in enumerate(part.content) if _is_allowed(inner, message, f"{place}[{n}]", losses)
            )
            part = structs.replace(part, content=content) if content != part.content else part
        parts.append(part)
    return structs.replace(message, parts=tuple(parts))


def _is_allowed(part: Part, message: Message, path: str, losses: list[Loss]) -> bool:
    reason = ""
    if isinstance(part, Audio | Document) and not (isinstance(part, Document) and part.text):
        reason = "fine-tuning examples have text and images only"
    elif isinstance(part, Image):
        reason = _image_problem(part, message.role)
    if reason:
        losses.append(Loss(path, type(part).__name__.lower(), reason))
    return not reason


def _image_problem(part: Image, role: str) -> str:
    if role == "assistant":
        return "the assistant of an example writes text and calls only"
    if not (part.data or part.url):
        return "stored at a provider; an example has the image or its address"
    media_type = sniff_base64(part.data) or part.media_type if part.data else media_type_of_url(part.url)
    if media_type not in _IMAGE_TYPES:
        return f"{media_type} is not accepted; expected JPEG, PNG or WebP"
    if len(part.data) * 3 // 4 > _MAX_IMAGE_BYTES:
        return f"larger than {_MAX_IMAGE_BYTES // 1024 // 1024} MB"
    return ""
