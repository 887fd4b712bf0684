"""`CallRecord`: what a call of a model becomes in the log, whatever came of it.

An answer is a `ModelOutputEntry`, finished or not; a call in which nothing was said is a note. Both say what there is to know of
the call: what it cost, how long it took, what failed on the way. Losses and repairs are told once, not with every call.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

from msgspec import structs

from antiphon.conversation.parts_tracker import FAILED
from antiphon.history import DebugLogEntry, EntryMetadata, ModelOutputEntry
from antiphon.providers.call import CallReport

if TYPE_CHECKING:
    from antiphon.conversation.inference import Inference


class CallRecord:
    """Makes entries of calls, and remembers what it told."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def entry(self, inference: Inference, used_ids: Set[str]) -> ModelOutputEntry | DebugLogEntry:
        """The entry for the log; its calls get ids that are not among `used_ids`."""
        tracker, report, how = inference.tracker, inference.options.report, inference.how
        error = str(tracker.error.message) if tracker.error else inference.why
        extra = self._noteworthy(report)
        # An answer that failed does not end the turn: it can be asked for again.
        if inference.ended and how != FAILED:
            extra["ended"] = inference.ended
        metadata = EntryMetadata(
            source=inference.source,
            duration=int(inference.seconds * 1e6) / 1e6,
            usage=tracker.usage,
            error=error,
            extra=extra or None,
        )
        output = tracker.entry(report.origin, used_ids, metadata, how)
        if output is not None:
            return output
        kind = tracker.error.kind if tracker.error else how
        text = f"{report.origin.provider or inference.client.name}: {kind}: {error or 'nothing was said'}"
        return DebugLogEntry("model call", text, metadata=structs.replace(metadata, source=""))

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
