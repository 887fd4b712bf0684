"""`UsageRow`: one request to a provider, as the ledger keeps it, with what it cost when it was made.

It contains no secret; a credential is named by where it is read from.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.prices.table import PriceTable

Metering: TypeAlias = Literal["reported", "estimated", "unknown", "free"]
"""Where the tokens of a row come from. `unknown`: the provider reported none and there is nothing to estimate them from.
`free`: nothing was generated, as by a request that failed."""

DAY_MICROSECONDS = 86_400_000_000


class UsageRow(Struct, kw_only=True, gc=False, array_like=True):
    """One request to a provider. `at` is when it ended, in microseconds since 1970. New fields are added at the end: rows
    wait in files as arrays."""

    request_id: str
    attempt: int
    """Its number among the attempts of the request, from 1."""
    at: int
    key: str = ""
    """The name of the client's key; empty without one."""
    client_format: str = ""
    """The format of the client."""
    operation: str = "chat"
    provider: str = ""
    credential: str = ""
    """The name of the provider's key: where it is read from, never the key."""
    model_asked: str = ""
    """What the client asked for."""
    model_served: str = ""
    """What the provider was asked for."""
    status: int = 0
    """Of the provider's response; 0: none came."""
    outcome: str = "ok"
    """`ok`, `disconnected` if the client left, or the kind of the error."""
    seconds: float = 0.0
    first_token_seconds: float | None = None
    metering: Metering = "free"
    prompt_tokens: int = 0
    """All tokens of the prompt, cached ones included."""
    completion_tokens: int = 0
    """All tokens of the answer, reasoning included."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """Those of the cache writes that are kept for an hour."""
    reasoning_tokens: int = 0
    variant: str = ""
    """What else changes the price, as a JSON object: `{"service_tier":"flex"}`."""
    price_version: str = ""
    """The version of the price table that `cost` was found with; empty: it has not been looked for yet."""
    cost: int | None = None
    """Nanodollars; None if there is no known price."""

    def set_cost(self, table: PriceTable) -> None:
        """Find what it cost; None if the number of its tokens, or their price, is not known."""
        self.price_version = table.version
        if self.metering in ("free", "unknown"):
            self.cost = 0 if self.metering == "free" else None
            return
        tokens = (
            self.prompt_tokens,
            self.completion_tokens,
            self.cached_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
            self.reasoning_tokens,
        )
        self.cost = table.card(self.provider, self.model_served, self.variant).nanodollars(tokens, self.at)
