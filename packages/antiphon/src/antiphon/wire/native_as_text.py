"""Blocks that only one format has, as text and images that every model reads.

Hosted tools (searches, shells, patches, MCP servers, computers) have blocks that only their own format accepts. Other formats
get what the model did and what came back as text, and screenshots as images, instead of nothing. The result depends on the block
alone, so earlier turns keep their bytes (L9). What cannot be put into words (encrypted state, references) stays a loss.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from antiphon.parts import Audio, Image, Native, Text, Thinking
from antiphon.wire.loss import Losses
from antiphon.wire.media import inline_base64, is_web_url
from antiphon.wire.provenance import is_from
from antiphon.wire.request import Message
from antiphon.wire.spec import load_module, spec_of

P = TypeVar("P")
Block: TypeAlias = dict[str, Any]
Readers: TypeAlias = Mapping[str, Callable[[Block], Iterator[str | Image]]]
"""`READERS` in the module `native_text` of a format: by the type of a block, or by the field that it must have."""


def readable_parts(native: Native, losses: Losses, target: str) -> list[Text | Image]:
    """The parts that carry a block to another format, with the loss of everything else in it; none if nothing is readable."""
    block = native.data
    spec = spec_of(native.origin)
    kind = block.get(spec.tag if spec and spec.tag else "type") if isinstance(block, dict) else None
    name = kind if isinstance(kind, str) else "native"
    reader = None if spec is None or not spec.has_native_text else _find_reader(native.origin, block, spec.tag)
    try:
        pieces = list(reader(block)) if reader is not None else []
    except (RecursionError, UnicodeError):  # nested too deeply, or not Unicode
        pieces = []
    if not pieces:
        losses.add_foreign(name, native.origin)
        return []
    losses.add(name, f"{target} has no such block; sent as text")
    texts = "\n".join(piece for piece in pieces if isinstance(piece, str))
    images = [piece for piece in pieces if isinstance(piece, Image)]
    return [*([Text(texts)] if texts else []), *images]


def _find_reader(origin: str, block: Any, tag: str) -> Callable[[Block], Iterator[str | Image]] | None:
    readers = _readers_of(origin)
    if not isinstance(block, dict):
        return None
    if not tag:
        return next((read for field, read in readers.items() if isinstance(block.get(field), dict)), None)
    kind = block.get(tag)
    return readers.get(kind) if isinstance(kind, str) else None


@cache
def _readers_of(origin: str) -> Readers:
    readers: Readers = load_module(origin, "native_text").READERS
    return readers


def transcribe(part: P, losses: Losses) -> P | Text:
    """Audio as its transcript, with the loss of the audio itself; any other part as it is."""
    if not isinstance(part, Audio):
        return part
    for extras in (part.native or {}).values():
        if isinstance(extras.get("transcript"), str) and extras["transcript"]:
            losses.add("audio", "audio is not supported here; sent its transcript")
            return Text(extras["transcript"])
    return part


def reasoning_as_text(message: Message, target: str) -> Message:
    """The message with readable reasoning of other formats as labelled text; the same object if it has none."""
    parts = tuple(
        Text(f"[earlier reasoning]\n{part.text}\n[end of reasoning]")
        if isinstance(part, Thinking) and part.text and not is_from(part, target)
        else part
        for part in message.parts
    )
    return message if all(map(operator.is_, parts, message.parts)) else structs.replace(message, parts=parts)


def text_of(value: Any) -> str:
    """Text as it is; lists of text blocks joined; other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            filter(None, (text_of(entry.get("text") if isinstance(entry, dict) else entry) for entry in value))
        )
    return "" if value is None else msgspec.json.encode(value).decode()


def texts_of(value: Any, separator: str) -> str:
    """The texts of a list, or one text."""
    return separator.join(map(text_of, value)) if isinstance(value, list) else text_of(value)


def label(name: Any, about: Any) -> str:
    """What was done in brackets, and what it was about."""
    text = text_of(about)
    return f"[{name}: {text}]" if text else f"[{name}]"


def object_of(value: Any) -> Block:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[Block]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def sources(results: Any) -> Iterator[str]:
    """Search results: the title or file, the address, and the text found."""
    for result in objects_of(results):
        title = result.get("title") or result.get("filename") or ""
        address = result.get("url") or result.get("source") or ""
        heading = " - ".join(str(piece) for piece in (title, address) if piece)
        text = text_of(result.get("text") or result.get("content"))
        yield "\n".join(filter(None, (heading, text)))


def process_output(result: Block) -> Iterator[str]:
    """What a process printed, and its exit code."""
    output = "\n".join(filter(None, (text_of(result.get("stdout")), text_of(result.get("stderr")))))
    code = result.get("return_code", object_of(result.get("outcome")).get("exit_code"))
    yield "[output" + (f", exit code {code}" if code is not None else "") + f"]\n{output}"


def image_at(url: str) -> Image | None:
    """The image of a URL, if other formats can have it."""
    inline = inline_base64(url)
    if inline is not None and inline.data:
        return Image(inline.media_type, inline.data)
    return Image(url=url) if is_web_url(url) else None
