"""`RunTable`: which conversations are to be gone on with, and by whom; the part of a store that workers look at.

A run is one turn that somebody asked for and some worker is to bring to its end. What happened in it is in the log; its row says
only whether anybody must still look at it. That a run is being played is no state of its own: it is a waiting run whose
conversation is leased. A worker that dies changes nothing, its lease runs out, and the run is simply there to be claimed.

    waiting  -> done | failed | cancelled      the turn is over, or given up
    waiting  -> suspended -> waiting           calls wait for a person; a decision wakes it
    waiting  -> waiting, due later             the provider is away for now

A conversation has at most one run that is not over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.history.entries import ModelInputEntry
from antiphon.history.lease import Lease

RunState: TypeAlias = Literal["waiting", "suspended", "done", "failed", "cancelled"]
ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled"})


class Run(Struct, frozen=True, kw_only=True):
    """The row of a run, and the lease under which it is being played if it is."""

    id: str
    conversation: str
    kind: str
    """What sort of run it is: the name under which workers know the model, the tools and the bounds."""
    code: int = 0
    """The least version of that kind's code that may play it."""
    provider: str = ""
    """Whose limit it counts against."""
    options: dict[str, Any] = {}
    """What the submitter said about it, for the code of its kind."""
    state: RunState = "waiting"
    reason: str = ""
    """Why it stands as it does: how the turn ended, what failed, who cancelled it."""
    created: datetime
    updated: datetime
    due: datetime
    """Not before this."""
    attempts: int = 0
    """How often it was claimed."""
    is_cancelled: bool = False
    """Whether its end was asked for while somebody plays it."""
    lease: Lease | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def standing(self) -> str:
        """The state in one word, a played run told from one that waits."""
        return "running" if self.state == "waiting" and self.lease is not None else self.state


class RunTable(ABC):
    """The runs of a store."""

    @abstractmethod
    def submit(
        self,
        question: ModelInputEntry | None,
        *,
        kind: str,
        conversation: str | None = None,
        title: str = "",
        code: int = 0,
        provider: str = "",
        options: Mapping[str, Any] | None = None,
        max_waiting: int | None = None,
    ) -> Run:
        """Ask for a turn, in one transaction: the conversation if it is new, the question in its log, and the run.

        Without a question the turn stands in the log already. Raises `RunRefused` if the conversation has a run that is not
        over, and `TooManyRuns` if `max_waiting` others wait already.
        """

    @abstractmethod
    def get(self, run: str) -> Run:
        """A run by its id, or the beginning or end of it if only one fits, or `last`. Raises `UnknownRun`."""

    @abstractmethod
    def list(
        self, *, state: str | None = None, conversation: str | None = None, limit: int = 50, offset: int = 0
    ) -> Sequence[Run]:
        """Runs, the latest first. `state` may also be `running`."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many runs there are in each standing, `running` among them."""

    @abstractmethod
    def claim(
        self,
        holder: str,
        seconds: float,
        *,
        kinds: Mapping[str, int],
        limits: Mapping[str, int] | None = None,
    ) -> Run | None:
        """The oldest waiting run that is due, under a lease; None if there is none for this worker.

        `kinds` are those it knows, with the version of its code: it is given none that asks for a later one. `limits` say how
        many runs of a provider may be played at once by all workers together.
        """

    @abstractmethod
    def settle(self, run: str, lease: Lease, state: RunState, reason: str = "", *, due: datetime | None = None) -> Run:
        """Say how the run stands and give the lease back, in one transaction. Raises `LeaseLost` if it is another's by now.

        A run whose end was asked for meanwhile does not wait again: it is cancelled.
        """

    @abstractmethod
    def cancel(self, run: str, reason: str = "") -> Run:
        """Ask for the end of a run: at once if nobody plays it, else when its player next looks. What is over stays as it is."""

    @abstractmethod
    def wake(self, run: str) -> Run:
        """Let a suspended or failed run wait again, due now; a run that waits or is over otherwise stays as it is."""
