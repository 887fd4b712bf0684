"""The gateways that the suite knows (`gateways.toml`): how to point each at the mock providers, and how to address it.

Every configured model is called `conform-FORMAT` or `conform-FORMAT-newer` and is routed to the mock provider of that format
under the name of a real model, so that a gateway applies what it knows of that model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Template

import msgspec
from msgspec import Struct

from antiphon_devtools.conform.case import Case

PORTS = {"openai-chat": 4711, "openai-responses": 4712, "anthropic": 4713, "gemini": 4714, "gemini-interactions": 4715}
PEER_FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini")
"""The formats that the other gateways translate; the tables that compare gateways have these."""
MODELS = {
    "openai-chat": ("gpt-4o", "gpt-5"),
    "openai-responses": ("gpt-4o", "gpt-5"),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-7"),
    "gemini": ("gemini-2.5-flash", "gemini-3-pro-preview"),
    "gemini-interactions": ("gemini-2.5-flash", "gemini-3-pro-preview"),
}
"""The models at each provider: the usual one, and the newer one of the group `models`."""

KEY = "sk-conform"


class Gateway(Struct, frozen=True, kw_only=True):
    """How a gateway is addressed. The default is one that takes the configured model names at the usual paths."""

    name: str = ""
    prefix: str = ""
    """What comes before the paths of its endpoints."""
    model_prefix: str = ""
    models: Mapping[str, str] = {}
    """Names of models by provider format, instead of `conform-FORMAT`."""
    clients: tuple[str, ...] | None = None
    upstreams: tuple[str, ...] | None = None
    lacks: str = ""
    """Why other formats are not supported; comes after the name of the format."""
    uses_headers: bool = False
    """Whether the provider is chosen by headers of each request (Portkey)."""
    setup: str = ""
    """The configuration that points it at the mock providers, and the commands that run it and the suite."""
    provider: str = ""
    model: str = ""
    between: str = ""
    """What separates the entries of `provider` and of `model`."""
    words: dict[str, dict[str, str]] = {}
    """The words of those templates, by the format of the provider."""

    @property
    def has_newer(self) -> bool:
        return not self.models

    def missing(self, client: str, upstream: str) -> str:
        """Why the gateway has no such endpoint or provider; empty if it has."""
        if self.clients is not None and client not in self.clients:
            return f"no endpoint of the format {client}{self.lacks}"
        if self.upstreams is not None and upstream and upstream not in self.upstreams:
            return f"no provider of the format {upstream} at another address{self.lacks}"
        return ""

    def upstream_model(self, upstream: str, case: Case) -> str:
        return MODELS[upstream][case.model == "newer"]

    def client_model(self, upstream: str, case: Case) -> str:
        """The model that a client names."""
        if upstream in self.models or not upstream:
            return self.models.get(upstream) or next(iter(self.models.values()), "")
        if self.uses_headers:
            return self.upstream_model(upstream, case)
        return f"{self.model_prefix}conform-{upstream}{'-newer' if case.model == 'newer' else ''}"

    def headers(self, upstream: str, ports: Mapping[str, int]) -> dict[str, str]:
        """Headers that choose the provider."""
        if not self.uses_headers:
            return {}
        provider = {"anthropic": "anthropic", "gemini": "google"}.get(upstream, "openai")
        version = "v1beta" if upstream == "gemini" else "v1"
        return {
            "x-portkey-provider": provider,
            "x-portkey-custom-host": f"http://127.0.0.1:{ports[upstream]}/{version}",
            "authorization": f"Bearer {KEY}",
        }


def _load_gateways() -> dict[str, Gateway]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **row}, Gateway) for name, row in rows.items()}


GATEWAYS = _load_gateways()


def setup(name: str, ports: Mapping[str, int]) -> str:
    """The configuration that points a gateway at the mock providers, and the commands that run it and the suite."""
    known = GATEWAYS[name]
    providers, models = [], []
    for upstream, words in known.words.items():
        usual, newer = MODELS[upstream]
        facts = {"name": upstream, "port": ports[upstream], "key": KEY, "usual": usual, "newer": newer, **words}
        providers.append(Template(known.provider).substitute(facts))
        for model, target in ((f"conform-{upstream}", usual), (f"conform-{upstream}-newer", newer)):
            models.append(Template(known.model).substitute(facts, model=model, target=target))
    blocks = {"providers": known.between.join(providers), "models": known.between.join(models)}
    return Template(known.setup).substitute(blocks, key=KEY)
