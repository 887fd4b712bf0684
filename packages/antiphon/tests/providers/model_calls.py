"""What a client says to a question, collected; and a model that never ends, to be left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from antiphon.history import ContextEntry
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.scripted import FunctionModel
from antiphon.wire.delta import Assembler, ModelOutputDelta, PartDelta
from providers.sample_answers import QUESTION, deltas_from


def deltas_of(
    client: ProviderClient,
    context: Sequence[ContextEntry] = QUESTION,
    options: ProviderCallOptions | None = None,
) -> list[ModelOutputDelta]:
    """Every delta of a call."""
    return asyncio.run(deltas_from(client, options or ProviderCallOptions(), context))


def assembled(deltas: Sequence[ModelOutputDelta]) -> Assembler:
    """The deltas put together."""
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler


class Endless:
    """A model that never stops, and whether it was stopped."""

    def __init__(self) -> None:
        self.is_closed = False
        self.model = FunctionModel(self._words)

    async def _words(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[str]:
        try:
            while True:
                yield "on "
        finally:
            self.is_closed = True


def left(client: ProviderClient, options: ProviderCallOptions, endless: Endless | None = None) -> bool:
    """Ask, and leave at the first word. Whether `endless` was stopped at once, and not by a later cleanup."""

    async def leave() -> bool:
        stream = client.call_model(QUESTION, options)
        async for delta in stream:
            if isinstance(delta, PartDelta):
                break
        await stream.aclose()  # type: ignore[attr-defined]
        return endless is not None and endless.is_closed

    return asyncio.run(leave())
