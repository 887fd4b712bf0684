"""What a model accepts, by the family its name belongs to: the one home of such facts for all writers and checkers.

The facts are data, `capabilities.json`, made by `tools/build_capabilities.py` with a source for each. The first family whose
pattern matches the name counts. An unknown model accepts everything. A family's facts about thinking, tools and messages hold in
the formats of its own vendor; other hosts translate those, so there only its sampling rules and limits hold.

`CapabilityTable` adds a caller's own entries (`[[capabilities]]` in antiphon.toml). The data is read on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct, defstruct, structs

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ThinkingMode: TypeAlias = Literal["off", "effort", "budget", "adaptive", "level"]
MediaKind: TypeAlias = Literal["image", "document", "audio", "video"]
SystemMessages: TypeAlias = Literal["anywhere", "leading", "ignored", "none"]
Sampling: TypeAlias = Literal[
    "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "logit_bias"
]

EFFORT_BUDGETS = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 4096,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
"""The thinking budget of each effort, for models that take only one of the two."""
EFFORTS = tuple(EFFORT_BUDGETS)

_MAX_NAME_LENGTH = 256
"""No model has a longer name; the rest is ignored and not kept in a cache."""
_CACHE_SIZE = 512
_VENDOR = re.compile(r"(?:[a-z]{2,6}(?:-[a-z]+)?\.)?(?:anthropic|openai|google|x-?ai)\.")  # us.anthropic.claude-…
_EVERYWHERE = (
    "sampling",
    "temperature_with_top_p",
    "reasoning_excludes_sampling",
    "max_tokens",
    "max_output_tokens",
    "context_window",
    "media",
)
"""Facts that hold in every format, also at hosts that translate for the vendor."""


class Capabilities(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one model accepts in one format. None means unknown: nothing is assumed against the model.

    A fact with a description may be stated in antiphon.toml (`CapabilityOverride`).
    """

    family: str = ""
    """The family the facts come from; empty for an unknown model."""
    sampling: Annotated[tuple[Sampling, ...] | None, Meta(description="Sampling parameters it accepts.")] = None
    reasoning_excludes_sampling: Annotated[
        bool, Meta(description="Whether sampling parameters are refused unless reasoning is off.")
    ] = False
    temperature_with_top_p: Annotated[
        bool, Meta(description="Whether `temperature` and `top_p` are accepted together.")
    ] = True
    stop: Annotated[bool, Meta(description="Whether stop sequences are accepted.")] = True
    max_tokens: Annotated[
        bool, Meta(description="Whether `max_tokens` is accepted beside `max_completion_tokens`.")
    ] = True
    efforts: Annotated[tuple[Effort, ...] | None, Meta(description="Efforts or thinking levels it accepts.")] = None
    """Of Gemini: thinking levels. Empty: the parameter is refused."""
    default_effort: Annotated[Effort | None, Meta(description="Effort when none is given.")] = None
    efforts_without_thinking: tuple[Effort, ...] | None = None
    """The efforts that it accepts while thinking is off; None: the same."""
    thinking: Annotated[
        tuple[ThinkingMode, ...] | None, Meta(description="How thinking can be set. Empty: not at all.")
    ] = None
    min_budget: Annotated[int | None, Meta(description="Smallest thinking budget.")] = None
    max_budget: Annotated[int | None, Meta(description="Largest thinking budget.")] = None
    thinking_with_forced_tool: Annotated[
        bool, Meta(description="Whether thinking is accepted with a forced tool call.")
    ] = True
    forced_tool_choice: Annotated[bool, Meta(description="Whether a tool call can be forced.")] = True
    prefill: Annotated[bool, Meta(description="Whether the last message may be the model's.")] = True
    prefill_with_thinking: bool = True
    parallel_tool_switch: Annotated[bool, Meta(description="Whether `parallel_tool_calls` is accepted.")] = True
    strict_tools: Annotated[bool | None, Meta(description="Whether tools may be strict.")] = None
    structured_output: Annotated[bool | None, Meta(description="Whether an output schema is accepted.")] = None
    unsupported_schema_keywords: tuple[str, ...] = ()
    """Keywords refused in strict tools and output formats."""
    max_min_items: int | None = None
    """The largest `minItems` accepted there."""
    closed_schemas: bool = False
    """Whether every object there must have `additionalProperties: false`."""
    root_combinators: bool = True
    """Whether the schema of a tool may have oneOf, anyOf or allOf at its root."""
    property_key_pattern: str = ""
    """The property names that the schema of a tool may have there; empty: all."""
    system_messages: Annotated[SystemMessages | None, Meta(description="Where system messages are accepted.")] = None
    web_search: Annotated[bool, Meta(description="Whether `web_search_options` is accepted.")] = True
    media: Annotated[tuple[MediaKind, ...] | None, Meta(description="Kinds of media it accepts. Empty: text only.")] = (
        None
    )
    image_types: Annotated[
        tuple[str, ...] | None, Meta(description="Types of inline images (formats `anthropic` and `gemini`).")
    ] = None
    document_types: Annotated[
        tuple[str, ...] | None, Meta(description="Types of documents; `text/*` means every type that begins like this.")
    ] = None
    audio_types: Annotated[tuple[str, ...] | None, Meta(description="Types of audio.")] = None
    video_types: Annotated[tuple[str, ...] | None, Meta(description="Types of video.")] = None
    media_in_results: Annotated[bool, Meta(description="Whether tool results may hold media.")] = True
    call_signatures: Annotated[bool, Meta(description="Whether calls need a thought signature.")] = False
    encrypted_reasoning: Annotated[
        bool, Meta(description="Whether `reasoning.encrypted_content` may be included (format `openai-responses`).")
    ] = False
    compaction: Annotated[
        bool,
        Meta(description="Whether the API compacts conversations itself (formats `anthropic` and `openai-responses`)."),
    ] = False
    tool_name_pattern: str = ""
    tool_name_length: int | None = None
    tool_id_pattern: str = ""
    tool_id_length: int | None = None
    cache_breakpoints: Annotated[int | None, Meta(description="Largest number of `cache_control` marks.")] = None
    candidates: Annotated[int | None, Meta(description="Largest number of candidates.")] = None
    max_output_tokens: Annotated[int | None, Meta(description="Largest number of output tokens.")] = None
    context_window: Annotated[int | None, Meta(description="Tokens of the context window.")] = None

    @property
    def is_known(self) -> bool:
        return self.family != ""

    @property
    def compaction_limit(self) -> int | None:
        """The number of tokens at which a conversation should be summarised: it leaves a fifth of the context window free, and
        room for the longest answer; half of the window, where that answer may take all of it. None if it is not known."""
        window = self.context_window
        if window is None:
            return None
        left = window - (self.max_output_tokens or 0)
        return min(window * 4 // 5, left) if left > 0 else window // 2

    def accepts_thinking(self, mode: ThinkingMode) -> bool:
        """Whether thinking may be set in this way; unknown models accept all."""
        return self.thinking is None or mode in self.thinking

    def accepts_image(self, media_type: str) -> bool:
        """Whether inline images of a type are accepted."""
        return self.image_types is None or media_type in self.image_types

    def accepts_media(self, kind: MediaKind, media_type: str = "") -> bool:
        """Whether media of a kind and a type are accepted; an empty type is not known, and counts as accepted."""
        if self.media is not None and kind not in self.media:
            return False
        types: tuple[str, ...] | None = getattr(self, f"{kind}_types")
        if types is None or not media_type:
            return True
        return media_type in types or f"{media_type.partition('/')[0]}/*" in types

    @property
    def never_thinks(self) -> bool:
        """Whether every setting of thinking is refused, or only `off` is accepted."""
        return self.thinking is not None and not any(mode != "off" for mode in self.thinking)

    def nearest_effort(self, effort: str) -> str:
        """The effort to send instead of one that the model may not know: the next lower one, else the lowest but `none`."""
        if not self.efforts or effort in self.efforts or effort not in EFFORT_BUDGETS:
            return effort
        wanted = EFFORTS.index(effort)
        lower = [known for known in self.efforts if EFFORTS.index(known) < wanted and known != "none"]
        return lower[-1] if lower else next((known for known in self.efforts if known != "none"), self.efforts[0])


def effort_for_budget(tokens: int) -> str:
    """The largest effort whose budget is at most this number of tokens; below the smallest, `minimal`."""
    if tokens <= 0:
        return "none"
    return next((effort for effort in reversed(EFFORTS) if 0 < EFFORT_BUDGETS[effort] <= tokens), "minimal")


class Family(Struct, frozen=True):
    """A row of the table: the pattern of its names, the formats of its vendor, its facts, and the source of each."""

    name: str
    match: str
    home: tuple[str, ...]
    examples: tuple[str, ...]
    facts: dict[str, Any]
    sources: dict[str, str]


class FormatFacts(Struct, frozen=True):
    """Facts that hold for every model in a format; `source` is that of the facts that `sources` does not have."""

    facts: dict[str, Any]
    source: str
    sources: dict[str, str] = {}


class CapabilityData(Struct, frozen=True):
    """The committed data."""

    packages: dict[str, str]
    formats: dict[str, FormatFacts]
    families: tuple[Family, ...]


@cache
def capability_data() -> CapabilityData:
    """The committed data, read once."""
    return msgspec.json.decode(Path(__file__).parent.with_suffix(".json").read_bytes(), type=CapabilityData)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Family], ...]:
    return tuple((re.compile(family.match), family) for family in capability_data().families)


@lru_cache(_CACHE_SIZE)
def _find_family(name: str) -> Family | None:
    plain = name.lower().rsplit("/", 1)[-1].removeprefix("ft:")
    vendor = _VENDOR.match(plain)
    plain = plain[vendor.end() :] if vendor else plain
    return next((family for pattern, family in _patterns() if pattern.match(plain)), None)


def find_family(model: str) -> Family | None:
    """The family of a model by its name, which may have a vendor, a region or `models/` before it."""
    return _find_family(model[:_MAX_NAME_LENGTH])


@cache
def format_capabilities(format_name: str) -> Capabilities:
    """What every model accepts in a format: tool names and ids, image types, cache breakpoints."""
    return msgspec.convert(_format_facts(format_name), Capabilities)


def _format_facts(format_name: str) -> dict[str, Any]:
    """The facts of a format: those of the table, else its own."""
    known = capability_data().formats.get(format_name)
    if known is not None:
        return known.facts
    from antiphon.wire.spec import spec_of  # which has the types of this module

    spec = spec_of(format_name)
    return msgspec.to_builtins(spec.facts) if spec is not None and spec.facts is not None else {}


@cache
def tool_name_matcher(format_name: str) -> Callable[[str], re.Match[str] | None]:
    """Matches the tool names that a format accepts."""
    return re.compile(format_capabilities(format_name).tool_name_pattern or "(?s).*").fullmatch


def tool_name_lengths() -> tuple[int, ...]:
    """The longest tool names of all formats, shortest first."""
    from antiphon.wire.spec import registered

    return _name_lengths(registered())


@lru_cache(_CACHE_SIZE)
def _name_lengths(format_names: tuple[str, ...]) -> tuple[int, ...]:
    lengths = {format_capabilities(name).tool_name_length for name in format_names}
    return tuple(sorted(length for length in lengths if length is not None))


@cache
def property_key_patterns() -> tuple[str, ...]:
    """The patterns of property names of all formats that have one."""
    patterns = (format_capabilities(name).property_key_pattern for name in capability_data().formats)
    return tuple(sorted({pattern for pattern in patterns if pattern}))


@lru_cache(_CACHE_SIZE)
def _look_up(model: str, format_name: str) -> Capabilities:
    facts = dict(_format_facts(format_name))
    family = _find_family(model)
    if family is not None:
        is_home = format_name in family.home
        limits = facts.get("media")
        facts.update({name: value for name, value in family.facts.items() if is_home or name in _EVERYWHERE})
        facts["family"] = family.name
        if limits is not None:  # a format has no place for other kinds, whatever the model accepts elsewhere
            facts["media"] = [kind for kind in facts["media"] if kind in limits]
    return msgspec.convert(facts, Capabilities)


def capabilities_for(model: str, format_name: str, table: CapabilityTable | None = None) -> Capabilities:
    """What a model accepts in a format: by the caller's table, or the built-in one."""
    if table is not None:
        return table.capabilities_for(model, format_name)
    return _look_up(model[:_MAX_NAME_LENGTH], format_name)


def _given_facts(self: Any) -> dict[str, Any]:
    """The facts that an override states."""
    given = structs.asdict(self)
    text_only = given.pop("text_only")
    facts = {name: value for name, value in given.items() if value is not None and name not in ("model", "like")}
    if text_only is not None:
        facts.setdefault("media", () if text_only else None)
    return facts


if TYPE_CHECKING:

    class CapabilityOverride(Capabilities, frozen=True, kw_only=True):
        """Facts about models that the table does not know, or knows wrongly."""

        model: str
        like: str = ""
        text_only: bool | None = None

        @property
        def facts(self) -> dict[str, Any]: ...

else:

    def _override_fields() -> Iterator[tuple[str, Any, Any]]:
        """`model`, `like`, and each fact that has a description, which is None if it is not given."""
        model = "Model name as the provider knows it; `*`, `?` and `[…]` match."
        yield "model", Annotated[str, Meta(min_length=1, description=model)], NODEFAULT
        like = "A known model whose facts to start from. Default: the model's own."
        yield "like", Annotated[str, Meta(description=like)], ""
        for name, kind in get_type_hints(Capabilities, include_extras=True).items():
            if get_origin(kind) is Annotated:
                fact, meta = get_args(kind)
                yield name, Annotated[fact | None, meta], None
            if name == "media":
                text_only = "Whether every medium is refused: `media = []`."
                yield "text_only", Annotated[bool | None, Meta(description=text_only)], None

    CapabilityOverride = defstruct(
        "CapabilityOverride",
        _override_fields(),
        module=__name__,
        namespace={
            "__doc__": "Facts about models that the table does not know, or knows wrongly.",
            "facts": property(_given_facts),
        },
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


class CapabilityTable:
    """The built-in facts with a caller's own entries; of several that match a model, later ones win."""

    def __init__(self, overrides: Iterable[CapabilityOverride] = ()) -> None:
        self.overrides = tuple(overrides)
        self._look_up = lru_cache(_CACHE_SIZE)(self._merge)

    def capabilities_for(self, model: str, format_name: str) -> Capabilities:
        """What a model accepts in a format."""
        return self._look_up(model[:_MAX_NAME_LENGTH], format_name)

    def _merge(self, model: str, format_name: str) -> Capabilities:
        known = capabilities_for(model, format_name)
        for override in self.overrides:
            if fnmatchcase(model, override.model):
                base = capabilities_for(override.like, format_name) if override.like else known
                known = structs.replace(base, family=base.family or override.model, **override.facts)
        return known


_SHOWN_BY_REFUSALS: tuple[tuple[str, dict[str, Any]], ...] = (
    # Anthropic: AN-03, AN-07, AN-31, AN-19
    (r"role 'system' is not supported on this model", {"system_messages": "leading"}),
    (r"does not support assistant message prefill", {"prefill": False}),
    (r"`?temperature`? and `?top_p`? cannot both", {"temperature_with_top_p": False}),
    (r"Thinking may not be enabled when tool_choice forces", {"thinking": ("off",)}),
    (r"temperature is deprecated for this model", {"sampling": ()}),
    # AN-18: hosts that have no prompt cache, or not for this model
    (r"cache_control: Extra inputs are not permitted|did not allow prompt caching", {"cache_breakpoints": 0}),
    # OpenAI: OC-02, OC-26, OC-27
    (r"role' does not support '(system|developer)'", {"system_messages": "none"}),
    (r"'stop' is not supported with this model", {"stop": False}),
    (r"'max_tokens' is not supported with this model", {"max_tokens": False}),
    (r"'(temperature|top_p)' (is not supported|does not support)", {"sampling": ()}),
    # Google
    (r"Multiple candidates is not enabled", {"candidates": 1}),
)


def facts_in_refusal(message: str) -> CapabilityOverride | None:
    """The facts to write the next request with that a provider's refusal shows; None if it is about something else.

    The table cannot know every model: deployments have names of their own, and models change. The error texts of providers
    have stayed the same for years.
    """
    shown = next((facts for pattern, facts in _SHOWN_BY_REFUSALS if re.search(pattern, message)), None)
    return None if shown is None else CapabilityOverride(model="*", **shown)
