"""Assistant messages, for requests, responses and streams: reasoning, content, refusal, audio, images, calls.

The reader knows the fields of every host: reasoning is the first non-empty of its aliases, or Mistral's thinking blocks, or the
text in OpenRouter's details; its `source` names the field. Reasoning state (details, signatures, encrypted content) belongs
to the message and comes late in a stream, so it is a last `Thinking` without text. Every other key is an extra of the message.

Normalisations: null, empty lists of annotations or details, and empty refusals or reasoning are absent; a single refusal may be
in `refusal` or in the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Losses
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import (
    THINKING_BLOCK,
    ContentPart,
    PartWriter,
    canonical_json,
    read_content,
    read_image_url,
)
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS, REASONING_STATE_FIELDS, RESPONSE_DIALECT, Dialect
from antiphon.wire.openai_chat.shapes import MESSAGES, AssistantShape, CallShape, TextPart
from antiphon.wire.openai_chat.tools import (
    CallWriter,
    read_call,
    read_function_call,
    unreadable_calls,
)
from antiphon.wire.provenance import GENERATED_IMAGE, is_from, is_legacy_function, spelling_in, with_source
from antiphon.wire.shapes import Loose, extend
from antiphon.wire.shared_openai import OPENAI, collapse_text, is_plain_text

_AUDIO_OUTPUT_ONLY = ("transcript", "expires_at")  # a history names the audio by its id
MEDIA = (Image, Audio, Document)


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


class AssistantWriter(PartWriter):
    """Writes assistant messages: for responses as the model produced them, for requests as the host accepts them back.

    A request has a list of `deferred` media, which go to the next user message; a response has none.
    """

    def __init__(
        self,
        losses: Losses,
        dialect: Dialect = RESPONSE_DIALECT,
        deferred: list[Any] | None = None,
        model: Capabilities | None = None,
    ) -> None:
        super().__init__(losses, dialect, model)
        self.results: list[tuple[int, ToolCallResult]] = []
        """The results that were among the parts of the last message, each with its position."""
        self.write_call = CallWriter(losses, dialect).write
        self.converted_legacy_calls: set[str] = set()
        """The ids of function calls that were written as tool calls."""
        self._deferred = deferred

    def request_message(self, parts: tuple[Part, ...]) -> Any:
        """The message of earlier parts, as the host accepts it."""
        fields, content, calls = self._write_parts(parts, 0)
        text: Any
        if content:
            text = collapse_text(content, "text")
        elif calls or any(map(fields.get, ("function_call", "refusal", "audio"))):
            text = self.dialect.empty_content
        else:
            text = ""
        message: Any = AssistantShape(text, calls or None)
        return extend(message, fields) if fields else message

    def response_message(self, parts: tuple[OutputPart, ...], start: int = 0) -> dict[str, Any]:
        """The message of an answer; its parts are counted from `start`."""
        fields, content, calls = self._write_parts(parts, start)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        message["content"] = fields.pop("content") if "content" in fields else _join_text(content)
        return {**message, **fields, **({"tool_calls": calls} if calls else {})}

    def _write_parts(self, parts: tuple[Any, ...], start: int) -> tuple[dict[str, Any], list[Any], list[Any]]:
        """Fields of the message, its content and calls."""
        losses, is_request = self.losses, self._deferred is not None
        fields: dict[str, Any] = {}
        content: list[Any] = []
        calls: list[Any] = []
        text_after_call = False
        losses.part = start - 1
        for part in parts:
            losses.part += 1
            kind = type(part)
            if kind is Text:
                if calls:
                    text_after_call = True
                if part.native is None:
                    content.append(TextPart(part.text))
                else:
                    self._text_with_extras(part, fields, content)
            elif kind is ToolCallRequest:
                if not (part.native is None and part.source is None) and is_legacy_function(part):
                    if self._is_only_call(parts):
                        name = self.dialect.name_rule.to_wire(part.tool_name)
                        fields["function_call"] = {"name": name, "arguments": part.arguments}
                        continue
                    self.converted_legacy_calls.add(part.tool_call_id)
                calls.append(self.write_call(part))
            elif kind is Thinking:
                thinking = self.write_thinking(part, fields)
                if thinking is not None:
                    content.append(thinking)
            elif kind is Refusal and (not is_request or self._is_only_refusal(parts, part)):
                losses.take_extras(part.native, OPENAI, FORMAT)
                fields["refusal"] = (fields.get("refusal") or "") + part.text
            elif kind is ToolCallResult:
                self.results.append((losses.part, part))
            elif kind in MEDIA:
                self._write_media(part, fields, content)
            elif kind is Native and (unreadable := unreadable_calls(part)) is not None:
                calls.extend(unreadable)
            else:
                text_after_call = text_after_call or bool(calls)
                content += self.write(part, is_fitted=True)
        losses.part = -1
        if text_after_call and is_request:
            losses.add("order", "text after a tool call was moved before the calls")
        return fields, content, calls

    @staticmethod
    def _is_only_call(parts: tuple[Any, ...]) -> bool:
        return sum(type(part) is ToolCallRequest for part in parts) == 1

    @staticmethod
    def _is_only_refusal(parts: tuple[Any, ...], refusal: Refusal) -> bool:
        return refusal.native is None and sum(type(part) is Refusal for part in parts) == 1

    def _text_with_extras(self, part: Text, fields: dict[str, Any], content: list[Any]) -> None:
        """Text whose annotations are a field of the message, or that is the object of an answer (`content`)."""
        (written,) = self.write(part)
        raw = written.pop("content", None)
        if raw is not None and self._deferred is None:
            fields["content"] = raw
        if annotations := written.pop("annotations", None):
            fields["annotations"] = fields.get("annotations", []) + annotations
        content.append(written)

    def write_thinking(self, part: Thinking, message: dict[str, Any]) -> dict[str, Any] | None:
        """Put reasoning into the message's fields; Mistral's is returned, because it belongs to the content."""
        part, dialect = with_source(part), self.dialect
        native, spelled = part.native or {}, spelling_in(part, FORMAT)
        own = native.get(FORMAT)
        block: dict[str, Any] = {}
        is_own, is_state = is_from(part, FORMAT), own is not None and not spelled and not part.text
        if part.source == THINKING_BLOCK:
            block, own = own or {}, None
        if is_own and dialect.echoes_reasoning:
            field = None if is_state else spelled[0] if spelled else REASONING_FIELDS[0]
            message.update(own or {})
        else:
            field = self._reasoning_field(own or {}, spelled, message)
            if is_state:
                field = None
            elif field is None:
                reason = "reasoning can only be returned to the host that produced it; dropped"
                self.losses.add("thinking", reason)
                return None
        self.losses.report_extras(native, FORMAT, OPENAI)
        if field == "thinking":
            return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}], **block}
        is_shown = part.text or is_own or dialect is not RESPONSE_DIALECT
        if field is not None and field != "reasoning_details" and is_shown:
            for name in (field, *spelled[1:]) if dialect.echoes_reasoning else (field,):
                message[name] = message.get(name, "") + part.text
        return None

    def _reasoning_field(self, own: dict[str, Any], spelled: Sequence[str], message: dict[str, Any]) -> str | None:
        """The field in which a host accepts reasoning; the state it accepts is put into the message."""
        for key, value in own.items():
            if key in self.dialect.reasoning_state_fields:
                message[key] = value
            else:
                self.losses.add(key, "host does not accept this reasoning field; dropped", key)
        if not self.dialect.reasoning_state_fields.isdisjoint(spelled[:1]):
            return "reasoning_details"  # its text is in the state, which follows
        return self.dialect.reasoning_field

    def _write_media(self, part: Any, fields: dict[str, Any], content: list[Any]) -> None:
        """Audio and generated images have fields of their own; a host may accept the rest only from a user."""
        is_request = self._deferred is not None
        part = with_source(part)
        if isinstance(part, Audio) and (part.file_id or not is_request):
            extras = self.losses.take_extras(part.native, OPENAI, FORMAT)
            if is_request:
                extras = {key: value for key, value in extras.items() if key not in _AUDIO_OUTPUT_ONLY}
            data = {"data": part.data} if part.data and not is_request else {}
            fields["audio"] = {"id": part.file_id or f"audio_{new_id()}", **data, **extras}
        elif isinstance(part, Image) and (part.source == GENERATED_IMAGE or not is_request):
            for written in self.write(part):
                fields.setdefault("images", []).append(written)
        elif self._deferred is None:
            self.losses.add("document", "a response cannot hold files; dropped")
        elif self.dialect.allows_media_in_any_role:
            content += self.write(part)
        else:
            content += self.defer_media(part, "the assistant's answer")

    def defer_media(self, part: Any, origin: str) -> list[Any]:
        """Keep an image, audio or file for the next user message; a marker stays in its position."""
        written = self.write(part)
        if not written or written[0]["type"] == "text":  # a text document stays where it is
            return [{"type": "text", "text": block["text"]} for block in written]
        kind = type(part).__name__.lower()
        assert self._deferred is not None
        self._deferred += [{"type": "text", "text": f"[{kind} from {origin}]"}, *written]
        return [{"type": "text", "text": f"[{kind}: shown in the next user message]"}]


def _join_text(content: list[Any]) -> Any:
    """The content of a response: one string, unless it has blocks other than plain text."""
    if not content:
        return None
    if all(type(block) is TextPart or is_plain_text(block, "text") for block in content):
        return "".join(block.text if type(block) is TextPart else block["text"] for block in content)
    return content
