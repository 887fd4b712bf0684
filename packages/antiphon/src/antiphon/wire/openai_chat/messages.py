"""The messages of a request or an answer, read; `message_writer` writes them.

What no part holds is kept as native extras. A message of unknown shape stays whole: `Message("unknown", (Native(FORMAT, it),))`.
The reader knows the fields of every host: reasoning is the first non-empty of its aliases, or Mistral's thinking blocks, or the
text in OpenRouter's details; its `source` names the field. Reasoning state (details, signatures, encrypted content) belongs
to the message and comes late in a stream, so it is a last `Thinking` without text. Every other key is an extra of the message.

Normalisations: null, absent and empty content are the same, and so are empty lists of annotations or details, and empty refusals,
reasoning or names; a single refusal may be in `refusal` or in the content; a missing `tool_call_id` is empty; other content of a
tool message becomes its JSON text.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, structs

from antiphon.parts import (
    Audio,
    Image,
    Native,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import (
    ContentPart,
    canonical_json,
    read_content,
    read_image_url,
    read_part,
)
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS, REASONING_STATE_FIELDS
from antiphon.wire.openai_chat.shapes import (
    MESSAGES,
    ROLE_SHAPES,
    AssistantShape,
    CallShape,
    FunctionShape,
    ToolShape,
)
from antiphon.wire.openai_chat.tools import (
    read_call,
    read_function_call,
)
from antiphon.wire.provenance import GENERATED_IMAGE, LEGACY_FUNCTION
from antiphon.wire.request import Message
from antiphon.wire.shapes import Loose, plain_values

_SUCCESS = ToolExecutionStatus.SUCCESS
_More = dict[str, Any] | None
_Functions = dict[str, str]  # the ids of legacy function calls by name
_ROLES: dict[type, str] = {shape: role for role, shape in ROLE_SHAPES.items()}


def read_messages(entries: list[Any]) -> list[Message]:
    messages: list[Message] = []
    functions: _Functions = {}
    parts: tuple[Any, ...]
    for index, entry in enumerate(entries):
        shape: Any = entry
        more, message = None, None
        if type(entry) is Loose:
            shape, more = entry.shape, entry.more
        kind = type(shape)
        if kind is AssistantShape:
            if more is None:
                read = read_assistant(shape, None, index)
                message = None if read is None else Message("assistant", tuple(read))
            else:
                message = _read_loose_assistant(shape, more, index, functions)
        elif kind is ToolShape:
            content, call_id, name = shape.content, shape.tool_call_id, shape.name
            if type(call_id) is not str:
                call_id = "" if call_id is None else canonical_json(call_id)
            parts = (Text(content),) if type(content) is str else _result_parts(content)
            result = ToolCallResult(name if type(name) is str else "", call_id, _SUCCESS, parts)
            message = Message("tool", (result,), None, {FORMAT: more} if more else None)
        elif kind in _ROLES:
            content = shape.content
            parts = (Text(content),) if type(content) is str else tuple(map(read_part, content or ()))
            message = Message(_ROLES[kind], parts, shape.name, {FORMAT: more} if more else None)
        elif kind is FunctionShape:
            message = _read_function(shape, more, index, functions)
        if message is None:
            value = entry.value if type(entry) is Loose else plain_values(entry)
            message = Message("unknown", (Native(FORMAT, value),))
        messages.append(message)
    return messages


def _read_loose_assistant(
    shape: AssistantShape, more: dict[str, Any], index: int, functions: _Functions
) -> Message | None:
    """An assistant message with further fields; None if it has no known shape."""
    name = more.pop("name", None)
    read = read_assistant(shape, more, index)
    if read is None or type(name) not in (str, type(None)):
        return None
    functions |= {part.tool_name: part.tool_call_id for part in read if _is_legacy_call(part)}
    return Message("assistant", tuple(read), name, {FORMAT: more} if more else None)


def _is_legacy_call(part: Part) -> bool:
    return type(part) is ToolCallRequest and part.source is LEGACY_FUNCTION


def _read_function(shape: FunctionShape, more: _More, index: int, functions: _Functions) -> Message:
    """A result of the legacy API, which has the name of its function instead of an id."""
    name, call_id, source = shape.name, shape.tool_call_id, None
    if type(name) is not str or not name:  # it has no function to name
        name, call_id = "", canonical_json(call_id or f"call_function_{index}")
    else:
        source = LEGACY_FUNCTION
        if call_id is not None:
            more = {**(more or {}), "tool_call_id": call_id}
        call_id = functions.get(name, f"call_function_{index}")
    result = ToolCallResult(name, call_id, _SUCCESS, _result_parts(shape.content), source=source)
    return Message("tool", (result,), None, {FORMAT: more} if more else None)


def _result_parts(content: Any) -> tuple[Any, ...]:
    """The content of a tool message; anything that is not content becomes its JSON text."""
    if type(content) is str:
        return (Text(content),)
    if content is None or content is UNSET:
        return ()
    if type(content) is not list:
        return (Text(canonical_json(content)),)
    return tuple([_result_part(part) for part in content])


def _result_part(part: Any) -> Any:
    if type(part) is not dict or type(part.get("type")) is not str:
        return Text(canonical_json(part))
    read = read_part(part)
    if isinstance(read, Thinking | Refusal):  # a result holds their text, or all of it as JSON
        return Text(read.text if read.native is None else canonical_json(part))
    return read


def read_assistant(
    message: AssistantShape, more: dict[str, Any] | None, position: int, *, is_response: bool = False
) -> list[Any] | None:
    """The parts of an assistant message; None if its content has an unknown shape. What a part holds of `more` is taken from it.

    `position` is the index of the message among the others.
    """
    content: Any = message.content
    parts: list[Any] = []
    if type(content) is str:
        if content or not is_response:
            parts.append(Text(content))
    elif type(content) is list:
        read = read_blocks(content)
        if read is None:
            return None
        parts += read
    if more and (thinking := _read_reasoning(more)) is not None:
        parts.insert(0, thinking)
    if message.refusal:
        parts.append(Refusal(message.refusal))
    if more:
        _read_annotations(more, parts)
        _read_media(more, parts)
    calls: Any = message.tool_calls  # those that do not fit are `Loose`
    if calls:
        for place, call in enumerate(calls):
            if type(call) is CallShape:
                function = call.function
                parts.append(ToolCallRequest(function.name, call.id, function.arguments))
            else:
                parts.append(read_call(call.value, place) or Native(FORMAT, {"tool_calls": [call.value]}))
    if more:
        legacy_call = read_function_call(more.get("function_call"), position)
        if legacy_call is not None:
            del more["function_call"]
            parts.append(legacy_call)
        state = {key: more.pop(key) for key in [key for key in more if key in REASONING_STATE_FIELDS]}
        if state.get("reasoning_details") == []:
            del state["reasoning_details"]
        if state:
            parts.append(Thinking(native={FORMAT: state}))
    return parts


def fit_answer(message: dict[str, Any]) -> tuple[AssistantShape, dict[str, Any] | None] | None:
    """The message of a response: it may have any role, and any JSON as content; None if it cannot be read."""
    fields = {**message, "role": "assistant"}
    content = message.get("content")
    if content is not None and type(content) not in (str, list):  # Cloudflare returns the object that a schema asks for
        fields["content"] = [{"type": "text", "text": canonical_json(content), "content": content}]
    fitted = MESSAGES.fit(fields)
    if type(fitted) is not Loose:
        return fitted, None
    return None if fitted.shape is None else (fitted.shape, fitted.more)


def read_blocks(content: list[Any]) -> list[ContentPart] | None:
    """The parts of an assistant's content; None if a block looks like our wrapper of unreadable calls."""
    parts = read_content(content)
    is_ambiguous = any(type(part) is Native and type(part.data) is dict and "tool_calls" in part.data for part in parts)
    return None if is_ambiguous else parts


def _read_reasoning(more: dict[str, Any]) -> Thinking | None:
    texts = {field: more[field] for field in REASONING_FIELDS if type(more.get(field)) is str}
    filled = {field: text for field, text in texts.items() if text}
    for field in texts.keys() - filled.keys():
        del more[field]
    if filled:
        field, text = next(iter(filled.items()))
        also = [other for other in filled if other != field and filled[other] == text]
        for name in (field, *also):
            del more[name]
        return Thinking(text, source=Source(FORMAT, (field, *also)))
    text = reasoning_text(more.get("reasoning_details"))
    return Thinking(text, source=Source(FORMAT, ("reasoning_details",))) if text else None


def reasoning_text(details: Any) -> str:
    """The text in OpenRouter's reasoning details."""
    if type(details) is not list:
        return ""
    entries = [entry for entry in details if type(entry) is dict]
    pieces = [entry.get("text") or entry.get("summary") for entry in entries]
    return "".join(piece for piece in pieces if type(piece) is str)


def _read_annotations(more: dict[str, Any], parts: list[Any]) -> None:
    annotations = more.get("annotations")
    if type(annotations) is not list:
        return
    index = next((index for index in reversed(range(len(parts))) if type(parts[index]) is Text), None)
    if not annotations or index is not None:
        del more["annotations"]
    if annotations and index is not None:
        own = (parts[index].native or {}).get(FORMAT, {})
        native = {**(parts[index].native or {}), FORMAT: {**own, "annotations": annotations}}
        parts[index] = structs.replace(parts[index], native=native)


def _read_media(more: dict[str, Any], parts: list[Any]) -> None:
    audio = more.get("audio")
    if type(audio) is dict and type(audio.get("id")) is str and audio["id"]:
        parts.append(read_audio_output(more.pop("audio")))
    images = more.get("images")
    if type(images) is list and images:
        generated = [read_generated_image(entry) for entry in images]
        if all(generated):
            del more["images"]
            parts.extend(generated)


def read_audio_output(audio: dict[str, Any]) -> Audio:
    """Audio output: its data if present, and its id, by which a later request names it."""
    data = audio.get("data")
    is_text = type(data) is str
    more = {key: value for key, value in audio.items() if key != "id" and not (key == "data" and is_text)}
    return Audio(data=data if type(data) is str else "", file_id=audio["id"], native={FORMAT: more} if more else None)


def read_generated_image(entry: Any) -> Image | None:
    """An image of `images`; None if its shape is unknown."""
    image = entry.get("image_url") if type(entry) is dict and entry.get("type") == "image_url" else None
    if type(image) is not dict or type(image.get("url")) is not str:
        return None
    more = {key: value for key, value in entry.items() if key not in ("type", "image_url", "index")}
    if len(image) > 1:
        more["image_url"] = {key: value for key, value in image.items() if key != "url"}
    read = read_image_url(image["url"], {FORMAT: more} if more else None)
    return None if read is None else structs.replace(read, source=GENERATED_IMAGE)
