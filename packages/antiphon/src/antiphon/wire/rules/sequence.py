"""The order of calls and results: the one judge of it, for messages and for the bodies of every format.

A caller tells the judge what comes: whose turn it is, each call, each result, and other content. The judge compares that with
the `SequenceRule` of the format and keeps what is wrong. `repair` asks whether there is anything (`is_legal`); the rules of a
format say which rule each kind of problem breaks (`Order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.wire.rules import Check, Checked, Path
from antiphon.wire.spec import SequenceRule

ProblemKind: TypeAlias = Literal[
    "unanswered",  # a call without a result where it must be
    "orphan",  # a result of a call that was not made before it
    "stray",  # a result where the model has made no call at all
    "late",  # the result of a call, after other content
    "repeated result",
    "repeated call",
    "early result",  # before its call
    "no id",
    "wrong role",  # a call of the client, or a result of the model
    "begins with a call",
]


class Problem(Struct, frozen=True):
    """What is wrong with the order: the message and the part of it that the problem is about."""

    kind: ProblemKind
    index: int
    position: int = 0
    call_id: str = ""


class SequenceJudge:
    """Finds what is wrong with the order of calls and results. `is_continued`: the server has earlier messages, so that the first
    results may belong to calls that are not here."""

    __slots__ = (
        "_answered",
        "_has_begun",
        "_has_calls",
        "_has_order",
        "_is_before",
        "_is_late",
        "_is_model",
        "_late",
        "_merges",
        "_results_first",
        "_seen",
        "opening",
        "pending",
        "problems",
    )

    def __init__(self, rule: SequenceRule, *, is_continued: bool = False) -> None:
        self.problems: list[Problem] = []
        self.pending: dict[str, tuple[int, int]] = {}
        """The calls of the last turn of the model that have no result yet; where the order does not matter, all calls."""
        self.opening: Problem | None = None
        """A call before anything of the client, which only some formats refuse."""
        self._has_order = rule.results_follow_calls
        self._merges = rule.merges_assistant_turns
        self._results_first = rule.results_first
        self._answered: dict[str, tuple[int, int]] = {}
        self._late: set[str] = set()
        self._seen: set[str] | None = set() if rule.unique_ids or not self._has_order else None
        self._is_model = False
        self._has_begun = False
        self._has_calls = False  # in the last turn of the model
        self._is_late = False  # whether the client has sent something else before the last result
        self._is_before = is_continued  # whether no message of the model came yet

    def turn(self, is_model: bool) -> None:
        """A message of the model, or of its client."""
        if not is_model:
            self._has_begun = True
            if self._is_late and self.pending:
                self._close()
        elif self._has_order and not (self._is_model and self._merges):
            if self.pending:
                self._close()
            if self._has_calls or self._answered:
                self._answered, self._has_calls, self._is_late = {}, False, False
                if self._late:
                    self._late = set()
            self._is_before = False
        self._is_model = is_model

    def call(self, call_id: str, index: int, position: int = 0) -> None:
        pending, seen = self.pending, self._seen
        if not self._is_model:
            self.problems.append(Problem("wrong role", index, position, call_id))
            return
        if not self._has_begun and self.opening is None:
            self.opening = Problem("begins with a call", index, position, call_id)
        if not call_id:
            self.problems.append(Problem("no id", index, position))
        elif call_id in pending or (seen is not None and call_id in seen):
            self.problems.append(Problem("repeated call", index, position, call_id))
        elif not self._has_order and call_id in self._answered:
            self.problems.append(Problem("early result", index, position, call_id))
        self._has_calls = True
        if call_id not in pending:
            pending[call_id] = (index, position)
        if seen is not None:
            seen.add(call_id)

    def result(self, call_id: str, index: int, position: int = 0) -> None:
        if self._is_model:
            self.problems.append(Problem("wrong role", index, position, call_id))
        elif call_id in self._answered:
            self.problems.append(Problem("repeated result", index, position, call_id))
        elif self.pending.pop(call_id, None) is None and self._has_order and not self._is_before:
            kind: ProblemKind = "late" if call_id in self._late else "orphan" if self._has_calls else "stray"
            self.problems.append(Problem(kind, index, position, call_id))
            if kind == "late":
                self._answered[call_id] = (index, position)
        else:
            self._answered[call_id] = (index, position)

    def answer(self, call_id: str, index: int) -> bool:
        """Whether a message of the client that is one result answers a call directly; if not, it is given in steps."""
        if self._is_late or call_id in self._answered or self.pending.pop(call_id, None) is None:
            return False
        self._is_model, self._has_begun, self._answered[call_id] = False, True, (index, 0)
        return True

    def other(self) -> None:
        """Content of the client that is not a result."""
        if self.pending and not self._is_model:
            self._is_late = True
            if self._results_first:
                self._late.update(self.pending)
                self._close()

    def end(self, *, known: Iterable[str] = (), is_continued: bool = False) -> list[Problem]:
        """The problems of the whole sequence.

        Where the order does not matter, results may also answer `known` ids, and any call if the sequence `is_continued`.
        """
        if self._has_order:
            if self.pending:
                self._close()
            return self.problems
        for call_id, place in self.pending.items():
            if call_id not in self._answered:
                self.problems.append(Problem("unanswered", *place, call_id))
        if not is_continued and not self._is_before:
            for call_id, place in self._answered.items():
                if call_id not in (self._seen or ()) and call_id not in known:
                    self.problems.append(Problem("orphan", *place, call_id))
        return self.problems

    def _close(self) -> None:
        """Report the calls that have no result, once, at the first of them."""
        call_id, place = next(iter(self.pending.items()))
        self.problems.append(Problem("unanswered", *place, call_id))
        self.pending = {}


MESSAGES: dict[ProblemKind, str] = {
    "unanswered": "has a call without a result directly after it",
    "orphan": "answers no call of the message before",
    "stray": "is a result without a call before it",
    "late": "is a result that does not follow its call directly",
    "repeated result": "is a second result of the same call",
    "repeated call": "has the id of another call",
    "early result": "has its result before it",
    "no id": "is a call without an id",
    "wrong role": "is a call of the client or a result of the model",
    "begins with a call": "is a call, and nothing of the user comes before it",
}


class Order(Check, frozen=True):
    """The rows of a format about order: which rule each kind of problem breaks, and where it is reported.

    `judge` gives the problems of a body; `place` the steps to what a problem is about.
    """

    broken: Mapping[str, str]
    judge: Callable[[Any, Checked], Iterable[Problem]]
    place: Callable[[Problem, Any], tuple[str | int, ...]]

    def check(self, value: Any, _: Path, found: Checked) -> None:
        for problem in self.judge(value, found):
            rule = self.broken.get(problem.kind)
            if rule is not None:
                at: Path = None
                for step in self.place(problem, value):
                    at = (at, step)
                shown = f" ({problem.call_id[:80]})" if problem.call_id else ""
                found.add(rule, at, MESSAGES[problem.kind] + shown)
