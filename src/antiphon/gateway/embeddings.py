"""Embeddings: `/v1/embeddings`, passed through to providers that speak OpenAI's.

Numbers are not translated: of a request only the model is read and replaced (`model_field`), and what the provider answers goes
back as it came. The endpoint stands beside the one that generates, so its address follows from the preset of the provider.
Providers of other formats have none; who asks for one of their models is told which providers have.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from antiphon.providers.presets import Preset
from antiphon.wire.output import ProviderError

FORMATS = ("openai-chat", "openai-responses")
"""The formats whose providers have the endpoint."""

_GENERATING = ("/chat/completions", "/responses")


def embeddings_address(preset: Preset, base_url: str, model: str, api_version: str = "") -> str | None:
    """Where a provider makes embeddings; None if it does not."""
    if preset.format not in FORMATS:
        return None
    paths = tuple((pattern, _embedding(path)) for pattern, path in preset.paths)
    return structs.replace(preset, path=_embedding(preset.path), paths=paths).address(base_url, model, api_version)


def no_embeddings(model: str, provider: str, providers: Sequence[str]) -> ProviderError:
    """What to answer where the provider of a model makes none; `providers` are those that do."""
    there = f"These do: {', '.join(providers)}." if providers else "No provider of this gateway does."
    return ProviderError(
        f"The model `{model}` is answered by {provider}, which does not make embeddings. {there}",
        "not_found",
        404,
        "embeddings_not_supported",
        "model",
    )


def _embedding(path: str) -> str:
    for generating in _GENERATING:
        path = path.replace(generating, "/embeddings")
    return path
