"""What a call costs, compared with the calculation of genai-prices on every model of the table."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.history import EntryMetadata, ModelOutputEntry, Origin
from antiphon.parts import TokenUsage
from antiphon.prices import PriceOverride, PriceTable, cost_of, spend_of
from antiphon.prices.rate_card import MAX_TOKENS, TokenCounts, token_counts
from antiphon.prices.table import MAX_REMEMBERED, price_data

TABLE = PriceTable()
MOMENTS = [datetime(2025, 1, 1, 3, tzinfo=UTC), datetime(2026, 11, 1, 18, tzinfo=UTC)]
USAGES = [TokenUsage(1_000, 500), TokenUsage(300_000, 2_000, cached_tokens=200_000, cache_write_tokens=20_000)]


@pytest.mark.pairwise(1)
@pytest.mark.parametrize("at", MOMENTS, ids=lambda at: str(at.date()))
@pytest.mark.parametrize("usage", USAGES, ids=["short", "long and cached"])
@pytest.mark.parametrize("batch", [False, True], ids=["standard", "batch"])
def test_costs_equal_those_of_genai_prices(usage: TokenUsage, at: datetime, batch: bool) -> None:
    theirs = Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    variant = {"processing": "batch"} if batch else {}
    count = 0
    for provider in providers:
        for model in provider.models:
            name = model.id
            known = TABLE.find(name, provider.id)
            price = model.get_prices(at, variant or None) if provider.find_model(name) is model else None
            if known is None or price is None or any(key not in COMPARED for key in price.__dict__):
                continue  # charged by images, seconds or searches, or found under another name
            expected = calc_price(
                theirs, name, provider_id=provider.id, genai_request_timestamp=at, price_context=variant or None
            )
            cost = cost_of(usage, name, provider.id, at=at, variant=variant, table=TABLE)
            assert cost is None or cost.total == expected.total_price, (provider.id, name)
            count += cost is not None
    assert count > 1_500


COMPARED = {
    "input_mtok",
    "output_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_1h_mtok",
    "web_searches_kcount",
}


def test_writes_to_a_cache_for_an_hour_have_their_own_price() -> None:
    raw = {"cache_creation": {"ephemeral_1h_input_tokens": 600, "ephemeral_5m_input_tokens": 400}}
    usage = TokenUsage(2_000, 0, cache_write_tokens=1_000, raw=raw, format="anthropic")
    cost = cost_of(usage, "claude-opus-4-1", "anthropic")
    assert cost is not None
    assert cost.by_kind == {
        "input": Decimal("0.015"),
        "cache_write_1h": Decimal("0.018"),
        "cache_write": Decimal("0.0075"),
    }


def test_an_unknown_price_is_not_zero() -> None:
    assert cost_of(TokenUsage(1_000, 10), "my-own-model") is None
    assert cost_of(TokenUsage(1_000, 10), "my-own-model", "ollama") is None
    only_input = PriceTable([PriceOverride(model="my-*", input=1.0)])
    assert cost_of(TokenUsage(1_000, 10), "my-own-model", table=only_input) is None
    known = cost_of(TokenUsage(1_000), "my-own-model", table=only_input)
    assert known is not None
    assert known.total == Decimal("0.001")


def test_overrides_go_first_and_are_named_in_the_version() -> None:
    table = PriceTable([PriceOverride(model="claude-*", provider="anthropic", input=0.1, output=0.2)])
    usage = TokenUsage(1_000_000, 1_000_000)
    cost = cost_of(usage, "claude-opus-4-1", "anthropic", table=table)
    assert cost is not None
    assert (cost.total, cost.version) == (Decimal("0.3"), table.version)
    assert table.version.startswith(f"{price_data().version}+overrides-")
    assert table.version != PriceTable([PriceOverride(model="claude-*", input=0.1)]).version
    elsewhere = cost_of(usage, "claude-opus-4-1", "openrouter", table=table)
    assert elsewhere is None or elsewhere.total != cost.total


def test_an_override_may_name_provider_and_model_as_errors_do() -> None:
    table = PriceTable([PriceOverride(model="offline/*", input=1.0)])
    assert table.find("plain", "offline") is not None
    assert table.find("plain", "ollama") is None
    assert table.find("plain") is None


def test_an_override_is_found_whatever_the_case_of_its_names() -> None:
    table = PriceTable([PriceOverride(model="Qwen/Qwen3-*B", provider="OurHost", input=1.0)])
    for model, provider in (("Qwen/Qwen3-32B", "OurHost"), ("qwen/qwen3-32b", "ourhost")):
        cost = cost_of(TokenUsage(1_000_000), model, provider, table=table)
        assert cost is not None
        assert cost.total == Decimal(1)


@pytest.mark.slow
def test_the_prices_that_a_table_remembers_are_bounded() -> None:
    table = PriceTable()
    for number in range(MAX_REMEMBERED + 10):
        table.card("openai", f"no-such-model-{number}")
    assert table.card.cache_info().currsize == MAX_REMEMBERED
    card = table.card("deepseek", "deepseek-chat")
    for minute in range(3000):
        card.nanodollars((1, 1, 0, 0, 0, 0), minute * 60_000_000)
    assert len(card._by_time) <= 1024


def test_prices_follow_the_date_and_the_size_of_the_prompt() -> None:
    usage = TokenUsage(200_001, 0)
    before = cost_of(usage, "claude-opus-4-6", "anthropic", at=datetime(2026, 3, 12))
    after = cost_of(usage, "claude-opus-4-6", "anthropic", at=datetime(2026, 3, 13))
    below = cost_of(TokenUsage(200_000, 0), "claude-opus-4-6", "anthropic", at=datetime(2026, 3, 12))
    assert before is not None
    assert after is not None
    assert below is not None
    assert (before.total, after.total, below.total) == (Decimal("2.00001"), Decimal("1.000005"), Decimal("1"))


@pytest.mark.parametrize("provider", ["gemini", "openai-responses", "azure-openai", "xai", "moonshot"])
def test_names_of_our_providers_are_found_in_the_table(provider: str) -> None:
    model = {"gemini": "gemini-2.5-pro", "xai": "grok-4", "moonshot": "kimi-k2.5"}.get(provider, "gpt-5")
    assert cost_of(TokenUsage(1_000, 10), model, provider) is not None


def test_the_spend_of_a_conversation_is_by_model_and_counts_what_has_no_price() -> None:
    usage = EntryMetadata(usage=TokenUsage(1_000_000, 0))
    priced = ModelOutputEntry.of("a", origin=Origin(provider="anthropic", model="claude-opus-4-1"))
    unknown = ModelOutputEntry.of("b", origin=Origin(provider="mine", model="mine"))
    entries = [structs.replace(entry, metadata=usage) for entry in (priced, priced, unknown)]
    entries.append(priced)  # without usage
    spend = spend_of(entries)
    assert spend.by_model == {"anthropic/claude-opus-4-1": Decimal(30)}
    assert (spend.total, spend.unpriced_calls) == (Decimal(30), 2)


COUNTS = st.tuples(*[st.integers(0, 3_000_000)] * 2, *[st.floats(0, 1)] * 4).map(
    lambda given: (
        given[0],
        given[1],
        cached := int(given[0] * given[2]),
        written := int((given[0] - cached) * given[3]),
        int(written * given[4]),
        int(given[1] * given[5]),
    )
)
MODELS = [(provider.name, model.name) for provider in price_data().providers for model in provider.models]
VARIANTS = ["", '{"processing":"batch"}', '{"service_tier":"flex"}', '{"service_tier":"priority"}']


@given(
    st.sampled_from(MODELS), st.sampled_from(VARIANTS), COUNTS, st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1))
)
def test_nanodollars_are_the_rounded_sum_of_the_kinds(
    model: tuple[str, str], variant: str, tokens: TokenCounts, at: datetime
) -> None:
    card, moment = TABLE.card(*model, variant), int(at.replace(tzinfo=UTC).timestamp()) * 1_000_000
    by_kind, cost = card.dollars(tokens, moment), card.nanodollars(tokens, moment)
    if by_kind is None:
        assert cost is None
    else:
        assert cost is not None
        assert abs(sum(by_kind.values(), Decimal(0)) * 10**9 - cost) <= Decimal("0.5")


def test_reported_parts_are_at_most_the_whole() -> None:
    assert token_counts(TokenUsage(100, 10, 150, 50, 20)) == (100, 10, 100, 0, 0, 10)
    assert token_counts(TokenUsage(-5, 10**15)) == (0, MAX_TOKENS, 0, 0, 0, 0)


def test_calls_without_tokens_cost_nothing_whatever_their_price() -> None:
    assert TABLE.card("openai", "no-such-model").nanodollars((0, 0, 0, 0, 0, 0), 0) == 0
    assert TABLE.card("openai", "no-such-model").nanodollars((1, 0, 0, 0, 0, 0), 0) is None
