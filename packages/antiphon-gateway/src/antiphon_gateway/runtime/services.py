"""`Services`: what all requests of a process share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from antiphon.http.body import Governor
from antiphon.http.client.request import Transport
from antiphon.providers.keys.health import CredentialStatus
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.stored_keys import StoredKeys
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.recorder import Recorder
from antiphon_gateway.observe.tracing import RequestTracer
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.media import MediaFetcher
from antiphon_gateway.share.state import SharedState
from antiphon_gateway.state.answers import AnswerStore
from antiphon_gateway.state.background import BackgroundAnswers
from antiphon_gateway.state.conversations import ConversationStore


class Services(Struct, kw_only=True):
    """Shared by all requests of a process."""

    transport: Transport
    answers: AnswerStore
    conversations: ConversationStore
    background: BackgroundAnswers
    media: MediaFetcher
    accounts: ClientAccounts
    """What clients may use and have used."""
    recorder: Recorder
    """Where finished requests go; these three are among its sinks."""
    metrics: Metrics
    recent: RecentRequests
    spans: RequestTracer
    database: OperatorDatabase
    stored_keys: StoredKeys
    """Client keys in that database."""
    governor: Governor = field(default_factory=Governor)
    """Counts what waits."""
    ledger: UsageLedger | None = None
    """Where usage is recorded; None: nowhere."""
    shared: SharedState = field(default_factory=SharedState)
    """What is shared with other processes."""

    def credentials_of(self, loaded: LoadedConfig) -> Mapping[str, Sequence[CredentialStatus]]:
        """The health of the keys of each provider, with the calls of all workers of the host."""
        return self.shared.with_other_workers(loaded.credentials)
