"""The cache doctor for stored conversations: breakpoints are judged by what the provider read and wrote."""

from __future__ import annotations

import pytest

from antiphon.context.tokens import count_text
from antiphon.history import AgentHistory, EntryMetadata, ModelInputEntry, ModelOutputEntry, Origin
from antiphon.parts import Text, TokenUsage
from antiphon_devtools.cache_doctor import CacheReport
from antiphon_devtools.cache_doctor import conversation as stored
from antiphon_devtools.cache_doctor.conversation import examine_conversation
from cache_doctor.bodies import RULES

CLAUDE = Origin("anthropic", "anthropic", "claude-sonnet-4-5")


def examined(*usages: TokenUsage) -> list[CacheReport]:
    history = AgentHistory()
    history.set_system_instruction(RULES)
    for number, usage in enumerate(usages):
        history.append(ModelInputEntry.of(f"Question {number}?"))
        history.append(ModelOutputEntry((Text("Yes."),), origin=CLAUDE, metadata=EntryMetadata(usage=usage)))
    return [report for _, report in examine_conversation(history.entries)]


def test_a_conversation_that_was_cached() -> None:
    written = TokenUsage(prompt_tokens=8_000, cache_write_tokens=7_990)
    read = TokenUsage(prompt_tokens=8_020, cached_tokens=7_990, cache_write_tokens=20)
    reports = examined(written, read, read)
    assert [report.verdict for report in reports] == ["first", "hit", "hit"]
    assert reports[2].cached_tokens == 7_990


def test_a_conversation_of_a_version_without_breakpoints() -> None:
    uncached = TokenUsage(prompt_tokens=8_000)
    assert [report.verdict for report in examined(uncached, uncached)] == ["no_breakpoints", "no_breakpoints"]


def test_a_prompt_that_is_too_short_to_be_cached() -> None:
    history = AgentHistory()
    for question in ("Rain?", "And now?"):
        history.append(ModelInputEntry.of(question))
        usage = EntryMetadata(usage=TokenUsage(prompt_tokens=20))
        history.append(ModelOutputEntry((Text("Yes."),), origin=CLAUDE, metadata=usage))
    assert [report.verdict for _, report in examine_conversation(history.entries)][1] == "too_short"


def test_each_message_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation of 666 answers took 25 s: every request was read as if it was the first."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return count_text(text)

    monkeypatch.setattr(stored, "count_text", count)
    usage = TokenUsage(prompt_tokens=8_000, cached_tokens=7_900)
    for rounds in (10, 20):
        counted.clear()
        assert len(examined(*[usage] * rounds)) == rounds
        assert max(map(counted.count, [f"Question {number}?" for number in range(rounds)])) <= 2, (
            "it may get a breakpoint"
        )
