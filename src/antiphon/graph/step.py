"""`GraphStep`: one node at work on one conversation.

It has the conversation, open and held, and how the graph's state stands to it. Before a node writes anything it calls `mark`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from antiphon.conversation import Bounds, Conversation, LoopEvent
from antiphon.conversation.agent import CHANNEL
from antiphon.conversation.parts_tracker import INTERRUPTED
from antiphon.conversation.stage import Stage
from antiphon.conversation.turn import is_question
from antiphon.conversation.turn_runner import TurnRunner
from antiphon.errors import TurnOver
from antiphon.graph.mark import StepMark, append_mark, last_mark
from antiphon.graph.place import Place
from antiphon.graph.standing import Standing
from antiphon.graph.telling import Telling
from antiphon.history import HistoryEntry, ModelInputEntry
from antiphon.history.snapshot import SETTING_KINDS


class GraphStep:
    """The conversation `chat`, and what the graph's `state` says. `bounds` and `max_hand_overs` end what would not end."""

    def __init__(
        self,
        chat: Conversation,
        state: Mapping[str, Any],
        place: Place,
        standing: Standing,
        telling: Telling,
        *,
        bounds: Bounds,
        max_hand_overs: int,
    ) -> None:
        self.chat = chat
        self.state = state
        self.place = place
        self.standing = standing
        self._telling = telling
        self._bounds = bounds
        self._max_hand_overs = max_hand_overs
        mark = last_mark(chat.history)
        is_known = mark is None or mark.number <= int(state["version"])
        self._mark: StepMark | None = None if is_known else mark

    @property
    def is_behind(self) -> bool:
        """Whether the log has work in it that the graph does not know of yet. What was only set meanwhile is none."""
        return self.standing == "kept" or any(type(entry) not in SETTING_KINDS for entry in self.done)

    def mark(self) -> None:
        """Write down that this step begins, unless that was done before."""
        if self._mark is None or self._mark.task != self.place.task:
            self._mark = append_mark(self.chat.history, self.place, int(self.state["version"]))

    @property
    def done(self) -> list[HistoryEntry]:
        """What this very step did when it ran before, as far as that still counts."""
        if self.standing != "resumed" or self._mark is None:
            return []
        return self._since(self._mark)

    def _since(self, mark: StepMark) -> list[HistoryEntry]:
        """The effective entries after a mark."""
        new = takewhile(lambda entry: entry.sequence_number > mark.number, reversed(self.chat.history.effective))
        return list(new)[::-1]

    def retract_what_was_interrupted(self) -> None:
        """An answer that was cancelled is asked for again: the graph says when a turn is over, not whoever stopped a run.

        Instructions, notes and summaries that were set meanwhile stay.
        """
        if self.is_behind and self._mark is not None and self.chat.turn.ended == INTERRUPTED:
            kept = [entry.sequence_number for entry in self._since(self._mark) if type(entry) in SETTING_KINDS]
            self.chat.history.rollback(self._mark.number, "the step was cancelled; it is made again", kept=kept)

    def hand_over(self, stage: Stage, words: ModelInputEntry) -> None:
        """Begin a turn that no person asked for, so many times in a row and no more."""
        runner = self.runner(stage)
        if _hand_overs(self.chat) >= self._max_hand_overs:
            runner.record_end("max_hand_overs")
            raise TurnOver(
                f"the graph has led from model to model {self._max_hand_overs} times since a person spoke in conversation "
                f"{self.chat.id}; the log says so. Lead it to END, or allow more with Conversations(max_hand_overs=…)"
            )
        runner.start(words)

    def runner(self, stage: Stage) -> TurnRunner:
        """Plays one step of the turn as the loop would: within its bounds, repeating nothing that is finished."""
        return TurnRunner(stage, self._bounds, self.tell, steps=1, spent=self._spent())

    def tell(self, event: LoopEvent) -> None:
        """Let whoever streams the graph hear it."""
        self._telling.tell(event)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While the model is asked: whoever listens to LangChain's callbacks hears how that ends."""
        try:
            yield
        except BaseException as error:
            self._telling.failed(error)
            raise
        self._telling.answered(self.chat.turn.output)

    def _spent(self) -> float:
        """How many seconds the turn has cost, as far as its entries say."""
        if self._bounds.seconds is None:
            return 0.0
        spent = 0.0
        question = self.chat.turn.input
        for entry in reversed(self.chat.history.snapshot().effective):
            if question is not None and entry.sequence_number <= question.sequence_number:
                break
            spent += (entry.metadata.duration or 0.0) if entry.metadata else 0.0
        return spent


def _hand_overs(chat: Conversation) -> int:
    """How many turns in a row no person began."""
    count = 0
    for entry in reversed(chat.history.snapshot().effective):
        if isinstance(entry, ModelInputEntry) and is_question(entry):
            if entry.channel != CHANNEL:
                break
            count += 1
    return count
