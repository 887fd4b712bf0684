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
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from antiphon import __version__
from antiphon.gateway.body_budget import BodyBudget
from antiphon.gateway.config import Config
from antiphon.gateway.gateway import Gateway, Mounted
from antiphon.gateway.limits import RateLimits
from antiphon.gateway.logs import configure_logs
from antiphon.gateway.media import MediaFetcher
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.recent import RecentRequests
from antiphon.gateway.reload import Watcher
from antiphon.gateway.response_state import ResponseState
from antiphon.gateway.running import Running
from antiphon.gateway.server import Listener, bound
from antiphon.gateway.services import Services
from antiphon.gateway.shared import shared_by
from antiphon.gateway.spans import started_spans
from antiphon.gateway.worker_files import WorkerFiles, keep_sharing
from antiphon.providers.transport.aiohttp_transport import AiohttpTransport
from antiphon.providers.transport.client import DirectTransport

logger = logging.getLogger("antiphon.gateway")

GRACE = 30.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_FOR_PARENT = 1.0
_QUICK_DEATH = 2.0
"""A worker that dies sooner than this is not replaced at once: it would die again."""


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
        transport=DirectTransport(AiohttpTransport(environ)),
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


def serve_in_workers(
    config: Config, count: int, *, chat: Callable[[Path], Callable[[Gateway], Mounted]] | None = None, **options: Any
) -> int:
    """Serve with `count` processes that share the ports; the exit code. Returns when all have ended.

    `chat` makes each worker's way to the chat, given a folder that the workers share.
    """
    sockets = Sockets(config)
    with tempfile.TemporaryDirectory(prefix="antiphon-") as folder:
        if chat is not None:
            options["chat"] = chat(Path(folder))
        return _Parent(config, count, sockets, Path(folder), options).run()


@contextlib.contextmanager
def _later(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Signals that come meanwhile are heard afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """Stop this worker when its parent is gone: it would hold the ports, and nobody would know."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT)
    os.kill(os.getpid(), signal.SIGTERM)


class _Parent:
    """Whoever keeps the workers alive."""

    def __init__(self, config: Config, count: int, sockets: Sockets, folder: Path, options: dict[str, Any]) -> None:
        self._config = config
        self._count = count
        self._sockets = sockets
        self._folder = folder
        self._options = options
        self._workers: dict[int, float] = {}  # process ids, and when they began
        self._is_stopping = False

    def run(self) -> int:
        configure_logs(self._config.gateway.log, self._config.gateway.log_level)
        with _later(_SIGNALS):  # what comes while the first workers are made is heard once all of them can be told
            for number in range(self._count):
                self._fork(number)
            for known in (signal.SIGTERM, signal.SIGINT):
                signal.signal(known, self._stop)
            signal.signal(signal.SIGHUP, lambda *_: self._tell(signal.SIGHUP))
        while self._workers:
            try:
                process, _ = os.wait()
            except InterruptedError:
                continue
            began = self._workers.pop(process, 0.0)
            if not self._is_stopping and time.monotonic() - began < _QUICK_DEATH:
                time.sleep(_QUICK_DEATH)
            if not self._is_stopping:  # it may have been told so meanwhile
                logger.warning("worker %s ended; another takes its place", process)
                self._fork(process)
        return 0

    def _fork(self, number: int) -> None:
        parent = os.getpid()
        with _later(_SIGNALS):
            process = os.fork()
            if process:
                self._workers[process] = time.monotonic()
                return
        code = 1
        try:
            for known in _SIGNALS:
                signal.signal(known, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is handled: the default would end this worker
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            files = WorkerFiles(self._folder, f"{number}-{os.getpid()}")
            options = {"ready": settle, **self._options}
            asyncio.run(serve(self._config, sockets=self._sockets, files=files, **options))
            code = 0
        finally:
            os._exit(code)  # the parent's own cleaning up is the parent's

    def _stop(self, *_: object) -> None:
        self._is_stopping = True
        self._tell(signal.SIGTERM)

    def _tell(self, known: signal.Signals) -> None:
        for process in list(self._workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, known)
