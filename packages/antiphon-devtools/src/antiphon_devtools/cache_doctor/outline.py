"""`PromptOutline`: a request body as the provider caches it: settings, tools, instructions, messages, in this order.

A prompt is a list of segments (a tool, a block of the instructions, a block of a message), and a segment a list of fields, each
with its path in the body. A field is kept as hashes of 256 bytes each, so an outline holds no text unless `keeps_text` is set;
the hashes are those of this process and mean nothing elsewhere. `chain` has a hash of everything up to each segment: two prompts
begin alike up to a segment if their chains agree there.

What is not part of the prompt is left out: cache breakpoints, ids and states of items, sampling settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from sys import intern
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon_devtools.cache_doctor.rules import DAY, HOUR, MINUTE

CHUNK = 256
_LONGEST_WORD = 4096
"""A longer text without a blank is taken for media."""
_NOT_PROMPT = frozenset({"cache_control", "prompt_cache_breakpoint"})
_ITEM_ONLY = frozenset({"id", "status"})


class Field(NamedTuple):
    """A value in the body: where it is, its name inside its segment, its size in bytes, its hashes, and maybe its text."""

    path: str
    name: str
    size: int
    chunks: tuple[int, ...]
    text: str | None


class Segment(Struct, frozen=True):
    """A part of the prompt that is cached as a whole. `breakpoint` is the lifetime in seconds if one is set here."""

    path: str
    section: str
    fields: tuple[Field, ...]
    digest: int
    size: int
    tokens: int
    breakpoint: float | None = None


class PromptOutline(Struct, frozen=True):
    """A prompt without its text."""

    format: str
    model: str
    segments: tuple[Segment, ...]
    chain: tuple[int, ...]
    tokens: int
    """An estimate."""
    cache_key: str = ""
    elsewhere: str = ""
    """The field that names a part of the prompt that is stored at the provider, and so not in the body."""
    seconds: float | None = None
    """The lifetime that the request asks for."""

    def tokens_before(self, count: int) -> int:
        """The tokens of the first `count` segments."""
        return sum(segment.tokens for segment in self.segments[:count])

    def bytes_before(self, count: int) -> int:
        """The bytes of the first `count` segments."""
        return sum(segment.size for segment in self.segments[:count])


def estimate_tokens(text: str) -> int:
    """Four bytes per token: fast, and close enough for English and for Chinese."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


OutlineMemo: TypeAlias = dict[str, tuple[Any, list[Segment]]]
"""The segments of a tool, a block of the instructions or a message, by its path, with the value that they were made of."""


def outline_prompt(
    body: dict[str, Any],
    format_name: str,
    *,
    model: str = "",
    keeps_text: bool = False,
    count: Callable[[str], int] = estimate_tokens,
    memo: OutlineMemo | None = None,
) -> PromptOutline:
    """The outline of a request body. `model` is for bodies that do not name it (Gemini); `count` counts the tokens of a text.

    Bodies of one conversation share a `memo`: a message that is the same object as in the one before is not read again.
    """
    name = model or str(body.get("model") or "")
    reader = _OutlineReader(keeps_text, count, {} if memo is None else memo)
    reader.add("model", "model", name)
    _READERS[format_name](reader, body)
    elsewhere = next((field for field in _ELSEWHERE if body.get(field)), "")
    key = body.get("prompt_cache_key")
    chain, digest = [], hash((format_name, key))
    for segment in reader.segments:
        digest = hash((digest, segment.digest))
        chain.append(digest)
    return PromptOutline(
        format_name,
        name,
        tuple(reader.segments),
        tuple(chain),
        sum(segment.tokens for segment in reader.segments),
        key if isinstance(key, str) else "",
        elsewhere,
        DAY if body.get("prompt_cache_retention") == "24h" else None,
    )


_ELSEWHERE = ("previous_response_id", "conversation", "previous_interaction_id", "cachedContent", "cached_content")


class _OutlineReader:
    """Collects the segments of one body."""

    def __init__(self, keeps_text: bool, count: Callable[[str], int], memo: OutlineMemo) -> None:
        self.segments: list[Segment] = []
        self._keeps_text = keeps_text
        self._count = count
        self._memo = memo

    def add(self, section: str, path: str, value: Any, role: str = "", shorthand: str = "") -> None:
        """Add a value as a segment. With `shorthand`, the text of the block is at that path in the body."""
        lifetime = _lifetime(value)
        fields = tuple(self._fields(value, path, "", shorthand))
        digest = hash((section, role, tuple((field.name, field.chunks) for field in fields)))
        size = sum(field.size for field in fields)
        tokens = 0 if section in ("model", "settings") and not isinstance(value, dict | list) else self._tokens(value)
        self.segments.append(Segment(intern(path), section, fields, digest, size, tokens, lifetime))

    def _add_once(self, path: str, value: Any, add: Callable[[], None]) -> None:
        """Call `add`, which adds the segments of a value, unless they are known."""
        known = self._memo.get(path)
        if known is None or known[0] is not value:
            start = len(self.segments)
            add()
            self._memo[path] = value, self.segments[start:]
        else:
            self.segments += known[1]

    def add_list(self, section: str, path: str, values: Any) -> None:
        for index, value in enumerate(values if isinstance(values, list) else ()):
            place = f"{path}[{index}]"
            self._add_once(place, value, partial(self.add, section, place, value))

    def add_text(self, section: str, path: str, value: Any) -> None:
        """Instructions: a text, a block, or a list of blocks."""
        if isinstance(value, str):
            text = {"type": "text", "text": value}
            self._add_once(path, value, partial(self.add, section, path, text, shorthand=path))
        elif isinstance(value, list):
            self.add_list(section, path, value)
        elif value is not None:
            self.add(section, path, value)

    def add_message(self, path: str, message: Any, content: str) -> None:
        """A message: a segment for each block of its content, then one for each call, then one for the other fields."""
        self._add_once(path, message, partial(self._add_message, path, message, content))

    def _add_message(self, path: str, message: Any, content: str) -> None:
        if not isinstance(message, dict):
            self.add("messages", path, message)
            return
        role = str(message.get("role", ""))
        section = "instructions" if role in ("system", "developer") else "messages"
        blocks, place = message.get(content), f"{path}.{content}"
        if isinstance(blocks, str):
            self.add(section, place, {"type": "text", "text": blocks}, role, shorthand=place)
        elif isinstance(blocks, list):
            for index, block in enumerate(blocks):
                self.add(section, f"{place}[{index}]", block, role)
        calls = message.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            self.add(section, f"{path}.tool_calls[{index}]", call, role)
        known = {"role", content, "tool_calls", *_NOT_PROMPT, *_ITEM_ONLY}
        if rest := {name: value for name, value in message.items() if name not in known and value is not None}:
            self.add(section, path, rest, role)

    def _fields(self, value: Any, path: str, name: str, shorthand: str) -> Iterator[Field]:
        if isinstance(value, dict):
            # the order of a block's own names is not rendered; that of the names in a schema or in arguments is
            names = sorted(value) if not name else list(value)
            for key in names:
                if key not in _NOT_PROMPT:
                    inner = f"{name}.{key}" if name else key
                    place = shorthand if shorthand and key == "text" else f"{path}.{key}"
                    yield from self._fields(value[key], place, inner, "")
            if value:
                return
        if isinstance(value, list) and value:
            for index, item in enumerate(value):
                yield from self._fields(item, f"{path}[{index}]", f"{name}[{index}]", "")
            return
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        data = text.encode("utf-8", "replace")
        chunks = tuple([hash(data[start : start + CHUNK]) for start in range(0, len(data), CHUNK)])
        yield Field(intern(path), intern(name), len(data), chunks, text if self._keeps_text else None)

    def _tokens(self, value: Any) -> int:
        if isinstance(value, str):
            is_media = len(value) > _LONGEST_WORD and " " not in value[:_LONGEST_WORD]
            return MEDIA_TOKENS if is_media else self._count(value)
        if isinstance(value, dict):
            names = "".join(key for key in value if key not in ("type", "text", *_NOT_PROMPT))
            inner = sum(self._tokens(item) for key, item in value.items() if key not in ("type", *_NOT_PROMPT))
            return inner + (self._count(names) if names else 0)
        if isinstance(value, list):
            return sum(map(self._tokens, value))
        return 0 if value is None else 1


def _lifetime(value: Any) -> float | None:
    """The lifetime of the breakpoint at a block, if it has one; for a call or a result, also inside its content."""
    if not isinstance(value, dict):
        return None
    mark = value.get("cache_control")
    if isinstance(mark, dict):
        return HOUR if mark.get("ttl") == "1h" else 5 * MINUTE
    return 30 * MINUTE if value.get("prompt_cache_breakpoint") else None


def _read_anthropic(reader: _OutlineReader, body: dict[str, Any]) -> None:
    reader.add_list("tools", "tools", body.get("tools"))
    reader.add_text("instructions", "system", body.get("system"))
    for name in ("tool_choice", "thinking"):
        reader.add("settings", name, body.get(name))
    _read_messages(reader, body, "messages", "content")
    if isinstance(body.get("cache_control"), dict) and body.get("messages"):
        last = reader.segments[-1]  # automatic caching: a breakpoint at the last block
        reader.segments[-1] = msgspec.structs.replace(last, breakpoint=_lifetime(body))


def _read_chat(reader: _OutlineReader, body: dict[str, Any]) -> None:
    reader.add("settings", "response_format", body.get("response_format"))
    reader.add_list("tools", "tools", body.get("tools"))
    _read_messages(reader, body, "messages", "content")


def _read_responses(reader: _OutlineReader, body: dict[str, Any]) -> None:
    text = body.get("text")
    reader.add("settings", "text.format", text.get("format") if isinstance(text, dict) else None)
    reader.add_list("tools", "tools", body.get("tools"))
    reader.add_text("instructions", "instructions", body.get("instructions"))
    _read_messages(reader, body, "input", "content")


def _read_gemini(reader: _OutlineReader, body: dict[str, Any]) -> None:
    name = "systemInstruction" if "systemInstruction" in body else "system_instruction"
    instruction = body.get(name)
    parts = instruction.get("parts") if isinstance(instruction, dict) else None
    reader.add_text("instructions", f"{name}.parts" if isinstance(parts, list) else name, parts or instruction)
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        declared = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        if isinstance(declared, list):
            reader.add_list("tools", f"tools[{index}].functionDeclarations", declared)
        else:
            reader.add("tools", f"tools[{index}]", tool)
    _read_messages(reader, body, "contents", "parts")


def _read_interactions(reader: _OutlineReader, body: dict[str, Any]) -> None:
    reader.add_text("instructions", "system_instruction", body.get("system_instruction"))
    reader.add_list("tools", "tools", body.get("tools"))
    _read_messages(reader, body, "input", "content")


def _read_messages(reader: _OutlineReader, body: dict[str, Any], key: str, content: str) -> None:
    messages = body.get(key)
    if isinstance(messages, list):
        for index, message in enumerate(messages):
            reader.add_message(f"{key}[{index}]", message, content)
    elif messages is not None:
        reader.add("messages", key, {"type": "text", "text": messages}, "user", shorthand=key)


_READERS: dict[str, Callable[[_OutlineReader, dict[str, Any]], None]] = {
    "anthropic": _read_anthropic,
    "openai-chat": _read_chat,
    "openai-responses": _read_responses,
    "gemini": _read_gemini,
    "gemini-interactions": _read_interactions,
}
