"""Tool calls across formats: legal ids and names, raw JSON arguments, and the way back.

A neutral id or tool name is used as it is where the format's rules allow it. Otherwise it is replaced by one derived from it
alone: the same in every turn, the same for a call and its result, and distinct for distinct originals (80 bits of a hash).
`CallRestorer` maps the names in an answer back to the client's.

Formats that hold arguments as an object embed the model's text unparsed, so it only has to be known to be an object. Where a
format has no freeform tools, a freeform tool becomes a function with its text as the only property.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.parts import NativeExtras, OutputPart, ToolCallRequest
from antiphon.wire.capabilities import format_capabilities, tool_name_lengths, tool_name_matcher
from antiphon.wire.codec.open_calls import OpenCalls
from antiphon.wire.delta import ModelOutputDelta, PartDelta, PartEnded, PartStarted
from antiphon.wire.json_schema import must_be_wrapped
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon.wire.spec import spec_of
from antiphon.wire.tool_namespaces import flatten

FREEFORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}

GENERATED_ID_PREFIX = "call_gm_"
"""Ids generated for calls of a format that has none begin with this; they are never written back to it."""
PORTABLE_NAME_LENGTH = 64
"""The longest tool name that every host accepts; a replacement is not longer."""
MAX_CACHED_LENGTH = 256
"""Longer keys are not cached: clients choose them, and a cache that counts entries would keep any number of megabytes."""
_MAX_CACHED = 4096
_WHITESPACE = " \t\r\n"
OBJECT_START = "{" + _WHITESPACE
"""First characters of a text that may be a JSON object. The empty string is a substring, so empty text counts too."""
_UNSAFE = re.compile(r"[^a-zA-Z0-9_]+")
_decode = msgspec.json.Decoder().decode
_skip_value = msgspec.json.Decoder(msgspec.Raw).decode


class ShortKeyCache(dict[str, str]):
    """Caches `compute` for short keys, at most 4096 of them. Look up with `cache[key]`; long keys are computed each time."""

    def __init__(self, compute: Callable[[str], str]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: str) -> str:
        value = self._compute(key)
        if len(key) <= MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[key] = value
        return value


class IdMapper:
    """Maps call ids into a pattern; a replacement begins with `prefix`. A pattern from the table is read on first use."""

    def __init__(self, pattern: str | Callable[[], str], *, prefix: str = "call_", length: int = 20) -> None:
        self._is_legal = _matcher(pattern)
        self._prefix = prefix
        self._length = length
        self.to_wire = ShortKeyCache(self._map).__getitem__

    def _map(self, call_id: str) -> str:
        if self._is_legal(call_id):
            return call_id
        return self._prefix + _hash(call_id)[: self._length]


class NameMapper:
    """Maps tool names into a pattern; a replacement has at most `max_length` characters. Both may be read on first use."""

    def __init__(
        self, pattern: str | Callable[[], str], max_length: int | Callable[[], int] = PORTABLE_NAME_LENGTH
    ) -> None:
        self._is_legal = _matcher(pattern)
        self._max_length = max_length
        self.to_wire = ShortKeyCache(self._map).__getitem__

    def declare(self, name: str, path: str, losses: list[Loss]) -> str:
        """The name of a tool that is declared; another one than its own is reported."""
        sent = self.to_wire(name)
        if sent != name:
            why = f"this API does not accept {name[:80]!r}; sent as {sent}, and calls come back under the original name"
            losses.append(Loss(f"{path}.name", "name", why))
        return sent

    def _map(self, name: str) -> str:
        if self._is_legal(name):
            return name
        return safe_name(name, self._max_length if isinstance(self._max_length, int) else self._max_length())


def tool_names(format_name: str, *, are_portable: bool = True) -> NameMapper:
    """Maps tool names into what the capability table states for a format.

    Replacements are short enough for every host; if they need not be portable, for this format.
    """

    def longest() -> int:
        return format_capabilities(format_name).tool_name_length or PORTABLE_NAME_LENGTH

    return NameMapper(
        lambda: format_capabilities(format_name).tool_name_pattern, PORTABLE_NAME_LENGTH if are_portable else longest
    )


def _matcher(pattern: str | Callable[[], str]) -> Callable[[str], re.Match[str] | None]:
    if isinstance(pattern, str):
        return re.compile(pattern).fullmatch
    read = cache(lambda: re.compile(pattern()).fullmatch)
    return lambda text: read()(text)


def safe_name(name: str, max_length: int) -> str:
    """A readable replacement of letters, digits and underscores that begins with a letter and is unique to `name`."""
    return (_cached_name if len(name) <= MAX_CACHED_LENGTH else _make_name)(name, max_length)


def _make_name(name: str, max_length: int) -> str:
    plain = _UNSAFE.sub("_", name).strip("_") or "tool"
    readable = plain if plain[0].isalpha() else f"t_{plain}"
    return f"{readable[: max_length - 11]}_{_hash(name)[:10]}"


_cached_name = lru_cache(maxsize=_MAX_CACHED)(_make_name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def raw_json_object(arguments: str) -> msgspec.Raw | None:
    """The text as JSON to embed in a body, or None if it is not a JSON object. It is scanned, not decoded."""
    try:
        raw = _skip_value(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return raw if arguments.startswith("{") or arguments.lstrip(_WHITESPACE).startswith("{") else None


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text; None if it is anything else."""
    if text[:1] not in OBJECT_START or not text.lstrip(_WHITESPACE).startswith("{"):
        return None
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict else None


EMPTY_ARGUMENTS = ("{}", "", "null")
"""What models write for a call without arguments."""


def arguments_object(call: ToolCallRequest, losses: list[Loss], path: str, rule: str) -> Any:
    """The arguments of a call as an object, unparsed where they are one; text that is not one is in `_raw`."""
    text = call.arguments
    arguments: Any = {"input": text} if call.freeform else raw_json_object(text)
    if arguments is not None:
        return arguments
    if text.strip() in EMPTY_ARGUMENTS:
        return {}
    report_raw_arguments(losses, path, rule)
    return {"_raw": text}


def report_raw_arguments(losses: list[Loss], path: str, rule: str) -> None:
    """Report arguments that are sent as `{"_raw": text}`, because a format or host requires an object."""
    source = f" ({rule})" if rule else ""
    reason = f'arguments are not a JSON object; sent as {{"_raw": text}}{source}'
    losses.append(Loss(f"{path}.arguments", "arguments", reason))


class _FreeformInput(Struct):
    input: str


LEGACY_FUNCTION = "function_call"
"""The mark of a call, result, tool or choice of the legacy function API of Chat Completions."""
LEGACY_FUNCTION_EXTRAS: NativeExtras = {"openai-chat": {LEGACY_FUNCTION: True}}


def is_legacy_function(native: NativeExtras | None) -> bool:
    """Whether a part, tool or choice is one of the legacy function API."""
    return native is not None and LEGACY_FUNCTION in native.get("openai-chat", ())


class CallRestorer:
    """Puts the client's tool names, namespaces and arguments back into what a provider answers to `request`.

    Arguments were changed if the tool is freeform, if its schema is not an object (they are in `value`), or if a property name
    was replaced. A call of a legacy function is a `function_call` again.

    Everything else is untouched: an answer without such calls comes back as the same object.
    """

    def __init__(self, request: ModelRequest) -> None:
        self._namespaces: dict[str, tuple[str, str]] = {}  # name and namespace, by the name outside of it
        self._namespace_origin = ""
        if request.native is not None and (flat := flatten(request)) is not None:
            request, self._namespaces, self._namespace_origin = flat.request, flat.names, flat.origin
        tools = [tool for tool in request.tools if isinstance(tool, ToolDefinition)]
        self._names = {safe_name(tool.name, length): tool.name for tool in tools for length in tool_name_lengths()}
        self._names |= {tool.name: tool.name for tool in tools}
        self._freeform = {tool.name for tool in tools if tool.freeform}
        self._legacy = {tool.name for tool in tools if tool.native and is_legacy_function(tool.native)}
        self._legacy_index: int | None = None  # of the only call in a stream that is one of the legacy API
        self._arguments = {tool.name: restore for tool in tools if (restore := _argument_restorer(tool)) is not None}
        self._buffered: dict[int, tuple[Callable[[str], str], list[str]]] = {}

    @property
    def is_noop(self) -> bool:
        """Whether no answer can need restoring: every tool has its own name and takes an object."""
        return (
            not self._arguments
            and not self._namespaces
            and not self._legacy
            and all(map(operator.eq, self._names.keys(), self._names.values()))
        )

    def output(self, output: ModelOutput) -> ModelOutput:
        """Restore a whole answer."""
        parts = tuple(self._part(part) for part in output.parts)
        if self._legacy:
            parts = self._with_legacy_call(parts)
        others = tuple(self.output(other) for other in output.others)
        if _all_identical(parts, output.parts) and _all_identical(others, output.others):
            return output
        return structs.replace(output, parts=parts, others=others)

    def delta(self, delta: ModelOutputDelta) -> list[ModelOutputDelta]:
        """Restore a delta. Arguments that must be changed are buffered until they are complete."""
        if isinstance(delta, PartStarted) and isinstance(delta.part, ToolCallRequest):
            call = self._call(delta.part)
            if self._legacy and (self._legacy_index is None or self._legacy_index == delta.index):
                self._legacy_index, call = delta.index, self._as_legacy(call)
            restore = self._restorer_of(delta.part)
            if restore is not None:
                self._buffered[delta.index] = restore, [call.arguments]
                call = structs.replace(call, arguments="")
            return [delta if call is delta.part else structs.replace(delta, part=call)]
        if isinstance(delta, PartDelta) and delta.index in self._buffered:
            self._buffered[delta.index][1].append(delta.text)
            return []
        if isinstance(delta, PartEnded) and delta.index in self._buffered:
            restore, pieces = self._buffered.pop(delta.index)
            return [PartDelta(delta.index, restore("".join(pieces))), delta]
        return [delta]

    def _part(self, part: OutputPart) -> OutputPart:
        if not isinstance(part, ToolCallRequest):
            return part
        call, restore = self._call(part), self._restorer_of(part)
        if restore is None or (arguments := restore(call.arguments)) == call.arguments:
            return call
        return structs.replace(call, arguments=arguments)

    def _with_legacy_call(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
        """The parts with their only call as one of the legacy API, which has no second call."""
        calls = [index for index, part in enumerate(parts) if isinstance(part, ToolCallRequest)]
        if len(calls) != 1:
            return parts
        return tuple(self._as_legacy(part) if isinstance(part, ToolCallRequest) else part for part in parts)

    def _as_legacy(self, call: ToolCallRequest) -> ToolCallRequest:
        if call.tool_name not in self._legacy or is_legacy_function(call.native):
            return call
        return structs.replace(call, native={**(call.native or {}), **LEGACY_FUNCTION_EXTRAS})

    def _restorer_of(self, call: ToolCallRequest) -> Callable[[str], str] | None:
        if call.freeform:
            return None
        return self._arguments.get(self._names.get(call.tool_name, call.tool_name))

    def _call(self, call: ToolCallRequest) -> ToolCallRequest:
        """The call with the client's tool name, freeform if its tool is; the arguments stay."""
        name = self._names.get(call.tool_name, call.tool_name)
        freeform = call.freeform or name in self._freeform
        if name == call.tool_name and freeform == call.freeform and name not in self._namespaces:
            return call
        native = call.native
        if name in self._namespaces:
            name, namespace = self._namespaces[name]
            native = {**(native or {}), self._namespace_origin: {"namespace": namespace}}
        return structs.replace(call, tool_name=name, freeform=freeform, native=native)


def must_restore_calls(request: ModelRequest, format_name: str) -> bool:
    """Whether the answer to `request` in this format may have calls that `CallRestorer` has to change."""
    spec = spec_of(format_name)
    is_legal, has_freeform = tool_name_matcher(format_name), spec is not None and spec.has_freeform_tools
    return any(
        not is_legal(tool.name) or (_argument_restorer(tool) is not None and not (tool.freeform and has_freeform))
        for tool in request.tools
        if isinstance(tool, ToolDefinition)
    )


def unwrap_freeform(arguments: str) -> str:
    """The text of a freeform call made as a function with one `input`; other text unchanged."""
    try:
        return msgspec.json.decode(arguments, type=_FreeformInput).input
    except msgspec.DecodeError:
        return arguments


def _argument_restorer(tool: ToolDefinition) -> Callable[[str], str] | None:
    """What undoes the changes that a format may make to the arguments of a tool; None if there are none."""
    from antiphon.wire.anthropic.schema import replaced_keys

    if tool.freeform:
        return unwrap_freeform
    if tool.parameters is None:
        return None
    if must_be_wrapped(tool.parameters):
        return _unwrap_value
    keys = replaced_keys(tool.parameters)
    return partial(_replace_keys, keys) if keys else None


def argument_writer(tool: ToolDefinition) -> Callable[[str], str] | None:
    """What makes the arguments of earlier calls fit the schema as Anthropic gets it; None if that is the tool's own."""
    from antiphon.wire.anthropic.schema import replaced_keys

    if tool.freeform or tool.parameters is None:
        return None
    if must_be_wrapped(tool.parameters):
        return _wrap_value
    keys = {name: key for key, name in replaced_keys(tool.parameters).items()}
    return partial(_replace_keys, keys) if keys else None


def wrap_earlier_calls(request: ModelRequest) -> tuple[Message, ...]:
    """The messages of a request, with arguments that fit the schemas whose root is written wrapped."""
    wrapped = {
        tool.name
        for tool in request.tools
        if type(tool) is ToolDefinition and tool.parameters is not None and must_be_wrapped(tool.parameters)
    }
    if not wrapped:
        return request.messages
    return tuple([_with_wrapped_calls(message, wrapped) for message in request.messages])


def _with_wrapped_calls(message: Message, wrapped: set[str]) -> Message:
    parts = [
        structs.replace(part, arguments=_wrap_value(part.arguments))
        if type(part) is ToolCallRequest and part.tool_name in wrapped and not part.freeform
        else part
        for part in message.parts
    ]
    return message if _all_identical(tuple(parts), message.parts) else structs.replace(message, parts=tuple(parts))


def _wrap_value(arguments: str) -> str:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments
    is_wrapped = isinstance(value, dict) and value.keys() == {"value"}
    return arguments if is_wrapped else msgspec.json.encode({"value": value}).decode()


def _unwrap_value(arguments: str) -> str:
    value = parse_json_object(arguments)
    if value is None or value.keys() != {"value"}:
        return arguments
    return msgspec.json.encode(value["value"]).decode()


def _replace_keys(keys: dict[str, str], arguments: str) -> str:
    value = parse_json_object(arguments)
    if value is None or value.keys().isdisjoint(keys):
        return arguments
    return msgspec.json.encode({keys.get(key, key): inner for key, inner in value.items()}).decode()


def _all_identical(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return all(map(operator.is_, left, right))


class CallIdTracker:
    """Call ids of one body in which ids may be missing, and the calls that still lack a result.

    A missing id is generated from the position of the call and the id of the body: the same every time the body is read.
    """

    __slots__ = ("_count", "_open", "_prefix")

    def __init__(self, body_id: str = "") -> None:
        digest = hashlib.sha256(body_id.encode("utf-8", "surrogatepass")).hexdigest()[:10] + "_" if body_id else ""
        self._prefix = GENERATED_ID_PREFIX + digest
        self._count = 0
        self._open = OpenCalls()

    def start_step(self) -> None:
        """A new turn of the model: later results belong to the calls after this."""
        self._open = OpenCalls()

    def add_call(self, name: str, wire_id: str | None) -> str:
        """The id of the next call; `wire_id` is its id in the body, if any."""
        call_id = wire_id if wire_id and not wire_id.startswith(GENERATED_ID_PREFIX) else self._generate_id()
        self._open.add(call_id, wire_id, name)
        return call_id

    def match_next(self, name: str, wire_id: str | None) -> str | None:
        """The id of the first call without a result, if `name` and `wire_id` match it."""
        call = self._open.first()
        if call is None or call.wire_id != wire_id or call.name != name:
            return None
        call.is_answered = True
        return call.call_id

    def match_result(self, name: str, wire_id: str | None) -> tuple[str, str | None]:
        """The id of the call a result belongs to, and the id of that call in the body."""
        call = self._open.take(name, wire_id)
        if call is None:
            return (wire_id if wire_id and not wire_id.startswith(GENERATED_ID_PREFIX) else self._generate_id()), None
        return call.call_id, call.wire_id

    def _generate_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count - 1}"
