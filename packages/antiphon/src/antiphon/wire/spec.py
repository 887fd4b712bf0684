"""`FormatSpec`: what a format package says about itself, and the list of the packages.

Shared code knows no format by name. What only one has is a field of its spec; shared code asks for the spec of the *origin* of a
part, or of the *target* of a body. So a format is closed: `antiphon.wire.register("package.name")` is all that adds one, and
`detect_format` guesses the format of a body from the signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

from msgspec import Struct

from antiphon.parts import Part
from antiphon.wire.capabilities import Capabilities, MediaKind

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class SequenceRule(Struct, frozen=True):
    """The order of calls and results that a format accepts."""

    results_follow_calls: bool = True
    """Results come directly after the message with their calls."""
    results_first: bool = True
    """In a message with results and other parts, results come first."""
    merges_assistant_turns: bool = False
    """Adjacent assistant messages count as one."""
    unique_ids: bool = False
    """Call ids are unique in the whole request, not only in one turn."""
    stored_items: tuple[str, ...] = ()
    """The types of native blocks that stand for turns on the server, where the call of a result may be."""
    origin: str = ""
    """The format of these blocks."""


class FormatSignature(Struct, frozen=True, kw_only=True):
    """What identifies a request body, where several formats keep their messages under the same key."""

    body_keys: frozenset[str] = frozenset()
    tool_keys: frozenset[str] = frozenset()
    message_keys: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    block_types: frozenset[str] = frozenset()
    message_types: frozenset[str] = frozenset()


class HostDialect(Struct, frozen=True, kw_only=True):
    """What a host of a format accepts, where hosts differ; each format adds its own fields."""

    begins_with_system: bool = False
    """Whether the first message must be a system message."""


class MediaBlocks(Struct, frozen=True, kw_only=True):
    """Where the media of a body are."""

    tag: str = "type"
    """The field that names the type of a block."""
    kinds: Mapping[str, MediaKind] = _NOTHING
    """The kind of medium in a block, by its type."""
    fields: tuple[str, ...] = ()
    """Fields that hold a medium of any kind, where blocks have no type."""
    containers: tuple[str, ...] = ("content",)
    """Fields of messages and blocks that hold more blocks."""
    type_of: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """The media type that a block states, in lower case; empty if it does not."""


class ServerCompaction(Struct, frozen=True):
    """How an API is asked to compact a long conversation itself: the value of `context_management` for a number of tokens, the
    least number that it takes, and the beta of Anthropic that it needs."""

    setting: Callable[[int], Any]
    least_tokens: int
    beta: str = ""


class FormatSpec(Struct, frozen=True, kw_only=True):
    """The facts a format declares about itself."""

    messages_key: str
    sequence_rule: SequenceRule
    required: frozenset[str] = frozenset()
    """Fields that a request must have where the rules of its format report them, and for which there is no value to fill in."""
    signature: FormatSignature = FormatSignature()
    options: frozenset[str] = frozenset()
    """The fields of `WriteOptions` that it has."""
    tag: str = "type"
    """The field that names the type of a block; empty if a block is known by the fields that it has."""
    facts: Capabilities | None = None
    """What every model accepts in it, if the table of capabilities does not say."""
    server_state: Mapping[str, Callable[[Any], object]] = _NOTHING
    """The parameters by which its server adds turns that it has stored; each with the test of a value that does."""
    is_local_detail: Callable[[str, Any], bool] = lambda _name, _value: False
    """Whether an extra changes nothing for another provider: it is not content, and states what is true without it."""
    has_native_text: bool = False
    """Whether blocks that only it has can be put into words: `READERS` in its module `native_text`."""
    media_blocks: MediaBlocks = MediaBlocks()
    pasted_types: frozenset[str] = frozenset()
    """The types of its blocks that clients paste into messages of other formats; `read_pasted` reads one."""
    read_pasted: Callable[[Mapping[str, Any]], Part | None] = lambda _: None
    """The part in such a block; None if it is malformed."""
    reads_pasted: bool = False
    """Whether pasted blocks of other formats are recognised in its messages."""
    normalizes_streams: bool = False
    """Whether hosts of this format stream in ways that its official client cannot read."""
    calls_need_tools: bool = False
    """Whether hosts of this format refuse calls in the history of a request without tools."""
    tool_parameters: frozenset[str] = frozenset()
    """Its own parameters that bring tools beside `tools`."""
    has_tool_namespaces: bool = False
    """Whether tools may be in namespaces and in messages: `flatten` in its module `namespaces` puts them into one list."""
    has_freeform_tools: bool = False
    """Whether tools may take text instead of an object."""
    repeats_settings: bool = False
    """Whether a response repeats settings of its request; `request_settings` and `with_settings` of its module `response`."""
    marked_messages: int = 0
    """How many user messages at the end of a request get a cache breakpoint; 0: providers decide themselves what they cache."""
    compaction: ServerCompaction | None = None
    """How the API compacts conversations itself, if it does; models have it or not (`Capabilities.compaction`)."""
    keep_alive: bytes = b": keep-alive\n\n"
    """What a client gets while the model is silent; its parser must pass over it."""
    has_comments: bool = True
    """Whether streams may have comments; without, the keep-alive is the beginning of the next event."""


_packages: dict[str, str] = {}


def add_package(package: str) -> str:
    """Add a package to the list, and return the name of its format."""
    name = package.rpartition(".")[2].replace("_", "-")
    _packages[name] = package
    return name


def remove_package(name: str) -> None:
    """Remove the package of a format from the list."""
    del _packages[name]


def registered() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(_packages)


def load_module(name: str, module: str) -> Any:
    """A module of a registered format."""
    return import_module(f"{_packages[name]}.{module}")


@cache
def load_spec(package: str) -> FormatSpec:
    return cast(FormatSpec, import_module(package).SPEC)


def find_pasted(kind: Any, origin: str) -> FormatSpec | None:
    """The format other than `origin` whose blocks of this type clients paste into messages."""
    if not isinstance(kind, str):
        return None
    specs = (load_spec(package) for name, package in _packages.items() if name != origin)
    return next((spec for spec in specs if kind in spec.pasted_types), None)


def spec_of(origin: str) -> FormatSpec | None:
    """The spec of a format; None for an origin that is not one, such as a mark."""
    package = _packages.get(origin)
    return None if package is None else load_spec(package)


def detect_format(body: Any) -> str | None:
    """The only format a request body can be in; None if several fit, or none."""
    if not isinstance(body, dict):
        return None
    specs = {name: load_spec(package) for name, package in _packages.items()}
    possible = {name: spec for name, spec in specs.items() if spec.messages_key in body}
    if len(possible) > 1:
        matching = {name: spec for name, spec in possible.items() if _matches(spec.signature, spec.messages_key, body)}
        # A format without a signature is the usual one for its key.
        possible = matching or {name: spec for name, spec in possible.items() if spec.signature == FormatSignature()}
    return next(iter(possible)) if len(possible) == 1 else None


def is_signed(name: str, messages: Sequence[Any]) -> bool:
    """Whether a list of messages has something that only the format has."""
    spec = load_spec(_packages[name])
    return _matches(spec.signature, spec.messages_key, {spec.messages_key: list(messages)})


def _matches(signature: FormatSignature, messages_key: str, body: dict[str, Any]) -> bool:
    """Whether the body has anything that only this format has."""
    if not signature.body_keys.isdisjoint(body):
        return True
    if any(not signature.tool_keys.isdisjoint(tool) for tool in _objects(body.get("tools"))):
        return True
    for message in _objects(body[messages_key]):
        role, kind = message.get("role"), message.get("type")
        if isinstance(kind, str) and kind in signature.message_types:
            return True
        if (isinstance(role, str) and role in signature.roles) or not signature.message_keys.isdisjoint(message):
            return True
        kinds = (block.get("type") for block in _objects(message.get("content")))
        if any(isinstance(kind, str) and kind in signature.block_types for kind in kinds):
            return True
    return False


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
