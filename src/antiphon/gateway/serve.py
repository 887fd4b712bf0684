"""A gateway's life: sockets bound, listeners opened, the configuration watched, and everything let go of in order.

With several workers the parent binds the ports and forks; each worker accepts from the same sockets and watches the file for
itself. The parent serves nothing: it passes on SIGTERM and SIGHUP, and puts another in the place of a worker that died.

SIGTERM and SIGINT shut down gracefully: nothing new is accepted, current requests get `GRACE` seconds until the last byte of
their response has left; a second signal does not wait. SIGHUP reloads the configuration file; without a file it does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from antiphon import __version__
from antiphon.gateway.access.rate_limits import RateLimits
from antiphon.gateway.app import Gateway, Mounted
from antiphon.gateway.cluster.sync import shared_by
from antiphon.gateway.cluster.worker_snapshots import WorkerFiles, keep_sharing
from antiphon.gateway.config.loaded import Running
from antiphon.gateway.config.reload import Watcher
from antiphon.gateway.config.settings import Config
from antiphon.gateway.context import Services
from antiphon.gateway.endpoints.response_store import ResponseState
from antiphon.gateway.generate.media import MediaFetcher
from antiphon.gateway.http.body_budget import BodyBudget
from antiphon.gateway.http.listener import Listener, bound
from antiphon.gateway.observe.logs import configure_logs
from antiphon.gateway.observe.metrics import Metrics
from antiphon.gateway.observe.recent import RecentRequests
from antiphon.gateway.observe.tracing import started_spans
from antiphon.providers.transport.aiohttp_transport import AiohttpTransport
from antiphon.providers.transport.client import HttpClient

logger = logging.getLogger("antiphon.gateway")

GRACE = 30.0


class Sockets:
    """The two ports, bound."""

    def __init__(self, config: Config) -> None:
        settings = config.gateway
        self.main = bound(settings.host, settings.port)
        try:
            self.format = bound(settings.host, settings.format_port)
        except BaseException:
            self.main.close()
            raise

    @property
    def ports(self) -> tuple[int, int]:
        """The ports they listen on."""
        return self.main.getsockname()[1], self.format.getsockname()[1]


def settle(_: tuple[int, int]) -> None:
    """Everything is there that will be there to the end: the garbage collector need not look at it again, and seldom at the rest.

    For a process that does nothing but serve.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def serve(
    config: Config,
    *,
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    sockets: Sockets | None = None,
    files: WorkerFiles | None = None,
    ready: Callable[[tuple[int, int]], None] | None = None,
    environ: Mapping[str, str] | None = None,
    stop: asyncio.Event | None = None,
    chat: Callable[[Gateway], Mounted] | None = None,
) -> None:
    """Serve until a signal says to stop, or `stop` is set. `ready` is told the ports once they are served.

    `chat` makes what answers under `/chat/` on the main port; it is closed with the ports.
    """
    sockets = sockets or Sockets(config)
    metrics = Metrics((model.name for model in config.models), version=__version__, files=files)
    shared = shared_by(config.gateway, environ, lambda: gateway.running.pools)
    services = Services(
        transport=HttpClient(AiohttpTransport(environ)),
        state=ResponseState(
            config.gateway.state, seconds=config.gateway.state_seconds, limit=config.gateway.state_limit
        ),
        media=MediaFetcher(),
        limits=shared.limits if shared is not None else RateLimits(),
        metrics=metrics,
        recent=RecentRequests(files=files),
        spans=started_spans(__version__),
        shared=shared,
    )
    gateway = Gateway(Running(config, services.transport, environ=environ), services)
    mounted = chat(gateway) if chat is not None else None
    if mounted is not None:
        gateway.mount(mounted)
    configure_logs(
        config.gateway.log,
        config.gateway.log_level,
        secrets=lambda: (*gateway.running.secrets, *(shared.store.secrets if shared is not None else ())),
        on_failure=metrics.log_failed,
    )
    budget = BodyBudget(lambda: gateway.running.config.gateway.max_buffered_bytes)
    listeners = [
        Listener(gateway, name, metrics, lambda: gateway.running.config.gateway, budget) for name in ("main", "format")
    ]
    stop = stop or asyncio.Event()
    tasks: list[asyncio.Task[None]] = []
    if shared is not None:
        await shared.start()
        tasks.append(asyncio.create_task(shared.run()))
    if files is not None:
        told = [gateway.see, metrics.share, services.recent.share]
        tasks.append(asyncio.create_task(keep_sharing(told)))
    if path is not None:
        watcher = Watcher(
            path, gateway.apply, serving=config, environ=environ, overrides=overrides or {}, on_look=metrics.reloaded
        )
        gateway.watch(watcher)
        tasks.append(asyncio.create_task(watcher.run()))
    else:
        _ignore_hangups()
    try:
        for listener, sock in zip(listeners, (sockets.main, sockets.format), strict=True):
            await listener.open(sock)
        with stopped_by_signals(stop):
            main, format_port = sockets.ports
            host = config.gateway.host
            logger.info("serving on http://%s:%s, format proxy on %s", host, main, format_port)
            if mounted is not None:
                logger.info("the chat is at http://%s:%s/chat/", host, main)
            if ready is not None:
                ready(sockets.ports)
            await stop.wait()
            logger.info("shutting down; draining requests for up to %g s", GRACE)
            closing = [listener.close(GRACE) for listener in listeners]
            await asyncio.gather(*closing, *([mounted.aclose(GRACE)] if mounted is not None else []))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if shared is not None:
            await shared.aclose()
        metrics.close()
        services.state.close()
        services.spans.close()
        await services.transport.aclose()


def _ignore_hangups() -> None:
    """Without a configuration file there is nothing to reload, and SIGHUP would end the process."""

    def ignored() -> None:
        logger.warning("SIGHUP ignored: the gateway was started without a configuration file")

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, ignored)


@contextlib.contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; the next one ends the process as it would have without us."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stopped() -> None:
        stop.set()
        for known in signals:
            loop.remove_signal_handler(known)

    handled: list[signal.Signals] = []
    for known in signals:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(known, stopped)
            handled.append(known)
    try:
        yield
    finally:
        for known in handled:
            loop.remove_signal_handler(known)
