"""`python -m bench context [ROUNDS ...]`: one turn of many rounds, kept small in several ways; size, breaks of the cache, cost.

The loop, the renderer and the wire writer are the real ones. The provider is simulated: it reads each request as Anthropic's
body, takes what it has in common with the one before from its cache, and bills the prices of the shipped table. Results have 5 to
7 kB, every tenth 30 kB; a summary has 400 tokens. What a model loses by a compaction is not measured here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from antiphon.context import CharacterEstimate, Compaction, LiveContextOptions
from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.history import ContextEntry, Origin
from antiphon.parts import Text, TokenUsage, ToolCallRequest, text_of
from antiphon.prices import PriceOverride, PriceTable, cost_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.providers.scripted import FunctionModel
from antiphon.text import common_prefix
from antiphon.tools import tool
from antiphon.wire.output import ModelOutput

TARGET = Origin("anthropic", "anthropic", "claude-sonnet-4-5")
ROUNDS = (10, 50, 200, 1_000)
LIMITS = (60_000, 160_000)
_CHARS_PER_TOKEN = 3.2
_BLOCK = 1_024
"""A cache holds whole blocks, and nothing shorter than this."""
_SUMMARY_TOKENS = 400
_WORDS = ["depot", "code", "invoice", "harbour", "crane", "ledger", "table", "storm", "report", "index"]

WAYS: dict[str, Any] = {
    "nothing": {},
    "window": {"window": True},
    "compaction, at the limit": {"compaction": Compaction(thrift="off")},
    "compaction": {"compaction": Compaction()},
}


class Bill(Struct):
    """What the requests of a turn were, by the provider's count."""

    largest: int = 0
    over: int = 0
    requests: int = 0
    breaks: int = 0
    cost: Decimal = Decimal(0)


class Provider:
    """Answers `rounds` times with a call, and bills what is not cached."""

    def __init__(self, rounds: int, limit: int) -> None:
        self._left = rounds
        self._limit = limit
        self._sent = b""
        self.bill = Bill()

    def answer(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> ModelOutput:
        body = b"".join(render_call(context, options, TARGET).chunks).replace(
            b',"cache_control":{"type":"ephemeral"}', b""
        )
        tokens = int(len(body) / _CHARS_PER_TOKEN)
        cached = int(common_prefix(body, self._sent) / _CHARS_PER_TOKEN) // _BLOCK * _BLOCK
        bill, before = self.bill, len(self._sent) / _CHARS_PER_TOKEN
        bill.breaks += cached < before - 2 * _BLOCK
        bill.largest, bill.over = max(bill.largest, tokens), bill.over + (tokens > self._limit)
        bill.requests += 1
        is_summary = text_of(context[-1].content).startswith("The conversation has grown long.")
        output = _SUMMARY_TOKENS if is_summary else 60
        usage = TokenUsage(tokens, output, cached, cache_write_tokens=tokens - cached)
        cost = cost_of(usage, TARGET.model, TARGET.provider)
        assert cost is not None
        bill.cost += cost.total
        if is_summary:
            return ModelOutput(parts=(Text("fact " * _SUMMARY_TOKENS),), usage=usage)
        self._sent = body
        if not self._left:
            return ModelOutput(parts=(Text("Done."),), usage=usage)
        self._left -= 1
        call = ToolCallRequest("look", f"call_{self._left}", f'{{"number": {self._left}}}')
        return ModelOutput(parts=(Text("I look at the next one, because the plan says so."), call), usage=usage)


@tool(effect="read")
async def look(number: int) -> str:
    "Look at a depot."
    size = 30_000 if number % 10 == 0 else 5_000 + number * 37 % 2_000
    words = [f"{_WORDS[(number + index * 7) % len(_WORDS)]}{number * index % 997}" for index in range(size // 9)]
    return " ".join(words)


def play(rounds: int, limit: int, way: str) -> Bill:
    """Run one turn and return its bill."""
    provider, options = Provider(rounds, limit), dict(WAYS[way])
    if options.pop("window", False):
        options["context_options"] = LiveContextOptions(max_tokens=int(limit * 0.95))
    price = cost_prices()
    chat = Conversation(
        FunctionModel(provider.answer),
        tools=[look],
        system="Visit every depot and write a report.",
        counter=CharacterEstimate(),
        token_limit=limit if "compaction" in options else None,
        prices=price,
        **options,
    )
    limits = RunLimits(max_rounds=rounds + 10, max_repeats=rounds + 10)
    result = asyncio.run(ToolLoop(chat, limits=limits).run("Visit all depots, and report."))
    assert result.reason == "answered", result.text
    return provider.bill


def cost_prices() -> PriceTable:
    """The prices of the model that is simulated, under the name of the scripted one."""
    thousand = {
        name: cost_of(usage, TARGET.model, TARGET.provider)
        for name, usage in {
            "input": TokenUsage(1_000),
            "output": TokenUsage(0, 1_000),
            "cache_read": TokenUsage(1_000, 0, 1_000),
            "cache_write": TokenUsage(1_000, 0, cache_write_tokens=1_000),
        }.items()
    }
    amounts: dict[str, Any] = {name: float(cost.total * 1_000) for name, cost in thousand.items() if cost is not None}
    return PriceTable([PriceOverride(model="*", **amounts)])


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a compaction let a request exceed the limit."""
    logging.disable(logging.ERROR)
    failed = False
    print(
        "| rounds | limit | way | largest request | over | breaks | cost |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for rounds in [int(argument) for argument in arguments] or ROUNDS:
        for limit in LIMITS:
            for way in WAYS:
                if way == "nothing" and rounds > 200:
                    continue  # a quadratic bill, and nothing new
                bill = play(rounds, limit, way)
                failed = failed or (bill.over > 0 and way.startswith("compaction"))
                over = f"{bill.over} of {bill.requests}"
                print(
                    f"| {rounds} | {limit:,} | {way} | {bill.largest:,} | {over} | {bill.breaks} | ${bill.cost:.2f} |",
                    flush=True,
                )
    return int(failed)
