"""`BodyBudget`: how many bytes of request bodies all connections of a process hold together.

Received bytes count, not declared ones: a client that announces much and sends little takes nothing from the others. A body is
given back when the upstream has answered or the request ended, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Callable


class BodyBudget:
    """Bytes in use out of `limit()`, which a reload may change."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.used = 0

    def reserve(self, size: int) -> bool:
        """Count `size` more bytes; False, and nothing is counted, if that would exceed the limit."""
        if self.used + size > self._limit():
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Give back what was reserved."""
        self.used -= size
