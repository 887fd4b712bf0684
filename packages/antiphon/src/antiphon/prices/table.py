"""What providers charge: one committed table, and overrides of a user.

`prices.json` is made by `tools/build_prices.py`. `PriceTable.find` gives the prices of a model, `PriceTable.card` what its tokens
cost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from antiphon.prices.rate_card import KINDS, ModelPrices, Price, RateCard

_PROVIDER_NAMES = {
    "alibaba": "qwen",
    "azure-openai": "azure",
    "bedrock": "aws",
    "copilot": "github-copilot",
    "deepseek-anthropic": "deepseek",
    "gemini": "google",
    "gemini-openai": "google",
    "moonshot": "moonshotai",
    "moonshot-anthropic": "moonshotai",
    "openai-responses": "openai",
    "vertex": "google",
    "xai": "x-ai",
}
"""Our names of providers that the table names otherwise."""
MAX_REMEMBERED = 4096
"""Models whose prices a table remembers: clients of a gateway choose model names where a route is a glob."""
_COMPACT_DATE = re.compile(r"-(20\d\d)(\d\d)(\d\d)$")

Dollars: TypeAlias = Annotated[float, Meta(ge=0)]


class PriceOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's price: `model` is a name or a glob, `provider` restricts it; amounts are dollars per million tokens.

    `provider/model` as one name works too: errors name a target so. The case of letters in names does not matter.
    """

    model: Annotated[str, Meta(min_length=1)]
    provider: str = ""
    input: Dollars | None = None
    output: Dollars | None = None
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None
    cache_write_1h: Dollars | None = None
    reasoning: Dollars | None = None

    def matches(self, model: str, provider: str) -> bool:
        """Whether it is about this model of this provider."""
        wanted, model, provider = self.model.lower(), model.lower(), provider.lower()
        is_its_name = fnmatchcase(model, wanted) or ("/" in wanted and fnmatchcase(f"{provider}/{model}", wanted))
        return is_its_name and self.provider.lower() in ("", provider)

    @property
    def price(self) -> Price:
        """As a price of the table."""
        amounts = {kind: getattr(self, kind) for kind in KINDS}
        given: dict[str, Any] = {kind: str(amount) for kind, amount in amounts.items() if amount is not None}
        return Price(**given)


class ProviderPrices(Struct, frozen=True):
    """The models of a provider; `match` recognizes its own models by their names."""

    name: str
    models: tuple[ModelPrices, ...]
    match: tuple[dict[str, str], ...] = ()
    fallback: tuple[str, ...] = ()
    """Providers whose prices apply to models that have none here."""


class PriceData(Struct, frozen=True):
    """The committed table."""

    version: str
    providers: tuple[ProviderPrices, ...]


@cache
def price_data() -> PriceData:
    """The committed table, read at first use."""
    return msgspec.json.decode(files("antiphon.prices").joinpath("prices.json").read_bytes(), type=PriceData)


class PriceTable:
    """The committed prices, and a user's overrides, which go first."""

    def __init__(self, overrides: Sequence[PriceOverride] = ()) -> None:
        self._overrides = tuple(overrides)
        self._find = lru_cache(MAX_REMEMBERED)(self._look_up)
        self.card = lru_cache(MAX_REMEMBERED)(self._make_card)
        """`card(provider, model, variant)`: what the tokens of a model cost. `variant` is a JSON object or empty."""

    @cached_property
    def version(self) -> str:
        """The version of the table and, by a digest, of the overrides, for records that must be comparable later."""
        if not self._overrides:
            return price_data().version
        digest = blake2b(msgspec.json.encode(self._overrides), digest_size=4).hexdigest()
        return f"{price_data().version}+overrides-{digest}"

    def find(self, model: str, provider: str = "") -> ModelPrices | None:
        """The prices of a model. Without a provider, or with one that has no list of prices, its vendor's."""
        return self._find(model, provider)

    def _make_card(self, provider: str, model: str, variant: str = "") -> RateCard:
        given = msgspec.json.decode(variant, type=dict[str, str]) if variant else {}
        return RateCard(self._look_up(model, provider), given, self.version)

    def _look_up(self, model: str, provider: str) -> ModelPrices | None:
        model, provider = model.lower(), provider.lower()
        for override in self._overrides:
            if override.matches(model, provider):
                return ModelPrices(model, (), (override.price,))
        dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", model)
        for host in _hosts(model, _PROVIDER_NAMES.get(provider, provider)):
            for name in dict.fromkeys((model, dashed)):
                for prices in host.models:
                    if _matches(prices.match, name):
                        return prices
        return None


def _hosts(model: str, provider: str) -> list[ProviderPrices]:
    """The lists to look in: the provider's own and those that it falls back to, else the vendor's."""
    by_name = {host.name: host for host in price_data().providers}
    host = by_name.get(provider) or next((host for host in by_name.values() if _matches(host.match, model)), None)
    return [] if host is None else [host, *(by_name[name] for name in host.fallback if name in by_name)]


def _matches(alternatives: Sequence[Mapping[str, str]], name: str) -> bool:
    return any(all(_CONDITIONS[kind](name, text) for kind, text in one.items()) for one in alternatives)


_CONDITIONS: dict[str, Any] = {
    "equals": lambda name, text: name == text.lower(),
    "starts": lambda name, text: name.startswith(text.lower()),
    "ends": lambda name, text: name.endswith(text.lower()),
    "contains": lambda name, text: text.lower() in name,
    "regex": lambda name, text: re.search(text, name) is not None,
}
