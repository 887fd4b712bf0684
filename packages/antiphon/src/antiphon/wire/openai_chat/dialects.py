"""How the hosts of Chat Completions differ, as data.

Reading needs no dialect: the fields of every host are known. Writing does: a `Dialect` has what a host accepts where it differs
from OpenAI; the writers never ask for a host's name. Native extras (`native["openai-chat"]`) are written back in every
dialect, except reasoning, whose fields and switches become the host's own unless the dialect echoes them.

`openai` is the default and as strict as api.openai.com. `compatible` is for hosts without an entry: it removes nothing that a
client of that host has sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import structs

from antiphon.errors import WireError
from antiphon.wire.capabilities import MediaKind
from antiphon.wire.capabilities.accepted_media import ALL_KINDS
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.limits import LONG_CALL_ID, MISTRAL_CALL_ID, MISTRAL_ID_LENGTH, SHORT_CALL_ID
from antiphon.wire.rules import name_set
from antiphon.wire.spec import HostDialect
from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.names import NameMapper, tool_names

ReasoningSwitch: TypeAlias = Literal["reasoning_effort", "thinking", "reasoning", "enable_thinking"]

LONG_IDS = IdMapper(f"(?s).{{1,{LONG_CALL_ID}}}")
SHORT_IDS = IdMapper(f"(?s).{{1,{SHORT_CALL_ID}}}")
NAMES = tool_names(FORMAT)
MISTRAL_IDS = IdMapper(MISTRAL_CALL_ID, prefix="", length=MISTRAL_ID_LENGTH)


REASONING_FIELDS = ("reasoning_content", "reasoning")
REASONING_STATE_FIELDS = name_set(
    "reasoning_details reasoning_signature reasoning_opaque encrypted_content extra_content thought_signature"
    " thinking_blocks"
)
_ALL_BUT_IMAGES = ALL_KINDS - {"image"}


class Dialect(HostDialect, frozen=True, kw_only=True):
    """What one host accepts. The defaults fit most hosts other than OpenAI."""

    id_rule: IdMapper = SHORT_IDS
    name_rule: NameMapper = NAMES
    empty_content: str | None = ""
    """The content of an assistant message that has only calls: several hosts reject null (OC-10)."""
    output_tokens_field: str = "max_tokens"
    seed_field: str = "seed"
    has_developer_role: bool = False
    has_custom_tools: bool = False
    has_stream_options: bool = True
    accepts_top_k: bool = True
    accepts_named_choice: bool = True
    required_choice: str = "required"
    enforces_schemas: bool = False
    """Whether tools and strict schemas that break OC-16 and OC-17 are rejected."""
    allows_choice_without_tools: bool = False
    """Whether `tool_choice` is allowed without tools (OC-18, OC-19)."""
    writes_result_name: bool = True
    allows_media_in_any_role: bool = False
    """Whether images, audio and files are allowed outside of user messages (OC-30)."""
    accepts_any_image: bool = False
    """Whether images other than PNG, JPEG, GIF and WebP are accepted (OC-13)."""
    accepts_document_urls: bool = False
    accepts_user_after_tool: bool = True
    """Whether a user message may follow a tool message directly (MI-02)."""
    parses_arguments: bool = True
    """Whether the host parses arguments, so that they must be a JSON object (OC-07)."""
    reasoning_field: str | None = None
    """The field for earlier reasoning; `thinking` is Mistral's content block. None: it is dropped."""
    echoes_reasoning: bool = False
    """Whether reasoning of any host is sent back in the fields it came in."""
    reasoning_state_fields: frozenset[str] = frozenset()
    """The reasoning state it accepts back."""
    reasoning_switch: ReasoningSwitch = "reasoning_effort"
    accepts_effort: bool = False
    """Whether it accepts `reasoning_effort` beside its own switch."""
    requires_reasoning: bool = False
    """Whether calls made while thinking need their reasoning, even if it is empty (DS-01)."""
    accepts_thought_signatures: bool = False

    @property
    def host_fields(self) -> frozenset[str]:
        """The names that its messages and parts may have beside OpenAI's: those of reasoning (OC-12, OC-31)."""
        if self.echoes_reasoning:
            return frozenset((*REASONING_FIELDS, *REASONING_STATE_FIELDS, "thinking"))
        return self.reasoning_state_fields | {self.reasoning_field or ""}

    @property
    def kinds_of_any_type(self) -> frozenset[MediaKind]:
        """The kinds of media whose types are not limited to those of OpenAI."""
        if self.accepts_any_image:
            return ALL_KINDS
        return frozenset() if self.enforces_schemas else _ALL_BUT_IMAGES


_OPENAI = Dialect(
    id_rule=LONG_IDS,
    empty_content=None,
    output_tokens_field="max_completion_tokens",
    has_developer_role=True,
    has_custom_tools=True,
    accepts_top_k=False,
    enforces_schemas=True,
    parses_arguments=False,
    echoes_reasoning=True,
)
OPENAI_ITSELF = structs.replace(_OPENAI, echoes_reasoning=False)
"""For api.openai.com: it returns no reasoning and documents no field for it (OC-31). A host at another address may."""
_REASONING_CONTENT = Dialect(reasoning_field="reasoning_content")

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": _OPENAI,
        "azure": structs.replace(OPENAI_ITSELF, id_rule=SHORT_IDS),
        "compatible": Dialect(
            id_rule=LONG_IDS,
            empty_content=None,
            has_developer_role=True,
            has_custom_tools=True,
            allows_choice_without_tools=True,
            allows_media_in_any_role=True,
            accepts_any_image=True,
            parses_arguments=False,
            echoes_reasoning=True,
        ),
        "deepseek": Dialect(
            reasoning_field="reasoning_content",
            reasoning_switch="thinking",
            accepts_effort=True,
            requires_reasoning=True,
            accepts_top_k=False,
        ),
        "mistral": Dialect(
            id_rule=MISTRAL_IDS,
            required_choice="any",
            seed_field="random_seed",
            has_stream_options=False,
            accepts_top_k=False,
            accepts_document_urls=True,
            accepts_user_after_tool=False,
            reasoning_field="thinking",
        ),
        "groq": Dialect(reasoning_field="reasoning", output_tokens_field="max_completion_tokens", accepts_top_k=False),
        "openrouter": Dialect(
            has_developer_role=True,
            reasoning_field="reasoning",
            reasoning_state_fields=frozenset(("reasoning_details",)),
            reasoning_switch="reasoning",
        ),
        "vllm": _REASONING_CONTENT,
        "ollama": Dialect(reasoning_field="reasoning", has_developer_role=True),
        "lmstudio": Dialect(reasoning_field="reasoning_content", accepts_named_choice=False),
        "llamacpp": Dialect(
            reasoning_field="reasoning_content", accepts_named_choice=False, allows_media_in_any_role=True
        ),
        "volcengine": Dialect(
            reasoning_field="reasoning_content",
            reasoning_state_fields=frozenset(("encrypted_content",)),
            reasoning_switch="thinking",
            accepts_top_k=False,
        ),
        "xai": Dialect(
            reasoning_field="reasoning_content", output_tokens_field="max_completion_tokens", accepts_top_k=False
        ),
        "zai": Dialect(reasoning_field="reasoning_content", reasoning_switch="thinking", accepts_top_k=False),
        "moonshot": Dialect(reasoning_field="reasoning_content", reasoning_switch="thinking", accepts_top_k=False),
        "alibaba": Dialect(reasoning_field="reasoning_content", reasoning_switch="enable_thinking"),
        "google": Dialect(
            accepts_top_k=False,
            accepts_any_image=True,
            reasoning_state_fields=frozenset(("extra_content", "thought_signature")),
            accepts_thought_signatures=True,
        ),
        "together": Dialect(reasoning_field="reasoning"),
        "cerebras": Dialect(
            reasoning_field="reasoning", output_tokens_field="max_completion_tokens", accepts_top_k=False
        ),
        "perplexity": Dialect(),
        "huggingface": Dialect(),
        "copilot": Dialect(accepts_top_k=False),
        "codebuddy": Dialect(reasoning_field="reasoning_content", begins_with_system=True, accepts_top_k=False),
    }
)
"""Every known host by name."""

UNKNOWN_HOST = Dialect(accepts_top_k=False)
"""For requests that are translated for a host without an entry: only what every host accepts. `compatible` keeps what a client of
that host sent; hosts that imitate OpenAI refuse `top_k`, and many of them the developer role and custom tools."""

RESPONSE_DIALECT = Dialect(
    id_rule=IdMapper("(?s).*"),
    name_rule=NameMapper("(?s).*"),
    empty_content=None,
    has_custom_tools=True,
    parses_arguments=False,
    reasoning_field="reasoning_content",
    echoes_reasoning=True,
    accepts_any_image=True,
)
"""Responses are written as the model produced them; other formats' reasoning in the field that most clients read."""

PLAIN_DIALECT = structs.replace(
    DIALECTS["compatible"], id_rule=RESPONSE_DIALECT.id_rule, name_rule=RESPONSE_DIALECT.name_rule
)
"""For messages that a caller wrote for a host of its own: ids, names, media and every other field stay."""


def get_dialect(dialect: str | HostDialect) -> Dialect:
    """The dialect of that name; a `Dialect` unchanged."""
    if isinstance(dialect, Dialect):
        return dialect
    found = DIALECTS.get(dialect) if isinstance(dialect, str) else None
    if found is None:
        known = ", ".join(DIALECTS)
        raise WireError(f'unknown dialect "{dialect}" for openai-chat; expected one of: {known}')
    return found
