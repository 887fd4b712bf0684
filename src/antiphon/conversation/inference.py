"""`Inference`: one call of a model, written down whatever becomes of it.

Used with `with`: whoever leaves it, by the end of the answer, by an error, by being cancelled or by no longer listening, leaves
an entry in the log that says what was said and how it ended.

The fast path: where nobody listens and no call can be hidden in the text, each delta goes straight to the `PartsTracker`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from antiphon.context import LiveContext
from antiphon.conversation.parts_tracker import FAILED, INTERRUPTED, PartsTracker
from antiphon.errors import ConversationError
from antiphon.providers.call import ModelCallFailed, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.wire.delta import ModelOutputDelta

if TYPE_CHECKING:
    import asyncio

    from antiphon.tools.embedded import EmbeddedCalls
    from antiphon.tools.executor import ToolExecutor

TIME_BUDGET = "time_budget"
"""Why a turn is over whose time limit cancelled an answer."""


class Inference(Struct, eq=False):
    """A call of `client`. `record` is told once that it ended: `how` and `why`, unless the answer was finished.

    `source` is who spoke; `ended` is why the turn is over with this answer, if it is. `executor` is the one for its calls;
    `time_limit` is the timeout that may cancel it.
    """

    client: ProviderClient
    context: LiveContext
    options: ProviderCallOptions
    record: Callable[[Inference], None]
    embedded: EmbeddedCalls | None = None
    source: str = ""
    ended: str = ""
    executor: ToolExecutor | None = None
    time_limit: asyncio.Timeout | None = None
    tracker: PartsTracker = field(default_factory=PartsTracker)
    how: str = ""
    why: str = ""
    seconds: float = 0.0
    is_over: bool = False

    def __enter__(self) -> AsyncGenerator[ModelOutputDelta, None]:
        """The deltas as the provider says them; each is to be given to `hear`."""
        self.seconds = -perf_counter()
        said: Any = self.client.call_model(self.context, self.options)
        return said  # type: ignore[no-any-return]  # clients are async generators, though their type does not say so

    async def told_to(self, listener: Callable[[ModelOutputDelta], None] | None) -> None:
        """Make the call, from beginning to end; `listener`, if there is one, is called with each delta."""
        with self as said:
            try:
                if listener is None and self.embedded is None:
                    add = self.tracker.add
                    async for delta in said:
                        add(delta)
                else:
                    async for delta in said:
                        _tell(self.hear(delta), listener)
            except BaseException:
                await said.aclose()
                raise
            _tell(self.end(), listener)

    def hear(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """Take a delta in; what it means to whoever listens."""
        if self.embedded is None:
            self.tracker.add(delta)
            return (delta,)
        return self._tracked(self.embedded.feed(delta))

    def end(self) -> Sequence[ModelOutputDelta]:
        """The provider has said everything; what was held back."""
        self.is_over = True
        return self._tracked(self.embedded.close()) if self.embedded is not None else ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tracker = self.tracker
        if isinstance(error, Exception):
            self.how, self.why = FAILED, f"{type(error).__name__}: {error}"
        elif error is not None or not self.is_over:
            self.how = INTERRUPTED
            is_timeout = self.time_limit is not None and self.time_limit.expired()
            self.ended = TIME_BUDGET if is_timeout else INTERRUPTED
        elif not tracker.is_finished:
            self.how = FAILED
        self.seconds += perf_counter()
        self.record(self)
        if error is None and self.how == FAILED:
            if tracker.error is not None:
                raise ModelCallFailed(tracker.error, self.options.report)
            raise ConversationError(f"the provider {self.client.name!r} ended its stream without a terminal event")

    def _tracked(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        for delta in deltas:
            self.tracker.add(delta)
        return deltas


def _tell(deltas: Sequence[ModelOutputDelta], listener: Callable[[ModelOutputDelta], None] | None) -> None:
    if listener is not None:
        for delta in deltas:
            listener(delta)
