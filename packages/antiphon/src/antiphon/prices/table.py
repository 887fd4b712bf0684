"""What providers charge: one committed table, and overrides of a user.

`prices.json` is made by `tools/build_prices.py`. A model may have several prices: from a date on, at hours of the day, above a
size of the prompt, and for batches and service tiers. Prices are US dollars per million tokens, as exact decimals. A price that
is not known is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
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


class Tiers(Struct, frozen=True):
    """A price that depends on the size of the prompt: the last of `above` that the prompt exceeds is for all tokens."""

    base: Decimal
    above: tuple[tuple[int, Decimal], ...] = ()

    def at(self, prompt_tokens: int) -> Decimal:
        return next((price for start, price in reversed(self.above) if prompt_tokens > start), self.base)


Dollars: TypeAlias = Annotated[float, Meta(ge=0)]


class Price(Struct, frozen=True, kw_only=True):
    """Prices per million tokens, and when they apply. `when` is for a variant: `{"processing": "batch"}`."""

    input: Tiers | str | None = None
    output: Tiers | str | None = None
    cache_read: Tiers | str | None = None
    cache_write: Tiers | str | None = None
    cache_write_1h: Tiers | str | None = None
    reasoning: Tiers | str | None = None
    since: date | None = None
    hours: tuple[time, time] | None = None
    when: dict[str, str] = {}

    def amount(self, kind: str, prompt_tokens: int) -> Decimal | None:
        """The price of a kind of tokens in a call with so many tokens in its prompt."""
        value = getattr(self, kind)
        if value is None:
            return None
        return value.at(prompt_tokens) if isinstance(value, Tiers) else Decimal(value)

    def applies(self, at: datetime) -> bool:
        """Whether its date and hours fit; a time without a zone is UTC."""
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if self.since is not None and moment.date() < self.since:
            return False
        if self.hours is None:
            return True
        begin, end = (hour.replace(tzinfo=None) for hour in self.hours)
        clock = moment.time()
        return begin <= clock < end if begin <= end else clock >= begin or clock < end


class PriceOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's price: `model` is a name or a glob, `provider` restricts it; amounts are dollars per million tokens.

    The case of letters in names does not matter.
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
        is_its_provider = self.provider.lower() in ("", provider.lower())
        return is_its_provider and fnmatchcase(model.lower(), self.model.lower())

    @property
    def price(self) -> Price:
        """As a price of the table."""
        amounts = {kind: getattr(self, kind) for kind in KINDS}
        given: dict[str, Any] = {kind: str(amount) for kind, amount in amounts.items() if amount is not None}
        return Price(**given)


class ModelPrices(Struct, frozen=True):
    """The prices of one model of one provider; `match` has alternatives, and all conditions of an alternative must hold."""

    name: str
    match: tuple[dict[str, str], ...]
    prices: tuple[Price, ...]

    def price_at(self, at: datetime, variant: Mapping[str, str]) -> Price:
        """The latest price that applies, with those of the variant in place of the standard ones."""
        standard = [price for price in self.prices if not price.when]
        found = next((price for price in reversed(standard) if price.applies(at)), standard[0])
        changed = [
            price for price in self.prices if price.when and price.applies(at) and price.when.items() <= variant.items()
        ]
        amounts: dict[str, Any] = {kind: getattr(found, kind) for kind in KINDS}
        for price in reversed(changed):  # the first takes precedence
            amounts |= {kind: value for kind in KINDS if (value := getattr(price, kind)) is not None}
        return Price(**amounts, since=found.since)


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
        self._has_hours = lru_cache(MAX_REMEMBERED)(self._look_for_hours)

    @property
    def version(self) -> str:
        """The version of the table, for records that must be comparable later."""
        return price_data().version + ("+overrides" if self._overrides else "")

    def find(self, model: str, provider: str = "") -> ModelPrices | None:
        """The prices of a model. Without a provider, or with one that has no list of prices, its vendor's."""
        return self._find(model, provider)

    def depends_on_hours(self, model: str, provider: str = "") -> bool:
        """Whether a price of a model is that of some hours of the day."""
        return self._has_hours(model, provider)

    def _look_for_hours(self, model: str, provider: str) -> bool:
        known = self.find(model, provider)
        return known is not None and any(price.hours is not None for price in known.prices)

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
