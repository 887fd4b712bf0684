"""`CallRecord`: what a call of a model becomes in the log, whatever came of it.

An answer is a `ModelOutputEntry`, finished or not; a call in which nothing was said is a note. Both say what there is to know of
the call: what it cost, how long it took, what failed on the way. Losses and repairs are told once, not with every call.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from msgspec import Struct

from antiphon.conversation.parts_tracker import INTERRUPTED, PartsTracker
from antiphon.history import DebugLogEntry, EntryMetadata, ModelOutputEntry
from antiphon.providers.call import CallReport


class CallEnding(Struct, frozen=True, kw_only=True):
    """How a call ended. `how` is empty if the answer was finished, else one of the marks of `PartsTracker`; `why` is what was
    raised; `ended` is why the turn is over with this answer, if it is; `source` is who spoke, and `provider` who was asked."""

    how: str
    why: str = ""
    ended: str = ""
    source: str = ""
    provider: str = ""
    seconds: float = 0.0


class CallRecord:
    """Makes entries of calls, and remembers what it told."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def entry(
        self, tracker: PartsTracker, report: CallReport, used_ids: Container[str], ending: CallEnding
    ) -> ModelOutputEntry | DebugLogEntry:
        """The entry for the log."""
        error = str(tracker.error.message) if tracker.error else ending.why
        seconds = round(ending.seconds, 6)
        extra = self._noteworthy(report)
        # An answer that failed does not end the turn: it can be asked for again.
        ended = ending.ended if not ending.how else INTERRUPTED if ending.how == INTERRUPTED else ""
        if ended:
            extra["ended"] = ended
        output = tracker.entry(
            report.origin,
            used_ids,
            duration=seconds,
            source=ending.source,
            ended=ending.how,
            error=error,
            extra=extra or None,
        )
        if output is not None:
            return output
        kind = tracker.error.kind if tracker.error else ending.how
        text = f"{report.origin.provider or ending.provider}: {kind}: {error or 'nothing was said'}"
        metadata = EntryMetadata(duration=seconds, usage=tracker.usage, error=error, extra=extra or None)
        return DebugLogEntry("model call", text, metadata=metadata)

    def _noteworthy(self, report: CallReport) -> dict[str, Any]:
        """What of a report belongs into the log: failed attempts, and losses and repairs that were not told before."""
        extra: dict[str, Any] = {}
        if report.losses or report.repairs:
            for name, things in (("losses", report.losses), ("repairs", report.repairs)):
                if news := [thing for thing in map(str, things) if thing not in self._told]:
                    self._told.update(news)
                    extra[name] = news
        if failed := [f"{attempt.provider}: {attempt.error.message}" for attempt in report.attempts if attempt.error]:
            extra["failed_attempts"] = failed
        return extra
