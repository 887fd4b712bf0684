"""`ModelSettings`: how a model answers: length, sampling, reasoning, tool choice. For a conversation, a run or one call.

A field that is not set is left to the conversation, then to the provider. What a provider cannot express is a reported loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from msgspec import Struct, structs

from antiphon.errors import ConversationError
from antiphon.extensions import adapt
from antiphon.parts import NativeExtras
from antiphon.providers.call import ProviderClient
from antiphon.wire.request import (
    CachePrompt,
    ModelRequest,
    OutputFormat,
    Reasoning,
    ToolChoice,
    read_cache_prompt,
)


class ModelSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """Settings of model calls. None: not set.

    `reasoning` may be a word (`"high"`), `stop` one text, `tool_choice` a mode or the name of a tool. `cache_prompt` is how
    long Anthropic keeps the prompt: five minutes (`True`), an hour (`"1h"`), not at all (`False`), or five minutes if a later
    request is likely to repeat it (`"auto"`, the default). `native` has fields that only one format has: `{"anthropic": {...}}`.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | str | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning: Reasoning | str | None = None
    verbosity: str | None = None
    tool_choice: ToolChoice | str | None = None
    parallel_tool_calls: bool | None = None
    output_format: OutputFormat | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    cache_key: str | None = None
    cache_prompt: CachePrompt | None = None
    store: bool | None = None
    native: NativeExtras | None = None

    def __post_init__(self) -> None:
        for name in ("max_output_tokens", "top_k"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConversationError(f"{name}={value!r}: must be a whole number of at least 1")
        for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ConversationError(f"{name}={value!r}: must be a number")
        _check_output_format(self.output_format)
        if self.cache_prompt is not None:
            try:
                read_cache_prompt(self.cache_prompt)
            except ValueError as error:
                raise ConversationError(str(error)) from None

    def as_request(self) -> ModelRequest:
        """The settings as fields of a request."""
        fields: dict[str, Any] = {
            name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None
        }
        if isinstance(self.stop, str):
            fields["stop"] = (self.stop,)
        if isinstance(self.reasoning, str):
            fields["reasoning"] = Reasoning(effort=self.reasoning)
        if isinstance(self.tool_choice, str):
            is_mode = self.tool_choice in ("auto", "none", "required")
            mode: Any = self.tool_choice if is_mode else "tool"
            fields["tool_choice"] = ToolChoice(mode, () if is_mode else (self.tool_choice,))
        if self.cache_prompt is not None:
            fields["cache_prompt"] = read_cache_prompt(self.cache_prompt)
        return ModelRequest(**fields)


SettingsLike: TypeAlias = ModelSettings | ModelRequest | Mapping[str, Any]
"""Settings as a caller may give them: `ModelSettings(temperature=0)`, or a dict with the same names."""


def read_settings(settings: SettingsLike | None, base: ModelRequest | None = None) -> ModelRequest:
    """The settings as fields of a request; what they do not set is taken from `base`."""
    if settings is None:
        return base or ModelRequest()
    if isinstance(settings, Mapping):
        settings = _from_mapping(settings)
    if isinstance(settings, ModelSettings):
        settings = settings.as_request()
    if not isinstance(settings, ModelRequest):
        raise ConversationError(
            f"settings={settings!r}: use ModelSettings(temperature=0), or a dict with the same names"
        )
    if ignored := [name for name in ("messages", "model", "tools", "stream") if getattr(settings, name)]:
        raise ConversationError(
            f"settings cannot set {', '.join(ignored)}: the conversation has its messages, model and tools; use ModelSettings"
        )
    _check_output_format(settings.output_format)
    if base is None:
        return settings
    given = {name: value for name, value in structs.asdict(settings).items() if value is not None and value != ()}
    return structs.replace(base, **{name: value for name, value in given.items() if name != "model" or value})


def _from_mapping(settings: Mapping[str, Any]) -> ModelSettings:
    known = ModelSettings.__struct_fields__
    for name in settings:
        if name not in known:
            near = get_close_matches(str(name), [*known, *_OTHER_NAMES], 1)
            hint = f"; did you mean {_OTHER_NAMES.get(near[0], near[0])}?" if near else f"; use {', '.join(known)}"
            raise ConversationError(f"unknown setting {name!r}{hint}")
    return ModelSettings(**settings)


_OUTPUT_KINDS = ("text", "json_object", "json_schema")
_OTHER_NAMES = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "stop_sequences": "stop",
    "reasoning_effort": "reasoning",
    "thinking": "reasoning",
    "response_format": "output_format",
    "extra_body": "native",
    "cache_control": "cache_prompt",
}
"""Names that provider SDKs use."""


def _check_output_format(output_format: Any) -> None:
    if output_format is None:
        return
    if not isinstance(output_format, OutputFormat):
        raise ConversationError(
            f"output_format={output_format!r}: use OutputFormat('json_schema', schema), or run(…, output=YourType)"
        )
    if output_format.kind not in _OUTPUT_KINDS:
        raise ConversationError(f"output_format.kind={output_format.kind!r}: use one of {', '.join(_OUTPUT_KINDS)}")
    if output_format.kind == "json_schema" and not isinstance(output_format.schema, dict):
        raise ConversationError("output_format.schema is missing: OutputFormat('json_schema', {'type': 'object', …})")


def check_model(model: object) -> str | ProviderClient:
    """A model as a name or a client; an empty name is the default. Raises `ConversationError`."""
    if isinstance(model, str) and model and (not model.isprintable() or "" in map(str.strip, model.split("/"))):
        raise ConversationError(
            f"model={model!r}: no model has this name; it is provider/model, or a name of the provider"
        )
    if model is None or isinstance(model, str | ProviderClient):
        return model or ""
    adapted: ProviderClient | None = adapt("model", model)
    if adapted is None:
        raise ConversationError(f"a model is a name or a ProviderClient, not {type(model).__name__}")
    return adapted
