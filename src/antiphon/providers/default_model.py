"""Which model to talk to when nobody said: the best the environment offers, and one line that says what, why and how else.

The environment decides in this order: `ANTIPHON_MODEL`, if it is set; the first provider of `OFFERS` whose key is there; a server
on this machine whose variable is set; and else the offline model, which needs nothing. Only the names of variables are told,
never what is in them (law L10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from antiphon.providers.presets import PRESETS, Preset, first_set

OFFERS: tuple[tuple[str, str], ...] = (
    ("anthropic", "claude-sonnet-5"),
    ("openai", "gpt-5.5"),
    ("gemini", "gemini-3.5-flash"),
    ("deepseek", "deepseek-v4-flash"),
    ("mistral", "mistral-large-latest"),
    ("xai", "grok-4.3"),
    ("alibaba", "qwen3-max"),
    ("openrouter", "openai/gpt-4o-mini"),
)
"""Providers in the order of preference when their key is there, each with the model that is taken."""

SERVERS: tuple[tuple[str, str], ...] = (("ollama", "llama3.2"), ("vllm", "default"), ("llamacpp", "default"))
"""Servers of one's own, taken when the variable for their address is set."""

OFFLINE = "offline/plain"
MODEL_VARIABLE = "ANTIPHON_MODEL"


class Choice(Struct, frozen=True):
    """A model, what speaks for it, and how to choose another. `str` is the line to show."""

    model: str
    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.model}: {self.what}. {self.how}"


def default_model(environ: Mapping[str, str]) -> Choice:
    """The best model the environment offers."""
    if named := environ.get(MODEL_VARIABLE, "").strip():
        return Choice(
            named, f"named by {MODEL_VARIABLE}", f"Change {MODEL_VARIABLE}, or name another model as provider/model."
        )
    offered = list(_offered(environ))
    if not offered:
        keys = ", ".join(PRESETS[provider].key_variables[0] for provider, _ in OFFERS[:3])
        return Choice(
            OFFLINE,
            "not a language model, needs no key and no network",
            f"For a real one set a key ({keys}, …) or {MODEL_VARIABLE}.",
        )
    model, variable = offered[0]
    others = [other for other, _ in offered[1:4]]
    also = f" (also there: {', '.join(others)})" if others else ""
    return Choice(model, f"{variable} is set", f"Set {MODEL_VARIABLE} or name another model to change it{also}.")


def _offered(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for provider, model in OFFERS:
        if variable := first_set(_keys(PRESETS[provider]), environ):
            yield f"{provider}/{model}", variable
    for provider, model in SERVERS:
        if variable := first_set(PRESETS[provider].base_url_variables, environ):
            yield f"{provider}/{model}", variable


def _keys(preset: Preset) -> tuple[str, ...]:
    return (*preset.key_variables, *preset.bearer_variables)
