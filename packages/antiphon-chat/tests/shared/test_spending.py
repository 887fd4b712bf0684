"""Tokens and money of a conversation."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from antiphon.history import EntryMetadata, ModelInputEntry, ModelOutputEntry, Origin
from antiphon.parts import Text, TokenUsage
from antiphon.prices import cost_of
from antiphon_chat.shared.spending import cost_of_entry, format_money, spending_of
from antiphon_chat.terminal.render import cost_lines, spending_note

AT = datetime(2026, 7, 1, tzinfo=UTC)


def answer(provider: str, model: str, prompt: int = 1000, cached: int = 0) -> ModelOutputEntry:
    usage = TokenUsage(prompt, 100, cached)
    origin = Origin(provider, "openai-chat", model)
    return ModelOutputEntry((Text("Yes."),), origin=origin, timestamp=AT, metadata=EntryMetadata(usage=usage))


def test_a_conversation_costs_what_its_calls_cost() -> None:
    entries = [ModelInputEntry.of("Hi."), answer("openai", "gpt-4o"), answer("openai", "gpt-4o", cached=800)]
    spending = spending_of(entries)
    alone = [cost_of_entry(entry) for entry in entries if isinstance(entry, ModelOutputEntry)]
    listed = cost_of(TokenUsage(1000, 100), "gpt-4o", "openai", at=AT)
    assert listed is not None
    assert alone[0] == listed.total
    assert alone[1] is not None
    assert alone[1] < listed.total, "cached tokens are cheaper"
    assert spending.cost == alone[0] + alone[1]
    assert (spending.usage.prompt_tokens, spending.usage.cached_tokens) == (2000, 800)
    assert spending_note(spending) == f" · 40 % from cache · {format_money(spending.cost)}"
    assert cost_lines(spending) == [f"Cost: {format_money(spending.cost)}."]


def test_a_price_that_is_not_known_is_not_guessed() -> None:
    spending = spending_of([answer("my-host", "my-model"), answer("openai", "gpt-4o")])
    assert (spending.unpriced_calls, spending.calls, spending.is_priced) == (1, 2, True)
    assert cost_lines(spending)[-1] == "Price unknown for 1 of 2 model calls."
    assert spending_note(spending).endswith("+")
    unknown = spending_of([answer("my-host", "my-model")])
    assert not unknown.is_priced
    assert cost_lines(unknown) == ["Price unknown for 1 of 1 model calls."]
    assert spending_note(unknown) == ""


def test_several_models_are_listed_one_by_one() -> None:
    lines = cost_lines(spending_of([answer("openai", "gpt-4o"), answer("anthropic", "claude-sonnet-4-5")]))
    assert [line.partition(":")[0].strip() for line in lines] == [
        "Cost",
        "openai/gpt-4o",
        "anthropic/claude-sonnet-4-5",
    ]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "$0.00"),
        ("0.00001", "< $0.0001"),
        ("0.00314", "$0.0031"),
        ("0.02149", "$0.021"),
        ("1.005", "$1.01"),
        ("1234.5", "$1,234.50"),
    ],
)
def test_money_is_short(amount: str, shown: str) -> None:
    assert format_money(Decimal(amount)) == shown
