"""Counting tokens: in the right order, once, and never at the price of the turn."""

from __future__ import annotations

import logging
import math
import sys
from collections import Counter

import pytest

from antiphon.context import CharacterEstimate, ContextGauge, CounterChain, LocalTokenizer, ReportedUsage, TokenLedger
from antiphon.history import AgentHistory, ContextEntry, EntryMetadata, ModelInputEntry, ModelOutputEntry
from antiphon.parts import Image, Text, TokenUsage


def reported(prompt: int, completion: int, reasoning: int = 0) -> EntryMetadata:
    total = prompt + completion
    return EntryMetadata(usage=TokenUsage(prompt, completion, reasoning_tokens=reasoning, total_tokens=total))


def test_the_api_knows_best_then_the_tokenizer_then_the_characters() -> None:
    answer = ModelOutputEntry((Text("hello hello hello hello"),), metadata=reported(10, 77))
    asked = ModelInputEntry.of("hello hello hello hello")
    assert CounterChain().count(answer) == 77
    assert CounterChain().count(asked) == 4
    assert CounterChain([]).count(asked) == 10  # 23 characters / 2.5, rounded up


def test_the_tokenizer_counts_as_openai_does() -> None:
    counts = {"hello world": 2, "今天奥斯陆下雨吗？": 8, "<|endoftext|>": 7}
    tokenizer = LocalTokenizer()
    assert {text: tokenizer.count(ModelInputEntry.of(text)) for text in counts} == counts


def test_without_the_extra_characters_are_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "splintr", None)
    chain = CounterChain([ReportedUsage(), LocalTokenizer("never loaded before")])
    with caplog.at_level(logging.INFO):
        assert [chain.count(ModelInputEntry.of("12345")) for _ in range(3)] == [2, 2, 2]
    assert [record.message for record in caplog.records] == [
        "no local tokenizer (install antiphon[tokens]); counting by characters"
    ]


def test_a_counter_that_fails_is_passed_over_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def count(self, entry: ContextEntry) -> int | None:
            raise RuntimeError("out of order")

    assert CounterChain([Broken()]).count(ModelInputEntry.of("12345")) == 2
    assert "out of order" in caplog.text
    assert "using the next one" in caplog.text


def test_media_cost_a_flat_guess_and_not_their_base64() -> None:
    assert CharacterEstimate().count(ModelInputEntry.of(Image("image/png", "A" * 10_000), "12345")) == 1_002


def test_an_entry_is_counted_once() -> None:
    asked: Counter[int] = Counter()

    class Counting:
        def count(self, entry: ContextEntry) -> int | None:
            asked[id(entry)] += 1
            return 5

    history = AgentHistory()
    ledger = TokenLedger(Counting())
    for number in range(20):
        history.append(ModelInputEntry.of(f"question {number}"))
        assert ContextGauge(ledger).tokens(history.snapshot()) == 5 * (number + 1)
    assert len(asked) == 20
    assert set(asked.values()) == {1}


def test_a_request_takes_what_was_last_reported_plus_what_came_since() -> None:
    """What came since is counted here, times the ratio of the provider's count and ours, with a margin of a twentieth."""
    history = AgentHistory()
    gauge = ContextGauge(TokenLedger())
    history.append(ModelInputEntry.of("hello world"))
    assert gauge.tokens(history.snapshot()) == 2
    history.append(ModelOutputEntry((Text("hi"),), metadata=reported(3, 50)))
    assert gauge.tokens(history.snapshot()) == 53
    history.append(ModelInputEntry.of("hello world"))
    assert gauge.tokens(history.snapshot()) == 53 + math.ceil(2 * 1.5 / 0.95)
    history.compact("they greeted each other", up_to=2)
    summary = 12
    assert gauge.tokens(history.snapshot()) == math.ceil((summary + 2) * 1.5), (
        "the report is outdated, its ratio is not"
    )
    assert ContextGauge(TokenLedger()).tokens(history.snapshot()) == gauge.tokens(history.snapshot()), "by any process"
    history.rollback(2)
    assert gauge.tokens(history.snapshot()) == 53


def test_nothing_is_counted_where_the_report_says_it_all() -> None:
    """Loading the tokenizer takes a tenth of a second, and its first use two more."""
    history = AgentHistory()
    history.append(ModelInputEntry.of("hello world"))
    history.append(ModelOutputEntry((Text("hi"),), metadata=reported(3, 50)))
    gauge = ContextGauge(TokenLedger())
    assert gauge.tokens(history.snapshot(), fixed=lambda: pytest.fail("tools were counted")) == 53


@pytest.mark.parametrize(("prompt", "ratio"), [(1, 1.0), (100_000, 3.0)])
def test_the_ratio_is_between_one_and_three(prompt: int, ratio: float) -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("hello world"))
    history.append(ModelOutputEntry((Text("hi"),), metadata=reported(prompt, 1)))
    gauge = ContextGauge(TokenLedger())
    assert gauge.ratio(history.snapshot(), [history.entries[0], history.entries[1]], lambda: 0) == ratio  # type: ignore[list-item]


def test_a_size_that_was_refused_is_the_limit_from_then_on() -> None:
    gauge = ContextGauge(TokenLedger())
    assert gauge.limit("a", None) is None
    gauge.lower_ceiling("a", 1_000)
    assert (gauge.limit("a", None), gauge.limit("a", 500), gauge.limit("b", None)) == (900, 500, None)
    gauge.lower_ceiling("a", 2_000)
    assert gauge.limit("a", 50_000) == 810


def test_usage_adds_up_and_keeps_the_providers_figures() -> None:
    history = AgentHistory()
    raw = {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}
    usage = TokenUsage(10, 4, cached_tokens=8, reasoning_tokens=1, raw=raw)
    first = history.append(ModelOutputEntry((Text("a"),), metadata=EntryMetadata(usage=usage)))
    history.append(ModelOutputEntry((Text("b"),), metadata=reported(20, 6, reasoning=2)))
    history.rollback(1)
    total = TokenLedger().usage(history.snapshot())
    assert total == TokenUsage(30, 10, cached_tokens=8, reasoning_tokens=3, total_tokens=40, raw=raw)
    assert first.metadata is not None
    assert first.metadata.usage is not None
    assert first.metadata.usage.raw == raw
