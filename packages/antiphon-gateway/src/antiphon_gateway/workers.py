"""`serve_in_workers`: several processes that serve the same ports.

The parent binds the ports and forks; each worker accepts from the same sockets and watches the configuration for itself. The
parent passes on SIGTERM and SIGHUP and replaces a worker that exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from antiphon.logs import configure_logs
from antiphon_gateway.app import Gateway, MountedApp
from antiphon_gateway.config.settings import Config
from antiphon_gateway.serve import ListenSockets, logger, serve, tune_memory
from antiphon_gateway.share.workers import WorkerFiles

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PARENT_CHECK_SECONDS = 1.0
_RESPAWN_DELAY = 2.0
"""A worker that exits sooner than this is replaced with a delay: the new one would probably exit too."""


def serve_in_workers(
    config: Config, count: int, *, chat: Callable[[Path], Callable[[Gateway], MountedApp]] | None = None, **options: Any
) -> int:
    """Serve with `count` processes that share the ports; the exit code. Returns when all have ended.

    `chat` creates each worker's chat, given a folder that the workers share.
    """
    sockets = ListenSockets(config)
    with tempfile.TemporaryDirectory(prefix="antiphon-") as folder:
        if chat is not None:
            options["chat"] = chat(Path(folder))
        return WorkerSupervisor(config, count, sockets, Path(folder), options).run()


@contextlib.contextmanager
def _blocked_signals(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Hold signals back inside the block; they are delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_with_parent(parent: int) -> None:
    """Stop this worker when its parent has exited: otherwise it would hold the ports unnoticed."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


class WorkerSupervisor:
    """The parent process, which replaces workers that exit."""

    def __init__(
        self, config: Config, count: int, sockets: ListenSockets, folder: Path, options: dict[str, Any]
    ) -> None:
        self._config = config
        self._count = count
        self._sockets = sockets
        self._folder = folder
        self._options = options
        self._workers: dict[int, float] = {}  # process ids and start times
        self._is_stopping = False

    def run(self) -> int:
        configure_logs(self._config.gateway.log, self._config.gateway.log_level)
        with _blocked_signals(_SIGNALS):  # signals that arrive meanwhile are handled once all workers can receive them
            for number in range(self._count):
                self._fork(number)
            for known in (signal.SIGTERM, signal.SIGINT):
                signal.signal(known, self._stop)
            signal.signal(signal.SIGHUP, lambda *_: self._signal_workers(signal.SIGHUP))
        while self._workers:
            try:
                process, status = os.wait()
            except InterruptedError:
                continue
            began = self._workers.pop(process, 0.0)
            if not self._is_stopping and time.monotonic() - began < _RESPAWN_DELAY:
                time.sleep(_RESPAWN_DELAY)
            if not self._is_stopping:  # a stop may have been requested meanwhile
                logger.warning("worker %s %s; starting a replacement", process, _cause(status))
                self._fork(process)
        return 0

    def _fork(self, number: int) -> None:
        parent = os.getpid()
        with _blocked_signals(_SIGNALS):
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
            threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
            snapshots = WorkerFiles(self._folder, f"{number}-{os.getpid()}")
            options = {"ready": tune_memory, **self._options}
            asyncio.run(serve(self._config, sockets=self._sockets, snapshots=snapshots, **options))
            code = 0
        except Exception:
            logger.exception("internal error in worker %s", os.getpid())
        finally:
            os._exit(code)  # skip the cleanup, which belongs to the parent

    def _stop(self, *_: object) -> None:
        self._is_stopping = True
        self._signal_workers(signal.SIGTERM)

    def _signal_workers(self, known: signal.Signals) -> None:
        for process in list(self._workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, known)


def _cause(status: int) -> str:
    """How a process ended, from what `os.wait` reports."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"exited with status {code}"
