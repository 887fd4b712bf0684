"""`ProviderClient`: the interface for calling a model.

A call is a stream of deltas that ends with exactly one terminal event, `Finished` or `Failed` (see `wire.delta`). Every failure
(no connection, a rejected key, an HTML page, a cut stream) is a `Failed` with a `ProviderError`; exceptions are for cancellation
and for mistakes of the caller. Closing the iterator, or cancelling the task that reads it, closes the connection at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from antiphon.closing import AsyncClosable
from antiphon.history import ContextEntry, Origin
from antiphon.providers.call import ProviderCallOptions
from antiphon.wire.delta import ModelOutputDelta

if TYPE_CHECKING:
    from antiphon.providers.engine.provider_call import TargetCall


class ProviderClient(AsyncClosable):
    """Calls models of a provider. `name` is its name in routes and origins."""

    name: str

    @abstractmethod
    def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Request the next output. Implementations are async generators."""

    def has_structured_output(self, model: str, *, with_tools: bool) -> bool:  # noqa: ARG002
        """Whether `model` keeps to the JSON Schema of an output format, also in requests with tools."""
        return False

    def origins_of(self, model: str) -> Sequence[Origin]:
        """Who may answer a call for `model`: for its price, before it is made. Raises `RoutingError` for an unknown name."""
        return (Origin(self.name, "", model),)

    def compacts_at(self, model: str, tokens: int) -> bool:  # noqa: ARG002
        """Whether the API of `model` compacts a conversation of more than `tokens` itself, if it is asked to."""
        return False

    def continues_prefix(self, model: str) -> bool:  # noqa: ARG002
        """Whether `model` continues a last message of its own instead of writing another one."""
        return False

    def prepare_call(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> TargetCall | None:
        """The call as a request with its keys and retries, for a router that has more targets.

        None, the default: the router uses `call_model`, and takes each call as one attempt.
        """
        del context, options
        return None

    async def aclose(self) -> None:
        """Close connections. Running calls end."""
