"""`ProviderClient`: somebody who can be asked for the next turn of a conversation.

A call is a stream of deltas that ends with exactly one terminal event, `Finished` or `Failed` (see `wire.delta`). Whatever goes
wrong on the way (no connection, a refused key, a page of HTML, a cut stream) is a `Failed` with a `ProviderError` that says
what it was; exceptions are for cancellation and for mistakes of the caller. Closing the iterator, or cancelling the task
that reads it, closes the connection at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from antiphon.history import ContextEntry
from antiphon.providers.call import ProviderCallOptions
from antiphon.wire.delta import ModelOutputDelta


class ProviderClient(ABC):
    """A provider of model output. `name` is what routes and origins call it."""

    name: str

    @abstractmethod
    def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Ask for the next output. Implementations are async generators."""

    async def aclose(self) -> None:  # noqa: B027 - not everybody has something to let go of
        """Let go of connections. Calls that run are ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
