"""`Heartbeat`: keeps the leases of a worker while it lives, and hears what was said to its runs meanwhile.

It beats in a thread of its own: a tool that holds up the event loop for a while must not cost the worker everything else it
plays. But a thread that beats for a loop which never moves again would keep its runs from everybody for ever. So the loop shows
that it lives, and if it has not for `stuck_seconds`, the leases are let run out.

A store that is away is no reason to stop. Whether a lease was lost is the store's to say, and it says so when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from time import monotonic
from typing import Protocol

from antiphon.errors import LeaseLost, StoreError, UnknownRun
from antiphon.history import HistoryStore, Lease

logger = logging.getLogger("antiphon.runs")

_SIGN_OF_LIFE = 0.5


class Held(Protocol):
    """Something that is done under a lease. The methods are called from the thread that beats."""

    @property
    def run_id(self) -> str: ...
    @property
    def lease(self) -> Lease: ...

    def lose(self) -> None:
        """The lease is another's: stop, and write nothing."""

    def cancel(self) -> None:
        """Somebody asked for the end of the run."""


class Heartbeat:
    """Renews leases every third of `seconds`. `start` it on the event loop whose life it watches."""

    def __init__(self, store: HistoryStore, seconds: float, stuck_seconds: float | None = None) -> None:
        self._store = store
        self._seconds = seconds
        self._stuck_seconds = max(60.0, 6 * seconds) if stuck_seconds is None else stuck_seconds
        self._held: set[Held] = set()  # by themselves: a worker may come to hold a run again that it lost a moment ago
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="antiphon-heartbeat", daemon=True)
        self._alive = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._live(asyncio.get_running_loop())
        self._thread.start()

    def stop(self) -> None:
        """Beat no more. Returns when a beat that is under way is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def keep(self, held: Held) -> None:
        """Renew this lease from here on."""
        with self._lock:
            self._held.add(held)

    def let_go(self, held: Held) -> None:
        """Renew it no more."""
        with self._lock:
            self._held.discard(held)

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alive = monotonic()
        self._timer = loop.call_later(min(_SIGN_OF_LIFE, self._stuck_seconds / 4), self._live, loop)

    def _beat(self) -> None:
        is_stuck = False
        while not self._stopped.wait(self._seconds / 3):
            silent = monotonic() - self._alive
            was_stuck, is_stuck = is_stuck, silent > self._stuck_seconds
            if is_stuck:
                if not was_stuck:
                    logger.error("the event loop has not moved for %.0f s; its runs are left to other workers", silent)
                continue
            with self._lock:
                held = list(self._held)
            for one in held:
                if self._stopped.is_set():
                    return
                self._renew(one)

    def _renew(self, held: Held) -> None:
        try:
            self._store.renew(held.lease, self._seconds)
            if self._store.runs.get(held.run_id).is_cancelled:
                held.cancel()
        except (LeaseLost, UnknownRun):
            with self._lock:
                is_ours = held in self._held
                self._held.discard(held)
            if is_ours:  # else it was given back by ourselves just now
                held.lose()
        except StoreError as error:
            logger.debug("the lease of run %s could not be renewed: %s", held.run_id, error)
        except Exception:  # a thread that died of it would cost every lease
            logger.exception("the lease of run %s could not be renewed", held.run_id)
