"""How the hosts of Chat Completions differ, as data.

Reading needs no dialect: the fields of every host are known. Writing does: a `Dialect` has what a host accepts where it differs
from OpenAI; the writers never ask for a host's name. Native extras (`native["openai-chat"]`) are written back in every
dialect, except reasoning, whose fields and switches become the host's own unless the dialect echoes them.

`openai` is the default and as strict as api.openai.com. `compatible` is for hosts without an entry: it removes nothing that a
client of that host has sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.errors import WireError
from antiphon.wire.capabilities import MediaKind
from antiphon.wire.capabilities.accepted_media import ALL_KINDS
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.rules import Violation
from antiphon.wire.tool_calls import IdMapper, NameMapper, tool_names
from antiphon.wire.vendors.openai import quote_value

_is_mistral = re.compile(r"mistral|mixtral|codestral|devstral|magistral|ministral|pixtral|voxtral").search
_is_mistral_id = re.compile(r"[a-zA-Z0-9]{9}").fullmatch
_is_deepseek = re.compile(r"(?:.*/)?deepseek-(?:chat|reasoner|r\d|v\d)").match

ReasoningSwitch: TypeAlias = Literal["reasoning_effort", "thinking", "reasoning", "enable_thinking"]

ID_UP_TO_64 = IdMapper(r"(?s).{1,64}")
ID_UP_TO_40 = IdMapper(r"(?s).{1,40}")  # OC-09: lifted at api.openai.com, still enforced by Azure and Copilot
NAMES = tool_names(FORMAT)
NINE_CHARACTER_ID = IdMapper(r"[a-zA-Z0-9]{9}", prefix="", length=9)  # MI-01


_ALL_BUT_IMAGES = ALL_KINDS - {"image"}


class Dialect(Struct, frozen=True, kw_only=True):
    """What one host accepts. The defaults fit most hosts other than OpenAI."""

    id_rule: IdMapper = ID_UP_TO_40
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
    def kinds_of_any_type(self) -> frozenset[MediaKind]:
        """The kinds of media whose types are not limited to those of OpenAI."""
        if self.accepts_any_image:
            return ALL_KINDS
        return frozenset() if self.enforces_schemas else _ALL_BUT_IMAGES


_OPENAI = Dialect(
    id_rule=ID_UP_TO_64,
    empty_content=None,
    output_tokens_field="max_completion_tokens",
    has_developer_role=True,
    has_custom_tools=True,
    accepts_top_k=False,
    enforces_schemas=True,
    parses_arguments=False,
    echoes_reasoning=True,
)
_REASONING_CONTENT = Dialect(reasoning_field="reasoning_content")

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": _OPENAI,
        "azure": structs.replace(_OPENAI, id_rule=ID_UP_TO_40, echoes_reasoning=False),
        "compatible": Dialect(
            id_rule=ID_UP_TO_64,
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
            id_rule=NINE_CHARACTER_ID,
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
        "codebuddy": _OPENAI,
    }
)
"""Every known host by name."""

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


def get_dialect(dialect: str | Dialect) -> Dialect:
    """The dialect of that name; a `Dialect` unchanged."""
    if isinstance(dialect, Dialect):
        return dialect
    try:
        return DIALECTS[dialect]
    except KeyError:
        known = ", ".join(DIALECTS)
        raise WireError(f'unknown dialect "{dialect}" for openai-chat; expected one of: {known}') from None


def host_advisories(
    model: str, body: dict[str, Any], messages: list[tuple[int, dict[str, Any]]]
) -> Iterator[Violation]:
    """What the host of a model refuses in a body beside OpenAI's own rules; `messages` have their index."""
    if _is_mistral(model):
        yield from _mistral_advisories(messages)
    elif _is_deepseek(model):
        yield from _deepseek_advisories(body, messages)


def advisory(rule: str, path: str, message: str) -> Violation:
    """A rule that only some models or hosts enforce."""
    return Violation(rule, path, message, advisory=True)


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message, as far as they are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _mistral_advisories(messages: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    before = None
    for index, message in messages:
        role, path = message.get("role"), f"messages[{index}]"
        if before == "tool" and role == "user":
            yield advisory("MI-02", f"{path}.role", "Unexpected role 'user' after role 'tool'")
        if role == "assistant" and not message.get("content") and not calls_of(message):
            yield advisory("MI-02", path, "Assistant message must have either content or tool_calls, but not none.")
        for place, call in enumerate(calls_of(message)):
            call_id = call.get("id")
            if isinstance(call_id, str) and not _is_mistral_id(call_id):
                expected = "must be a-z, A-Z, 0-9, with a length of 9."
                text = f"Tool call id was {quote_value(call_id)} but {expected}"
                yield advisory("MI-01", f"{path}.tool_calls[{place}].id", text)
        before = role
    if messages and before not in ("user", "tool") and not (before == "assistant" and messages[-1][1].get("prefix")):
        expected = "Expected last role User or Tool (or Assistant with prefix True) for serving"
        yield advisory("MI-02", f"messages[{messages[-1][0]}].role", f"{expected} but got {quote_value(before)}")


def _deepseek_advisories(body: dict[str, Any], messages: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    last_user = max((index for index, message in messages if message.get("role") == "user"), default=-1)
    thinking = body.get("thinking")
    thinking_enabled = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    for index, message in messages:
        if (
            thinking_enabled
            and index > last_user
            and calls_of(message)
            and not isinstance(message.get("reasoning_content"), str)
        ):
            text = "The reasoning_content in the thinking mode must be passed back to the API."
            yield advisory("DS-01", f"messages[{index}].reasoning_content", text)
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("type") in ("image_url", "input_audio", "file", "video_url"):
                text = f"messages[{index}]: unknown variant `{part['type']}`, expected `text`"
                yield advisory("OC-12", f"messages[{index}].content[{place}].type", text)
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "custom":
            yield advisory("DS-01", f"tools[{place}].type", "unknown variant `custom`, expected `function`")
