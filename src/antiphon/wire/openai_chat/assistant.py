"""An assistant message, in a history or as an answer: reasoning, content, refusal, sound, images, calls.

Theory of operation. The reader is one for both and knows every host's fields: reasoning is the first non-empty of its
aliases, or Mistral's thinking parts, or the words in OpenRouter's details. It becomes a `Thinking` whose native says which
field it came in. Proofs of reasoning (details, signatures, encrypted content) belong to the message, and in a stream they
come late; so they are a last `Thinking` without words. Every other key is an extra of the message.

Normalisations: null, an empty list of annotations or details, and an empty refusal or reasoning are absent; a refusal that is
the only one may stand in `refusal` or among the content.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import structs

from antiphon.parts import Audio, Image, Native, OutputPart, Refusal, Text, Thinking
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.openai_chat.calls import read_calls, read_function_call
from antiphon.wire.openai_chat.content import FORMAT, SHARED, ReadPart, picture, read_content, stable_text
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.rules import name_set

REASONING_FIELDS = ("reasoning_content", "reasoning")
PROOFS = name_set(
    "reasoning_details reasoning_signature reasoning_opaque encrypted_content extra_content thought_signature"
    " thinking_blocks"
)
IMAGES = "images"
"""The mark of a picture a model drew: OpenRouter's field for them."""
_NOT_PROOFS = ("field", "also", "part")


class ReadMessage(NamedTuple):
    """The parts of an assistant message, and the keys that no part holds."""

    parts: list[OutputPart]
    extras: dict[str, Any]


def read_assistant(message: dict[str, Any], place: int, *, is_answer: bool = False) -> ReadMessage | None:
    """An assistant message, or None if its content is nothing we know. `place` is its number among the messages."""
    content = message.get("content")
    read = _read_content(content, is_answer)
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
    call = read_function_call(message.get("function_call"), place)
    if call is not None:
        known.add("function_call")
        parts.append(call)
    extras = {key: value for key, value in message.items() if key not in known and value is not None}
    proofs = {key: extras.pop(key) for key in PROOFS.intersection(extras)}
    if proofs.get("reasoning_details") == []:
        del proofs["reasoning_details"]
    if proofs:
        parts.append(Thinking(native={FORMAT: proofs}))
    return ReadMessage(parts, extras)


def _read_content(content: Any, is_answer: bool) -> list[ReadPart] | None:
    if type(content) is str:
        return [Text(content)] if content or not is_answer else []
    if content is None:
        return []
    if type(content) is list:
        parts = read_content(content)
        # An entry that looks like our wrapper of an unreadable call would come back as one.
        wrapped = any(type(part) is Native and type(part.data) is dict and "tool_calls" in part.data for part in parts)
        return None if wrapped else parts
    if is_answer:  # Cloudflare answers with the object itself where a schema was asked for
        return [Text(stable_text(content), native={FORMAT: {"content": content}})]
    return None


def _read_reasoning(message: dict[str, Any], known: set[str]) -> Thinking | None:
    texts = {field: message[field] for field in REASONING_FIELDS if type(message.get(field)) is str}
    known.update(field for field, text in texts.items() if not text)
    said = {field: text for field, text in texts.items() if text}
    if said:
        field, text = next(iter(said.items()))
        also = [other for other in said if other != field and said[other] == text]
        known.update((field, *also))
        return Thinking(text, native={FORMAT: {"field": field, **({"also": also} if also else {})}})
    text = words_of(message.get("reasoning_details"))
    return Thinking(text, native={FORMAT: {"field": "reasoning_details"}}) if text else None


def words_of(details: Any) -> str:
    """The readable words in OpenRouter's reasoning details."""
    if type(details) is not list:
        return ""
    entries = [entry for entry in details if type(entry) is dict]
    pieces = [entry.get("text") or entry.get("summary") for entry in entries]
    return "".join(piece for piece in pieces if type(piece) is str)


def _read_annotations(message: dict[str, Any], parts: list[Any], known: set[str]) -> None:
    annotations = message.get("annotations")
    if type(annotations) is not list:
        return
    place = next((place for place in reversed(range(len(parts))) if type(parts[place]) is Text), None)
    if not annotations:
        known.add("annotations")
    elif place is not None:
        known.add("annotations")
        own = (parts[place].native or {}).get(FORMAT, {})
        native = {**(parts[place].native or {}), FORMAT: {**own, "annotations": annotations}}
        parts[place] = structs.replace(parts[place], native=native)


def _read_media(message: dict[str, Any], parts: list[Any], known: set[str]) -> None:
    audio = message.get("audio")
    if type(audio) is dict and type(audio.get("id")) is str and audio["id"]:
        known.add("audio")
        parts.append(read_sound(audio))
    images = message.get(IMAGES)
    if type(images) is list and images:
        pictures = [drawn(entry) for entry in images]
        if all(pictures):
            known.add(IMAGES)
            parts.extend(pictures)


def read_sound(audio: dict[str, Any]) -> Audio:
    """The spoken answer: its data if it came along, and its id, by which a later request names it."""
    data = audio.get("data")
    is_text = type(data) is str
    more = {key: value for key, value in audio.items() if key != "id" and not (key == "data" and is_text)}
    return Audio(data=data if type(data) is str else "", file_id=audio["id"], native={FORMAT: more} if more else None)


def drawn(entry: Any) -> Image | None:
    """A picture out of `images`, if it is written as usual."""
    image = entry.get("image_url") if type(entry) is dict and entry.get("type") == "image_url" else None
    if type(image) is not dict or type(image.get("url")) is not str:
        return None
    more = {key: value for key, value in entry.items() if key not in ("type", "image_url", "index")}
    if len(image) > 1:
        more["image_url"] = {key: value for key, value in image.items() if key != "url"}
    return picture(image["url"], {FORMAT: {IMAGES: True, **more}})


def is_drawn(part: Image) -> bool:
    return part.native is not None and IMAGES in part.native.get(FORMAT, ())


def undrawn(part: Image) -> Image:
    """A drawn picture without its mark."""
    native = part.native or {}
    own = {key: value for key, value in native.get(FORMAT, {}).items() if key != IMAGES}
    return structs.replace(part, native={**native, FORMAT: own})


def write_thinking(
    part: Thinking, message: dict[str, Any], losses: list[Loss], path: str, dialect: Dialect
) -> dict[str, Any] | None:
    """Put reasoning into the message's fields; Mistral's is returned, for it belongs to the content."""
    native = part.native or {}
    own = native.get(FORMAT)
    is_proof = own is not None and "field" not in own and not part.text
    if own is not None and dialect.keeps_reasoning:
        field = None if is_proof else own.get("field", REASONING_FIELDS[0])
        message.update((key, value) for key, value in own.items() if key not in _NOT_PROOFS)
    else:
        field = _host_field(own or {}, message, losses, path, dialect)
        if is_proof:
            field = None
        elif field is None:
            losses.append(Loss(path, "thinking", "reasoning is taken back only by the host it came from"))
            return None
    lose_native(losses, path, native, FORMAT, SHARED)
    if field == "thinking":
        more = own.get("part", {}) if own else {}
        return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}], **more}
    if field is not None and field != "reasoning_details":
        for name in (field, *own.get("also", ())) if own and dialect.keeps_reasoning else (field,):
            message[name] = message.get(name, "") + part.text
    return None


def _host_field(
    own: dict[str, Any], message: dict[str, Any], losses: list[Loss], path: str, dialect: Dialect
) -> str | None:
    """Which field a host takes reasoning in; its proofs are put into the message, or lost."""
    for key, value in own.items():
        if key in dialect.proofs:
            message[key] = value
        elif key not in _NOT_PROOFS:
            losses.append(Loss(f"{path}.{key}", key, "this host takes no such proof of reasoning"))
    if own.get("field") in dialect.proofs:
        return "reasoning_details"  # its words are among the proofs, which follow
    return dialect.reasoning_field
