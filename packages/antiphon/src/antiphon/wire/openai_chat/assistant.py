"""Assistant messages, for requests, responses and streams: reasoning, content, refusal, audio, images, calls.

The reader knows the fields of every host: reasoning is the first non-empty of its aliases, or Mistral's thinking blocks, or the
text in OpenRouter's details; `native` names its field. Reasoning state (details, signatures, encrypted content) belongs
to the message and comes late in a stream, so it is a last `Thinking` without text. Every other key is an extra of the message.

Normalisations: null, empty lists of annotations or details, and empty refusals or reasoning are absent; a single refusal may be
in `refusal` or in the content.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import structs

from antiphon.ids import new_id
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    OutputPart,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss, lose_native, other_fields, own_extras
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import (
    ContentPart,
    canonical_json,
    read_content,
    read_image_url,
    write_part,
)
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS, REASONING_STATE_FIELDS, RESPONSE_DIALECT, Dialect
from antiphon.wire.openai_chat.tools import (
    read_calls,
    read_function_call,
    unreadable_calls,
    write_call,
)
from antiphon.wire.tool_calls import is_legacy_function
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import OPENAI

GENERATED_IMAGE = "images"
"""The mark of a generated image: OpenRouter's field for them."""
_ANTIPHON_FIELDS = ("field", "also", "part")
_AUDIO_OUTPUT_ONLY = ("transcript", "expires_at")  # a history names the audio by its id
_Media = Image | Audio | Document


class ReadMessage(NamedTuple):
    """The parts of an assistant message, and the keys that no part holds."""

    parts: list[OutputPart]
    extras: dict[str, Any]


def read_assistant(message: dict[str, Any], position: int, *, is_response: bool = False) -> ReadMessage | None:
    """An assistant message; None if its content has an unknown shape. `position` is its index among the messages."""
    content = message.get("content")
    read = _read_content(content, is_response)
    if read is None:
        return None
    parts: list[Any] = list(read)
    known = {"role", "content"}
    thinking = _read_reasoning(message, known)
    if thinking is not None:
        parts.insert(0, thinking)
    refusal = message.get("refusal")
    if type(refusal) is str:
        known.add("refusal")
        if refusal:
            parts.append(Refusal(refusal))
    _read_annotations(message, parts, known)
    _read_media(message, parts, known)
    calls = message.get("tool_calls")
    if type(calls) is list:
        known.add("tool_calls")
        parts.extend(read_calls(calls))
    call = read_function_call(message.get("function_call"), position)
    if call is not None:
        known.add("function_call")
        parts.append(call)
    extras = other_fields(message, known)
    state = {key: extras.pop(key) for key in REASONING_STATE_FIELDS.intersection(extras)}
    if state.get("reasoning_details") == []:
        del state["reasoning_details"]
    if state:
        parts.append(Thinking(native={FORMAT: state}))
    return ReadMessage(parts, extras)


def _read_content(content: Any, is_response: bool) -> list[ContentPart] | None:
    if type(content) is str:
        return [Text(content)] if content or not is_response else []
    if content is None:
        return []
    if type(content) is list:
        return read_blocks(content)
    if is_response:  # Cloudflare returns the object itself where a schema was requested
        return [Text(canonical_json(content), native={FORMAT: {"content": content}})]
    return None


def read_blocks(content: list[Any]) -> list[ContentPart] | None:
    """The parts of an assistant's content; None if a block looks like our wrapper of unreadable calls."""
    parts = read_content(content)
    is_ambiguous = any(type(part) is Native and type(part.data) is dict and "tool_calls" in part.data for part in parts)
    return None if is_ambiguous else parts


def _read_reasoning(message: dict[str, Any], known: set[str]) -> Thinking | None:
    texts = {field: message[field] for field in REASONING_FIELDS if type(message.get(field)) is str}
    known.update(field for field, text in texts.items() if not text)
    filled = {field: text for field, text in texts.items() if text}
    if filled:
        field, text = next(iter(filled.items()))
        also = [other for other in filled if other != field and filled[other] == text]
        known.update((field, *also))
        return Thinking(text, native={FORMAT: {"field": field, **({"also": also} if also else {})}})
    text = reasoning_text(message.get("reasoning_details"))
    return Thinking(text, native={FORMAT: {"field": "reasoning_details"}}) if text else None


def reasoning_text(details: Any) -> str:
    """The text in OpenRouter's reasoning details."""
    if type(details) is not list:
        return ""
    entries = [entry for entry in details if type(entry) is dict]
    pieces = [entry.get("text") or entry.get("summary") for entry in entries]
    return "".join(piece for piece in pieces if type(piece) is str)


def _read_annotations(message: dict[str, Any], parts: list[Any], known: set[str]) -> None:
    annotations = message.get("annotations")
    if type(annotations) is not list:
        return
    index = next((index for index in reversed(range(len(parts))) if type(parts[index]) is Text), None)
    if not annotations:
        known.add("annotations")
    elif index is not None:
        known.add("annotations")
        own = (parts[index].native or {}).get(FORMAT, {})
        native = {**(parts[index].native or {}), FORMAT: {**own, "annotations": annotations}}
        parts[index] = structs.replace(parts[index], native=native)


def _read_media(message: dict[str, Any], parts: list[Any], known: set[str]) -> None:
    audio = message.get("audio")
    if type(audio) is dict and type(audio.get("id")) is str and audio["id"]:
        known.add("audio")
        parts.append(read_audio_output(audio))
    images = message.get(GENERATED_IMAGE)
    if type(images) is list and images:
        generated = [read_generated_image(entry) for entry in images]
        if all(generated):
            known.add(GENERATED_IMAGE)
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
    return read_image_url(image["url"], {FORMAT: {GENERATED_IMAGE: True, **more}})


def is_generated_image(part: Image) -> bool:
    return part.native is not None and GENERATED_IMAGE in part.native.get(FORMAT, ())


def without_image_marker(part: Image) -> Image:
    """A generated image without its mark."""
    native = part.native or {}
    own = {key: value for key, value in native.get(FORMAT, {}).items() if key != GENERATED_IMAGE}
    return structs.replace(part, native={**native, FORMAT: own})


def write_thinking(
    part: Thinking, message: dict[str, Any], losses: list[Loss], path: str, dialect: Dialect
) -> dict[str, Any] | None:
    """Put reasoning into the message's fields; Mistral's is returned, because it belongs to the content."""
    native = part.native or {}
    own = native.get(FORMAT)
    is_state = own is not None and "field" not in own and not part.text
    if own is not None and dialect.echoes_reasoning:
        field = None if is_state else own.get("field", REASONING_FIELDS[0])
        message.update((key, value) for key, value in own.items() if key not in _ANTIPHON_FIELDS)
    else:
        field = _reasoning_field_for_host(own or {}, message, losses, path, dialect)
        if is_state:
            field = None
        elif field is None:
            losses.append(
                Loss(path, "thinking", "reasoning can only be returned to the host that produced it; dropped")
            )
            return None
    lose_native(losses, path, native, FORMAT, OPENAI)
    if field == "thinking":
        more = own.get("part", {}) if own else {}
        return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}], **more}
    if (
        field is not None
        and field != "reasoning_details"
        and (part.text or own is not None or dialect is not RESPONSE_DIALECT)
    ):
        for name in (field, *own.get("also", ())) if own and dialect.echoes_reasoning else (field,):
            message[name] = message.get(name, "") + part.text
    return None


def _reasoning_field_for_host(
    own: dict[str, Any], message: dict[str, Any], losses: list[Loss], path: str, dialect: Dialect
) -> str | None:
    """The field in which a host accepts reasoning; the state it accepts is put into the message."""
    for key, value in own.items():
        if key in dialect.reasoning_state_fields:
            message[key] = value
        elif key not in _ANTIPHON_FIELDS:
            losses.append(Loss(f"{path}.{key}", key, "host does not accept this reasoning field; dropped"))
    if own.get("field") in dialect.reasoning_state_fields:
        return "reasoning_details"  # its text is in the state, which follows
    return dialect.reasoning_field


class WrittenAssistant(NamedTuple):
    """An assistant message, and the results that were among its parts."""

    message: dict[str, Any]
    results: list[tuple[str, ToolCallResult]]


class AssistantWriter:
    """Writes assistant messages: for responses as the model produced them, for requests as the host accepts them back.

    A request has a list of `deferred` media, which go to the next user message; a response has none.
    """

    def __init__(
        self,
        losses: list[Loss],
        dialect: Dialect = RESPONSE_DIALECT,
        deferred: list[Any] | None = None,
        model: Capabilities | None = None,
    ) -> None:
        self.converted_legacy_calls: set[str] = set()
        """The ids of function calls that were written as tool calls."""
        self._losses = losses
        self._dialect = dialect
        self._deferred = deferred
        self._model = model

    def write(self, parts: tuple[Part, ...] | tuple[OutputPart, ...], path: str, start: int = 0) -> WrittenAssistant:
        """The message of these parts; they are at `path` + `parts[start]` and following."""
        losses, dialect, is_request = self._losses, self._dialect, self._deferred is not None
        message: dict[str, Any] = {"role": "assistant", "content": dialect.empty_content}
        if not is_request:
            message["refusal"] = None
            message["annotations"] = []
        content: list[Any] = []
        calls: list[Any] = []
        results: list[tuple[str, ToolCallResult]] = []
        made = [part for part in parts if type(part) is ToolCallRequest]
        is_function_call = len(made) == 1 and is_legacy_function(made[0].native)
        refusals = [part for part in parts if type(part) is Refusal]
        is_refusal_field = not is_request or (len(refusals) == 1 and refusals[0].native is None)
        raw_content: Any = None
        text_after_call = False
        for index, part in enumerate(parts, start):
            where = f"{path}parts[{index}]"
            if isinstance(part, ToolCallRequest):
                if is_function_call:
                    name = dialect.name_rule.to_wire(part.tool_name)
                    message["function_call"] = {"name": name, "arguments": part.arguments}
                else:
                    if is_legacy_function(part.native):
                        self.converted_legacy_calls.add(part.tool_call_id)
                    calls.append(write_call(part, losses, where, dialect))
            elif isinstance(part, Thinking):
                thinking = write_thinking(part, message, losses, where, dialect)
                if thinking is not None:
                    content.append(thinking)
            elif isinstance(part, Refusal) and is_refusal_field:
                own_extras(part.native, losses, where, OPENAI, FORMAT)
                message["refusal"] = (message.get("refusal") or "") + part.text
            elif isinstance(part, ToolCallResult):
                results.append((where, part))
            elif isinstance(part, _Media):
                self._write_media(where, part, message, content)
            elif isinstance(part, Native) and (unreadable := unreadable_calls(part)) is not None:
                calls.extend(unreadable)
            else:
                text_after_call = text_after_call or bool(calls)
                written = write_part(part, losses, where, dialect)
                if type(part) is Text and part.native is not None:
                    raw_content = written[0].pop("content", None)
                    if annotations := written[0].pop("annotations", None):
                        message["annotations"] = message.get("annotations", []) + annotations
                content += written
        if is_request:
            if text_after_call:
                losses.append(
                    Loss(path.removesuffix("."), "order", "text after a tool call was moved before the calls")
                )
            if content:
                message["content"] = openai.collapse_text(content, "text")
            elif not calls and not any(map(message.get, ("function_call", "refusal", "audio"))):
                message["content"] = ""
        else:
            message["content"] = _join_text(content) if raw_content is None else raw_content
        if calls:
            message["tool_calls"] = calls
        return WrittenAssistant(message, results)

    def _write_media(self, path: str, part: _Media, message: dict[str, Any], content: list[Any]) -> None:
        """Audio and generated images have fields of their own; a host may accept the rest only from a user."""
        losses, dialect, is_request = self._losses, self._dialect, self._deferred is not None
        if isinstance(part, Audio) and (part.file_id or not is_request):
            extras = own_extras(part.native, losses, path, OPENAI, FORMAT)
            if is_request:
                extras = {key: value for key, value in extras.items() if key not in _AUDIO_OUTPUT_ONLY}
            data = {"data": part.data} if part.data and not is_request else {}
            message["audio"] = {"id": part.file_id or f"audio_{new_id()}", **data, **extras}
        elif isinstance(part, Image) and (is_generated_image(part) or not is_request):
            image = without_image_marker(part) if is_generated_image(part) else part
            for written in write_part(image, losses, path, dialect):
                message.setdefault("images", []).append(written)
        elif self._deferred is None:
            losses.append(Loss(path, "document", "a response cannot hold files; dropped"))
        elif dialect.allows_media_in_any_role:
            content += write_part(part, losses, path, dialect, self._model)
        else:
            content += defer_media(self._deferred, part, "the assistant's answer", losses, path, dialect, self._model)


def defer_media(
    deferred: list[Any],
    part: _Media,
    origin: str,
    losses: list[Loss],
    path: str,
    dialect: Dialect,
    model: Capabilities | None,
) -> list[Any]:
    """Keep an image, audio or file for the next user message; a marker stays in its position."""
    written = write_part(part, losses, path, dialect, model)
    if not written or written[0]["type"] == "text":  # a text document stays where it is
        return [{"type": "text", "text": block["text"]} for block in written]
    kind = type(part).__name__.lower()
    deferred += [{"type": "text", "text": f"[{kind} from {origin}]"}, *written]
    return [{"type": "text", "text": f"[{kind}: shown in the next user message]"}]


def _join_text(content: list[Any]) -> Any:
    """The content of a response: one string, unless it has blocks other than plain text."""
    if not content:
        return None
    if all(openai.is_plain_text(block, "text") for block in content):
        return "".join(block["text"] for block in content)
    return content
