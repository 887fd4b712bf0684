"""The turn that every library plays: what a depot looks like, and what is said. It imports nothing, for the peers."""

from __future__ import annotations

SYSTEM = "Visit every depot and write a report."
QUESTION = "Visit all depots, and report."
MODEL = "claude-sonnet-4-5"
SUMMARY = "fact " * 400
SUMMARY_TOKENS, ROUND_TOKENS = 400, 60
_WORDS = ["depot", "code", "invoice", "harbour", "crane", "ledger", "table", "storm", "report", "index"]


def describe(number: int) -> str:
    """5 to 7 kB about a depot; 30 kB about every tenth."""
    size = 30_000 if number % 10 == 0 else 5_000 + number * 37 % 2_000
    words = [f"{_WORDS[(number + index * 7) % len(_WORDS)]}{number * index % 997}" for index in range(size // 9)]
    return " ".join(words)
