"""How the hosts that speak Chat Completions differ, as data.

Theory of operation. Reading needs no dialect: every host's fields are understood wherever they turn up. Writing does: a
`Dialect` says what a host takes where it differs from OpenAI, and the writers ask it; nobody asks for a host's name. What a
body carried of its own (`native["openai-chat"]`) is written back in every dialect; the exception is reasoning, whose fields
and switches are turned into the host's own unless the dialect keeps them as they came.

`openai` is the default and as strict as api.openai.com. `compatible` is for a host that nobody has described: it takes
nothing away that a client of that host has said.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.errors import WireError
from antiphon.wire.tool_calls import IdMapper, NameMapper

ReasoningSwitch: TypeAlias = Literal["reasoning_effort", "thinking", "reasoning", "enable_thinking"]

ANY_ID = IdMapper(r"(?s).{1,64}")
SHORT_ID = IdMapper(r"(?s).{1,40}")  # OC-09: lifted at api.openai.com, in force behind Azure and Copilot
NAMES = NameMapper(r"[a-zA-Z0-9_-]{1,64}")
NINE_LETTERS = IdMapper(r"[a-zA-Z0-9]{9}", prefix="", length=9)  # MI-01


class Dialect(Struct, frozen=True, kw_only=True):
    """What one host takes. The defaults are those of most hosts that are not OpenAI."""

    id_rule: IdMapper = SHORT_ID
    name_rule: NameMapper = NAMES
    null_content: str | None = ""
    """The content of an assistant message that only calls: several hosts refuse null (OC-10)."""
    output_tokens_field: str = "max_tokens"
    seed_field: str = "seed"
    has_developer_role: bool = False
    has_custom_tools: bool = False
    has_stream_options: bool = True
    takes_top_k: bool = True
    takes_named_choice: bool = True
    required_word: str = "required"
    enforces_schemas: bool = False
    """Whether tools and strict schemas are refused where they break OC-16 and OC-17."""
    takes_idle_choice: bool = False
    """Whether a choice among tools may come without tools (OC-18, OC-19)."""
    names_results: bool = True
    takes_media_anywhere: bool = False
    """Whether pictures, sounds and files may stand outside of user messages (OC-30)."""
    takes_any_image: bool = False
    """Whether images of other types than png, jpeg, gif and webp are taken (OC-13)."""
    takes_document_urls: bool = False
    takes_user_after_tool: bool = True
    """Whether a user message may follow a tool message directly (MI-02)."""
    argument_repair: bool = True
    """Whether arguments that are no JSON object go out as `{}`: the host parses them (OC-07)."""
    reasoning_field: str | None = None
    """Where a history's reasoning goes; `thinking` is Mistral's content part. None: it is dropped."""
    keeps_reasoning: bool = False
    """Whether reasoning of any host goes back in the fields it came in."""
    proofs: frozenset[str] = frozenset()
    """Which proofs of reasoning it takes back."""
    reasoning_switch: ReasoningSwitch = "reasoning_effort"
    takes_effort: bool = False
    """Whether it takes a word for how much to think beside its own switch."""
    needs_reasoning: bool = False
    """Whether calls made while thinking must come with their reasoning, be it empty (DS-01)."""
    takes_thought_signatures: bool = False


_OPENAI = Dialect(
    id_rule=ANY_ID,
    null_content=None,
    output_tokens_field="max_completion_tokens",
    has_developer_role=True,
    has_custom_tools=True,
    takes_top_k=False,
    enforces_schemas=True,
    argument_repair=False,
    keeps_reasoning=True,
)
_REASONING_CONTENT = Dialect(reasoning_field="reasoning_content")

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": _OPENAI,
        "azure": structs.replace(_OPENAI, id_rule=SHORT_ID, keeps_reasoning=False),
        "compatible": Dialect(
            id_rule=ANY_ID,
            null_content=None,
            has_developer_role=True,
            has_custom_tools=True,
            takes_idle_choice=True,
            takes_media_anywhere=True,
            takes_any_image=True,
            argument_repair=False,
            keeps_reasoning=True,
        ),
        "deepseek": Dialect(
            reasoning_field="reasoning_content",
            reasoning_switch="thinking",
            takes_effort=True,
            needs_reasoning=True,
            takes_top_k=False,
        ),
        "mistral": Dialect(
            id_rule=NINE_LETTERS,
            required_word="any",
            seed_field="random_seed",
            has_stream_options=False,
            takes_top_k=False,
            takes_document_urls=True,
            takes_user_after_tool=False,
            reasoning_field="thinking",
        ),
        "groq": Dialect(reasoning_field="reasoning", output_tokens_field="max_completion_tokens", takes_top_k=False),
        "openrouter": Dialect(
            has_developer_role=True,
            reasoning_field="reasoning",
            proofs=frozenset(("reasoning_details",)),
            reasoning_switch="reasoning",
        ),
        "vllm": _REASONING_CONTENT,
        "ollama": Dialect(reasoning_field="reasoning", has_developer_role=True),
        "llamacpp": Dialect(reasoning_field="reasoning_content", takes_named_choice=False, takes_media_anywhere=True),
        "volcengine": Dialect(
            reasoning_field="reasoning_content",
            proofs=frozenset(("encrypted_content",)),
            reasoning_switch="thinking",
            takes_top_k=False,
        ),
        "xai": Dialect(
            reasoning_field="reasoning_content", output_tokens_field="max_completion_tokens", takes_top_k=False
        ),
        "zai": Dialect(reasoning_field="reasoning_content", reasoning_switch="thinking", takes_top_k=False),
        "moonshot": Dialect(reasoning_field="reasoning_content", reasoning_switch="thinking", takes_top_k=False),
        "alibaba": Dialect(reasoning_field="reasoning_content", reasoning_switch="enable_thinking"),
        "google": Dialect(
            takes_top_k=False,
            takes_any_image=True,
            proofs=frozenset(("extra_content", "thought_signature")),
            takes_thought_signatures=True,
        ),
        "together": Dialect(reasoning_field="reasoning"),
        "cerebras": Dialect(
            reasoning_field="reasoning", output_tokens_field="max_completion_tokens", takes_top_k=False
        ),
        "perplexity": Dialect(),
        "huggingface": Dialect(),
        "copilot": Dialect(takes_top_k=False),
        "codebuddy": _OPENAI,
    }
)
"""Every described host by name."""


def dialect_named(dialect: str | Dialect) -> Dialect:
    """The dialect of that name; a dialect as it is."""
    if isinstance(dialect, Dialect):
        return dialect
    try:
        return DIALECTS[dialect]
    except KeyError:
        known = ", ".join(DIALECTS)
        raise WireError(f"no dialect of openai-chat is called {dialect!r}; there are: {known}") from None
