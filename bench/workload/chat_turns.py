"""The turns that are stored in the disk bench: a question and an answer, about 1.2 KB, the same in every run.

Only the standard library is used: the interpreters of other libraries import this, too.
"""

from __future__ import annotations

TURNS = 400
_PROSE = (
    "the settings are read once and kept; a key that is not known stays where it is, so that newer files survive older "
    "programs, and what is written back is what was read with the change in it and nothing else touched on the way. "
)
_WORDS = _PROSE.split()


def turn(number: int) -> tuple[str, str]:
    """The question and the answer of a turn; no two are alike."""
    return f"Question {number}: {_prose(number, 40)}?", f"Answer {number}: {_prose(number * 7 + 3, 170)}."


def payload(turns: int) -> int:
    """The bytes of the text."""
    return sum(len(text.encode()) for number in range(turns) for text in turn(number))


def _prose(seed: int, words: int) -> str:
    """Words in an order that depends on the seed."""
    chosen = []
    state = seed * 2_654_435_761 + 1
    for _ in range(words):
        state = (state * 1_103_515_245 + 12_345) % 2**31
        chosen.append(_WORDS[(state >> 8) % len(_WORDS)])
    return " ".join(chosen)
