"""Each field of a request is written or reported as a loss, in every format and by every host of Chat Completions (L3)."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.parts import Text
from antiphon.wire import FORMATS, formats
from antiphon.wire.openai_chat.dialects import DIALECTS
from antiphon.wire.request import (
    Message,
    ModelRequest,
    OutputFormat,
    PromptCaching,
    Reasoning,
    ToolChoice,
    ToolDefinition,
)
from support.cases import each_case

SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
PLAIN = ModelRequest(messages=(Message("user", (Text("hi"),)),))
FIELDS: dict[str, Any] = {
    "messages": (Message("user", (Text("Other words."),)),),
    "model": "a-model",
    "stream": True,
    "tools": (ToolDefinition("look"),),
    "tool_choice": ToolChoice("required"),
    "parallel_tool_calls": False,
    "output_format": OutputFormat("json_schema", SCHEMA),
    "reasoning": Reasoning("low"),
    "max_output_tokens": 77,
    "stop": ("x",),
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "candidates": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "verbosity": "low",
    "user": "ada",
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "cache_key": "k",
    "cache_prompt": PromptCaching("always"),
    "store": True,
    "native": {"another-format": {"x": 1}},
}
IN_THE_URL = {"gemini": ("model", "stream")}
CACHES_BY_ITSELF = frozenset(FORMATS) - {"anthropic"}
"""The formats whose providers decide what they cache: the setting has no effect there, and nothing is lost."""


def test_every_field_has_a_value_here() -> None:
    assert FIELDS.keys() == set(ModelRequest.__struct_fields__) - {"source"}


@each_case("field", FIELDS)
@each_case(
    ("name", "options"),
    [*((name, {}) for name in FORMATS), *(("openai-chat", {"dialect": one}) for one in sorted(DIALECTS))],
)
def test_a_field_is_written_or_a_loss(name: str, options: Any, field: str) -> None:
    wire = formats[name]
    plain, no_losses = wire.write_request(PLAIN, **options)
    assert no_losses == []
    body, losses = wire.write_request(structs.replace(PLAIN, **{field: FIELDS[field]}), **options)
    if field == "cache_prompt" and name in CACHES_BY_ITSELF:
        assert (body, losses) == (plain, [])
        return
    assert (body != plain) is not bool(losses) or field in IN_THE_URL.get(name, ())
