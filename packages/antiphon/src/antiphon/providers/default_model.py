"""The model to use if none is named: the best one that the environment has a key for, and one line with the reason.

In this order: `ANTIPHON_MODEL`; the first provider of `PREFERRED` whose key is set; a local server whose variable is set; else
the offline model, which needs nothing. Only names of variables are shown, never their values (law L10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from antiphon.model_name import ModelName
from antiphon.providers.presets import PRESETS

PREFERRED: tuple[tuple[str, str], ...] = (
    ("anthropic", "claude-sonnet-5"),
    ("openai", "gpt-5.5"),
    ("gemini", "gemini-3.5-flash"),
    ("deepseek", "deepseek-v4-flash"),
    ("mistral", "mistral-large-latest"),
    ("xai", "grok-4.3"),
    ("alibaba", "qwen3-max"),
    ("openrouter", "openai/gpt-4o-mini"),
)
"""Providers in order of preference, each with the model that is used if its key is set."""

LOCAL_SERVERS: tuple[tuple[str, str], ...] = (("ollama", "llama3.2"), ("vllm", "default"), ("llamacpp", "default"))
"""Local servers, used if the variable with their URL is set."""

OFFLINE = "offline/plain"
MODEL_VARIABLE = "ANTIPHON_MODEL"

ChoiceKind = Literal["", "named", "offline", "key", "keys", "asked", "gateway"]
CHOICE_TEXTS: Mapping[ChoiceKind, tuple[str, str]] = MappingProxyType(
    {
        "named": ("named by {variable}", "Change {variable}, or name another model as provider/model."),
        "offline": (
            "not a language model, needs no key and no network",
            "For a real one set a key ({keys}, …) or {variable}.",
        ),
        "key": ("{key} is set", "Set {variable} or name another model to change it."),
        "asked": ("as you asked", "Name another model as provider/model to change it."),
        "gateway": ("a model of this gateway", "Choose another from the menu, or name any this gateway serves."),
        "keys": ("{key} is set", "Set {variable} or name another model to change it (also available: {models})."),
    }
)
"""The reason and the hint of each kind of choice; a chat may translate them."""


class ModelChoice(Struct, frozen=True):
    """A model, why it was chosen, and how to choose another. `str` is the line to show."""

    model: str
    reason: str
    hint: str
    kind: ChoiceKind = ""
    values: Mapping[str, str] = {}
    """The kind of a choice made here and the values in its texts, for a chat in another language."""

    def __str__(self) -> str:
        return f"{self.model}: {self.reason}. {self.hint}"


def default_model(environ: Mapping[str, str]) -> ModelChoice:
    """The best model that the environment has a key for."""
    if model := environ.get(MODEL_VARIABLE, "").strip():
        return make_choice(model, "named")
    available = list(available_models(environ))
    if not available:
        keys = ", ".join(PRESETS[provider].key_variables[0] for provider, _ in PREFERRED[:3])
        return make_choice(OFFLINE, "offline", keys=keys)
    model, key = available[0]
    others = [other for other, _ in available[1:4]]
    return make_choice(model, "keys" if others else "key", key=key, models=", ".join(others))


def make_choice(model: str, kind: ChoiceKind, **values: str) -> ModelChoice:
    """A choice of that kind, with its texts."""
    values["variable"] = MODEL_VARIABLE
    reason, hint = (text.format(**values) for text in CHOICE_TEXTS[kind])
    return ModelChoice(model, reason, hint, kind, values)


def available_models(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The models that the environment has a key or a server for, the best one first, each with the variable that says so."""
    for provider, model in (*PREFERRED, *LOCAL_SERVERS):
        if variable := PRESETS[provider].enabling_variable(environ):
            yield f"{provider}/{model}", variable


def is_tour(model: str) -> bool:
    """Whether a name is that of the guided tour, with or without its model."""
    return (ModelName.parse(model).provider or model) == "offline"
