"""`stop_on_signals`: how a process that serves is asked to end. A listener without a process of its own does not need it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; the second signal has its default effect."""
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
