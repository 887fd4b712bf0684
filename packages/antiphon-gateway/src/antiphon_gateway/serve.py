"""Start and stop one gateway process: sockets, services, signals and the shutdown.

SIGTERM and SIGINT shut down gracefully: nothing new is accepted, and current requests get `DRAIN_SECONDS` until the last byte
of their response has left; a second signal exits at once. SIGHUP reloads the configuration file; without a file it is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from antiphon import __version__
from antiphon.history.location import display_location
from antiphon.http.body import Governor
from antiphon.http.client.client import HttpClient
from antiphon.http.server.listener import Listener, ServerCertificate, bind_socket, stop_on_signals
from antiphon.logs import configure_logs
from antiphon.prices.table import PriceTable
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.app import Gateway, MountedApp, TapeHandler
from antiphon_gateway.config.reload import ConfigReloader
from antiphon_gateway.config.settings import Config
from antiphon_gateway.ledger.database import OperatorDatabase, journal_folder, ledger_address, open_operator_database
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.spend import LedgerTotals
from antiphon_gateway.ledger.stored_keys import StoredKeys
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.recorder import Recorder, RefusalLog
from antiphon_gateway.observe.request_log import log_requests
from antiphon_gateway.observe.tracing import tracer_from_environment
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.media import MediaFetcher
from antiphon_gateway.runtime.metered import Services
from antiphon_gateway.share.state import SharedState, open_shared_store
from antiphon_gateway.share.workers import WorkerFiles, WorkerHealth, repeat_forever
from antiphon_gateway.state.answers import AnswerStore
from antiphon_gateway.state.background import BackgroundAnswers
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.state.file import StateFile
from antiphon_gateway.threads import PROCESS

logger = logging.getLogger("antiphon.gateway")

DRAIN_SECONDS = 30.0
_LARGE_BLOCK_BYTES = 4 << 20
_FIRST_READ_SECONDS = 1.0
"""How long the start waits for the stored keys. Until they were read, a client with an unknown key gets a 503, not a 401."""


class ListenSockets:
    """The two ports, bound."""

    def __init__(self, config: Config) -> None:
        settings = config.gateway
        self.main = bind_socket(settings.host, settings.port)
        try:
            self.format = bind_socket(settings.host, settings.format_port)
        except BaseException:
            self.main.close()
            raise

    @property
    def ports(self) -> tuple[int, int]:
        """The ports they listen on."""
        return self.main.getsockname()[1], self.format.getsockname()[1]


def tune_memory(_: tuple[int, int]) -> None:
    """Settings for a process that only serves.

    Everything that lives until the end is excluded from garbage collection, and the rest is collected less often. Freed memory
    is kept for the next request: glibc sets its limit for that to twice the largest mapped block that was ever freed, so one is
    allocated (without touching its pages) and freed. Otherwise each large request pays a page fault for every 4 KB.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    bytes(_LARGE_BLOCK_BYTES)


async def serve(
    config: Config,
    *,
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    sockets: ListenSockets | None = None,
    snapshots: WorkerFiles | None = None,
    ready: Callable[[tuple[int, int]], None] | None = None,
    environ: Mapping[str, str] | None = None,
    stop: asyncio.Event | None = None,
    chat: Callable[[Gateway], MountedApp] | None = None,
    tape: Callable[[Gateway], TapeHandler] | None = None,
    has_own_logs: bool = True,
) -> None:
    """Serve until a signal arrives or `stop` is set. `ready` gets the ports once they are open.

    `chat` creates the handler of `/chat/` on the main port; it is closed with the ports. `tape` creates what records the
    requests or answers them from a recording. Without `has_own_logs` the logging of the process is left as it is.
    """
    settings = config.gateway
    certificate = ServerCertificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    sockets = sockets or ListenSockets(config)
    services = open_services(config, lambda: gateway.loaded, environ=environ, snapshots=snapshots)
    shared, metrics = services.shared, services.metrics
    loaded = LoadedConfig(config, services.transport, environ=environ, stored_keys=services.stored_keys)
    gateway = Gateway(loaded, services)
    if services.ledger is not None:
        services.ledger.recover()  # with the prices of this configuration
    mounted = gateway.chat = chat(gateway) if chat is not None else None
    if has_own_logs:
        configure_logs(
            config.gateway.log,
            config.gateway.log_level,
            secrets=lambda: (*gateway.loaded.secrets, *shared.secrets),
            on_failure=metrics.log_failed,
        )
    recording = tape(gateway) if tape is not None else None
    listeners = [
        Listener(
            recording or gateway,
            name,
            loaded.limits,
            governor=services.governor,
            traffic=metrics.traffic,
        )
        for name in ("main", "format")
    ]

    def apply(changed: Config) -> None:
        if certificate is not None and changed.gateway.tls_cert:
            certificate.reload(changed.gateway.tls_cert, changed.gateway.tls_key)
        gateway.apply(changed)
        for listener in listeners:
            listener.limits = gateway.loaded.limits

    stop = stop or asyncio.Event()
    tasks: list[asyncio.Task[None]] = []
    tasks.append(await shared.start())
    tasks.append(asyncio.create_task(services.stored_keys.run()))
    await services.stored_keys.wait_for_first_read(_FIRST_READ_SECONDS)
    if snapshots is not None:
        shares = [gateway.refresh_gauges, metrics.share, services.recent.share]
        tasks.append(asyncio.create_task(repeat_forever(shares)))
    if path is not None:
        reloader = ConfigReloader(
            path, apply, serving=config, environ=environ, overrides=overrides or {}, on_reload=metrics.reloaded
        )
        gateway.reloader = reloader
        tasks.append(asyncio.create_task(reloader.run()))
    else:
        _ignore_hangups()
    try:
        for listener, sock in zip(listeners, (sockets.main, sockets.format), strict=True):
            await listener.open(sock, certificate.context if certificate is not None else None)
        with stop_on_signals(stop):
            main, format_port = sockets.ports
            host = config.gateway.host
            scheme = "http" if certificate is None else "https"
            logger.info("listening on %s://%s:%s (format proxy on port %s)", scheme, host, main, format_port)
            if mounted is not None:
                logger.info("chat page: %s://%s:%s/chat/", scheme, host, main)
            if ready is not None:
                ready(sockets.ports)
            await stop.wait()
            logger.info("shutting down; draining requests for up to %g s", DRAIN_SECONDS)
            closing = [listener.close(DRAIN_SECONDS) for listener in listeners]
            closing += [mounted.aclose(DRAIN_SECONDS)] if mounted is not None else []
            await asyncio.gather(*closing, services.background.drain(DRAIN_SECONDS))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await services.background.aclose()
        await services.answers.aclose()
        services.spans.close()
        if services.ledger is not None:
            await PROCESS.run(services.ledger.close)
        services.recorder.close()
        gateway.refresh_gauges()  # with the rows that were written last
        metrics.close()
        await PROCESS.run(services.database.close)
        await services.transport.aclose()
        if recording is not None:
            recording.close()
        await shared.aclose()  # last: the others may have charged something until here


def open_services(
    config: Config,
    loaded: Callable[[], LoadedConfig],
    *,
    environ: Mapping[str, str] | None = None,
    snapshots: WorkerFiles | None = None,
) -> Services:
    """What all requests of the process share. `loaded` gives the configuration in use, once there is one."""
    settings = config.gateway

    def prices() -> PriceTable:
        return loaded().prices

    database = OperatorDatabase(ledger_address(config, environ), prices)
    ledger = _open_ledger(config, environ, prices)
    totals = LedgerTotals(ledger, database) if ledger is not None else None
    shared = SharedState(
        lambda: loaded().health_sources,
        server=open_shared_store(settings, environ, totals),
        ledger=totals,
        workers=WorkerHealth(snapshots, lambda: loaded().credentials) if snapshots is not None else None,
    )
    governor = Governor(
        settings.max_buffered_bytes,
        is_shared=lambda: loaded().keys.has_several,
        setting="gateway.max_buffered_bytes",
    )
    state = StateFile(
        settings.state,
        seconds=settings.state_seconds,
        limit=settings.state_limit,
        max_bytes=settings.most_state_bytes,
        is_shared=lambda: loaded().keys.has_several,
    )
    answers = AnswerStore(state)
    recent, spans, refusals = RecentRequests(snapshots=snapshots), tracer_from_environment(), RefusalLog()
    accounts = ClientAccounts(shared.buckets, shared.counters, refusals.add)
    metrics = Metrics((model.name for model in config.models), version=__version__, snapshots=snapshots)
    sinks = (metrics.add, recent.add, log_requests)
    recorder = Recorder(sinks, accounts, refusals=refusals, ledger=ledger, traffic=metrics.traffic)
    return Services(
        transport=HttpClient(environ),
        answers=answers,
        conversations=ConversationStore(state),
        background=BackgroundAnswers(answers),
        media=MediaFetcher(),
        accounts=accounts,
        recorder=recorder,
        governor=governor,
        metrics=metrics,
        recent=recent,
        spans=spans,
        database=database,
        stored_keys=StoredKeys(database),
        ledger=ledger,
        shared=shared,
    )


def _open_ledger(
    config: Config, environ: Mapping[str, str] | None, prices: Callable[[], PriceTable]
) -> UsageLedger | None:
    """The ledger of a configuration. The database is opened with the first row, so a missing one does not delay the start."""
    if not config.ledger.enabled:
        return None
    address = ledger_address(config, environ)
    return UsageLedger(
        lambda: open_operator_database(address, prices()),
        prices=prices,
        location=display_location(address),
        journal=journal_folder(address),
        retention_days=config.ledger.retention_days,
    )


def _ignore_hangups() -> None:
    """Without a configuration file there is nothing to reload, and SIGHUP would end the process."""
    said = "SIGHUP ignored: the gateway was started without a configuration file"
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, logger.warning, said)
