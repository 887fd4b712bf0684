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

from antiphon.context import LiveContext
from antiphon.conversation.parts_tracker import FAILED, INTERRUPTED, PartsTracker
from antiphon.conversation.record import CallEnding
from antiphon.errors import ConversationError
from antiphon.providers.call import ModelCallFailed, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.wire.delta import ModelOutputDelta

if TYPE_CHECKING:
    from antiphon.tools.embedded import EmbeddedCalls


class Inference:
    """A call of `client`. `record` is told how it ended, exactly once."""

    def __init__(
        self,
        client: ProviderClient,
        context: LiveContext,
        options: ProviderCallOptions,
        record: Callable[[PartsTracker, CallEnding], None],
        *,
        embedded: EmbeddedCalls | None = None,
        source: str = "",
        ended: str = "",
    ) -> None:
        self._client = client
        self._context = context
        self._options = options
        self._record = record
        self._embedded = embedded
        self._source = source
        self._ended = ended
        self._tracker = PartsTracker()
        self._is_over = False
        self._began = 0.0

    def __enter__(self) -> AsyncGenerator[ModelOutputDelta, None]:
        """The deltas as the provider says them; each is to be given to `hear`."""
        self._began = perf_counter()
        said: Any = self._client.call_model(self._context, self._options)
        return said  # type: ignore[no-any-return]  # clients are async generators, though their type does not say so

    def listening(self, hear: Callable[[ModelOutputDelta], None] | None) -> Callable[[ModelOutputDelta], None]:
        """What is to be called with each delta, so that it is taken in and `hear` hears what it means."""
        if self._embedded is None and hear is None:
            return self._tracker.add

        def take(delta: ModelOutputDelta) -> None:
            for read in self.hear(delta):
                if hear is not None:
                    hear(read)

        return take

    def hear(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """Take a delta in; what it means to whoever listens."""
        if self._embedded is None:
            self._tracker.add(delta)
            return (delta,)
        return self._tracked(self._embedded.feed(delta))

    def end(self) -> Sequence[ModelOutputDelta]:
        """The provider has said everything; what was held back."""
        self._is_over = True
        return self._tracked(self._embedded.close()) if self._embedded is not None else ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        how, why = INTERRUPTED, ""
        if isinstance(error, Exception):
            how, why = FAILED, f"{type(error).__name__}: {error}"
        elif error is None and self._is_over:
            how = "" if self._tracker.is_finished else FAILED
        self._record(
            self._tracker,
            CallEnding(
                how=how,
                why=why,
                ended=self._ended,
                source=self._source,
                provider=self._client.name,
                seconds=perf_counter() - self._began,
            ),
        )
        if error is None and how == FAILED:
            if self._tracker.error is not None:
                raise ModelCallFailed(self._tracker.error, self._options.report)
            raise ConversationError(f"the provider {self._client.name!r} ended its stream without a terminal event")

    def _tracked(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        for delta in deltas:
            self._tracker.add(delta)
        return deltas
