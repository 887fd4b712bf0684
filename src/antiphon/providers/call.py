"""One call of a model: what is asked for beside the context (`ProviderCallOptions`), and what came of asking (`CallReport`).

A report is made by whoever calls and filled by whoever answers: the client writes down whom it asked, how often, what the
format could not say and what had to be repaired. Nothing in it is a secret; credentials appear masked.
"""

from __future__ import annotations

from msgspec import Struct, field

from antiphon.errors import AntiphonError
from antiphon.history import Origin
from antiphon.repair.action import Action
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, ToolDefinition


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try at a provider. `error` is why it was not the last, or why it was."""

    provider: str
    model: str = ""
    credential: str = ""
    """The credential's name or its masked form."""
    status: int | None = None
    seconds: float = 0.0
    error: ProviderError | None = None


class CallReport(Struct, kw_only=True):
    """What came of a call, beside its deltas. `origin` is who answered."""

    origin: Origin = field(default_factory=Origin)
    attempts: list[Attempt] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Action] = field(default_factory=list)
    provider_request_id: str = ""


class ProviderCallOptions(Struct, kw_only=True):
    """What is asked of a model beside the context.

    `settings` holds everything else a request can say (temperature, reasoning, output format, …); its messages, model and tools
    are not looked at. `request_id` names the call in every log line.
    """

    model: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    settings: ModelRequest = field(default_factory=ModelRequest)
    request_id: str = ""
    report: CallReport = field(default_factory=CallReport)


class ModelCallFailed(AntiphonError):
    """No provider finished an answer. `error` is what the last of them said, `report` everything that was tried."""

    def __init__(self, error: ProviderError, report: CallReport) -> None:
        self.error = error
        self.report = report
        whom = "/".join(filter(None, (report.origin.provider, report.origin.model))) or "the provider"
        tries = f" after {len(report.attempts)} attempts" if len(report.attempts) > 1 else ""
        super().__init__(f"{whom} did not answer{tries} ({error.kind}): {error.message}")
