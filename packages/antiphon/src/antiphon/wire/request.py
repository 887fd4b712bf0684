"""`ModelRequest`: what a client asks of a model, in a neutral format.

What several formats have is a field here (None: not given). What only one has stays as it came, in `native[format]` of the
request, message, part or tool that it belongs to: that format gets it back, every other reports it as a `Loss`. `source` says
where something was read, if writing it back there needs that (`wire.provenance`). Messages keep the order and grouping they
came in; `repair` makes a sequence legal, the writer makes a body legal.

`role` is `system`, `developer`, `user`, `assistant` or `tool`. A system prompt that a format keeps apart is a leading `system`
message. A result is a part of a `tool` message (OpenAI) or of a `user` message (Anthropic, Gemini); a call is a part of an
`assistant` message. A block that only one format has is a `Native` part at its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.parts import Native, NativeExtras, Part, Source
from antiphon.wire.spec import spec_of

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
Layout: TypeAlias = Literal["merged", "per_part", "iterations"]
"""How Chat Completions lay out the messages of a tool loop (`openai_chat.layouts`)."""


class Message(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """One message. `name` is the name of the participant, where a format has one."""

    role: str
    parts: tuple[Part, ...]
    name: str | None = None
    native: NativeExtras | None = None
    source: Source | None = None


class ToolDefinition(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """A tool the model may call. `parameters` is JSON Schema; a `freeform` tool takes text instead of an object."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    freeform: bool = False
    native: NativeExtras | None = None
    source: Source | None = None


class ToolChoice(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Which tools may or must be called: `auto`, `none`, `required` (any of them), `tool` (the named one), or `allowed`
    (only the named ones; with `must_call`, one of them must be called)."""

    mode: Literal["auto", "none", "required", "tool", "allowed"]
    names: tuple[str, ...] = ()
    must_call: bool = False
    native: NativeExtras | None = None
    source: Source | None = None


class OutputFormat(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The shape the answer must have."""

    kind: Literal["text", "json_object", "json_schema"]
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    native: NativeExtras | None = None
    source: Source | None = None


class Reasoning(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """How much the model may think. `effort` is a word (none, minimal, low, medium, high, xhigh, max), `budget_tokens` a number,
    `enabled` a plain yes or no, `shown` how much of it comes back (`summary` words such as auto, detailed, omitted)."""

    effort: str | None = None
    budget_tokens: int | None = None
    enabled: bool | None = None
    shown: str | None = None
    native: NativeExtras | None = None
    source: Source | None = None


class PromptCaching(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Whether and how long the provider keeps the prompt, where the request decides that (Anthropic). All other providers decide
    it themselves, and it has no effect there.

    `auto` caches a prompt that a later request is likely to repeat: it has tools, or more than one message. `volatile_parts` is
    how many parts at the end of the last user message only this request has: what ends with them is never read again. `ends` are
    user messages that end what a compaction left, counted back from the last one (0): what comes before them stays as it is.
    """

    mode: Literal["auto", "always", "off"] = "auto"
    lifetime: Literal["5m", "1h"] = "5m"
    volatile_parts: int = 0
    ends: tuple[int, ...] = ()


CachePrompt: TypeAlias = bool | Literal["auto", "5m", "1h"]
"""The same in settings: `True` is the same as `"5m"`."""


def read_cache_prompt(value: CachePrompt) -> PromptCaching:
    """The setting `cache_prompt` as part of a request. Raises `ValueError` with the values that it may have."""
    if value is False:
        return PromptCaching("off")
    if value == "auto":
        return PromptCaching()
    if value is True or value == "5m":
        return PromptCaching("always")
    if value == "1h":
        return PromptCaching("always", "1h")
    raise ValueError(f'cache_prompt={value!r}: must be True (5 minutes), "5m", "1h", "auto" or False')


CONTINUE_TEXT = "(continue)"
"""A user turn that writers add where a conversation would be empty, or must not end with the model."""
SYSTEM_NOTE_PREFIX = "[system note] "
"""The beginning of a system message that is sent as a text of the user."""


class ModelRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A request to a model. None means not given."""

    messages: tuple[Message, ...] = ()
    model: str = ""
    stream: bool | None = None
    tools: tuple[ToolDefinition | Native, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    output_format: OutputFormat | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    candidates: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    verbosity: str | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    cache_key: str | None = None
    cache_prompt: PromptCaching | None = None
    store: bool | None = None
    native: NativeExtras | None = None
    source: Source | None = None


def count_leading_system(messages: Sequence[Message]) -> int:
    """How many messages at the start are instructions of a system or a developer."""
    for index, message in enumerate(messages):
        if message.role != "system" and message.role != "developer":
            return index
    return len(messages)


def asks_for_json_object(request: ModelRequest) -> bool:
    """Whether the answer must be any JSON object: then a text of the conversation must mention JSON."""
    return request.output_format is not None and request.output_format.kind == "json_object"


def server_state(request: ModelRequest, origin: str) -> str | None:
    """The parameter by which the server of `origin` adds earlier turns to a request; None if the request is complete."""
    extras = (request.native or {}).get(origin)
    spec = spec_of(origin) if extras else None
    if extras is None or spec is None:
        return None
    return next((name for name, adds_turns in spec.server_state.items() if adds_turns(extras.get(name))), None)
