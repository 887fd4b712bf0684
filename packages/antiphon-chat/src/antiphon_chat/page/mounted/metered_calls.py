"""`ChatMeter` and `MeteredCalls`: model calls of the chat page, admitted and recorded like requests of the gateway's clients.

A turn is one request of the client's limit per minute. Each of its model calls, summaries and titles included, is checked
against the budgets, and is one finished request in the ledger, the metrics, the recent requests and the log. A call that a
budget refuses fails with the message that a client of the gateway gets.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing

from msgspec import structs

from antiphon.context.tokens import CharacterEstimate
from antiphon.errors import AntiphonError
from antiphon.history import ContextEntry, Origin
from antiphon.http.request_ids import new_request_ids
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.routes import Target
from antiphon.tools import CallOutcome, ToolRegistry
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta
from antiphon.wire.output import ProviderError
from antiphon_chat.page.request import ApiError
from antiphon_chat.shared.models import ChatModels
from antiphon_gateway.access.accounts import ClientAccounts, priced_targets
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.errors import provider_error_status
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.record import CHAT_PAGE, Record
from antiphon_gateway.observe.recorder import Recorder
from antiphon_gateway.runtime.loaded import LoadedConfig

_request_ids = new_request_ids()


class ChatMeter:
    """Admits the turns of clients and meters their model calls. `loaded` gives the current configuration."""

    def __init__(
        self, accounts: ClientAccounts, recorder: Recorder, metrics: Metrics, loaded: Callable[[], LoadedConfig]
    ) -> None:
        self._accounts = accounts
        self._recorder = recorder
        self._metrics = metrics
        self._loaded = loaded

    async def admit(self, key: ClientKey, model: str) -> None:
        """Count a turn of a client. Raises `ApiError` if one of its limits refuses it."""
        if not key.is_limited:
            return
        reached = await self._accounts.limit_reached(key, costs=True)
        if reached is not None:
            error, wait = reached.error(), str(max(1, math.ceil(reached.wait)))
            status = 402 if error.kind == "billing" else 429
            raise ApiError(error.message, status, error.kind, retry_after=wait, x_antiphon_limit=reached.limit)
        allowed = _allowed_targets(key, model, self._loaded())
        if isinstance(allowed, ProviderError):
            raise ApiError(allowed.message, 403, allowed.code or "forbidden")

    def count_tool_calls(self, tools: ToolRegistry) -> Callable[[CallOutcome], None]:
        """Counts the calls of these tools, which an executor reports as they end."""

        def count(call: CallOutcome) -> None:
            known = call.tool_name if tools.get(call.tool_name) is not None else ""
            self._metrics.tool_call(known, "cached" if call.is_cached else call.status, call.seconds)

        return count

    def calls_of(self, owner: str, models: Callable[[], ChatModels]) -> MeteredCalls:
        """The models, metered for the client that owns a conversation."""
        return MeteredCalls(owner, models, self._accounts, self._recorder, self._loaded)


class MeteredCalls(ProviderClient):
    """Calls the current models for one client, by its current limits."""

    name = "chat"

    def __init__(
        self,
        owner: str,
        models: Callable[[], ChatModels],
        accounts: ClientAccounts,
        recorder: Recorder,
        loaded: Callable[[], LoadedConfig],
    ) -> None:
        self._owner = owner
        self._models = models
        self._accounts = accounts
        self._recorder = recorder
        self._loaded = loaded

    def origins_of(self, model: str) -> Sequence[Origin]:
        return self._models().router.origins_of(model)

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        loaded, router = self._loaded(), self._models().router
        key = loaded.keys.named(self._owner) or ClientKey(name=self._owner)
        model = options.model or router.default
        reached = await self._accounts.budget_reached(key)
        if reached is not None:
            yield Failed(ProviderError(reached.message, "billing", code=reached.limit, retry_after=reached.wait))
            return
        options = structs.replace(options, request_id=next(_request_ids))
        call = _CallRecord(model, self._owner, options)
        try:
            targets = _allowed_targets(key, model, loaded)
            calls = (
                _refused(targets)
                if isinstance(targets, ProviderError)
                else router.call_targets(targets, context, options)
            )
            async with aclosing(calls) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    call.observe(delta)
                    yield delta
        except BaseException as error:
            call.end(context, error)
            raise
        else:
            call.end(context, None)
        finally:
            self._recorder.add(call.record, key, loaded.prices)


class _CallRecord:
    """The record of one call, from the report that the provider writes."""

    def __init__(self, model: str, owner: str, options: ProviderCallOptions) -> None:
        self.record = Record(
            request_id=options.request_id,
            client_format=CHAT_PAGE,
            requested_model=model,
            key=owner,
            streams=True,
            service_tier=options.settings.service_tier or "",
        )
        self._report = report = options.report
        self._before = len(report.attempts), len(report.fallbacks), len(report.losses), len(report.repairs)
        self._status = 0

    def observe(self, delta: ModelOutputDelta) -> None:
        """Record the facts in a delta."""
        if isinstance(delta, Failed):
            self.record.error = delta.error
            self._status = 200 if self.record.first_token_seconds is not None else provider_error_status(delta.error)
            return
        self.record.observe([delta])
        if isinstance(delta, Finished):
            self._status = 200

    def end(self, context: Sequence[ContextEntry], error: BaseException | None) -> None:
        """The call is over: it ended, was stopped by its client, or met a defect of ours."""
        record, report = self.record, self._report
        attempts, fallbacks, losses, repairs = self._before
        record.attempts, record.fallbacks = report.attempts[attempts:], report.fallbacks[fallbacks:]
        record.losses, record.repairs = report.losses[losses:], report.repairs[repairs:]
        origin = report.origin
        record.provider, record.model, record.upstream_format = origin.provider, origin.model, origin.format
        status = self._status
        if not status and isinstance(error, AntiphonError):  # such as a model that a reload has removed
            status, record.error = 400, ProviderError(str(error), "invalid_request")
        elif not status:
            status = 200 if error is None else record.status_after(error, math.inf)
        record.end(status)
        if record.usage is None or record.status != 200 or record.error is not None or len(record.attempts) > 1:
            record.prompt_estimate = sum(map(CharacterEstimate().count, context))
        record.waiting_seconds = record.seconds


async def _refused(error: ProviderError) -> AsyncIterator[ModelOutputDelta]:
    yield Failed(error)


def _allowed_targets(key: ClientKey, model: str, loaded: LoadedConfig) -> list[Target] | ProviderError:
    """The targets that a client may use: those of the gateway's routes, and with a money budget those with a known price."""
    return priced_targets(key, loaded.resolve(model), loaded.prices)
