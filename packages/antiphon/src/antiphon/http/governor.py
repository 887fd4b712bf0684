"""`Governor`: how many bytes wait in a process, in all and for each client.

Everything that waits is held: request bodies, messages of WebSockets, the answers that a WebSocket can continue, answers in the
background, fetched media. Received bytes count, not declared ones: a client that announces much and sends little takes nothing
from the others. A `Hold` is given back when nothing needs its bytes any more, or when the client has left.

One of several clients gets at most half, so that the others are always served. Requests that have shown no key, where keys are
needed, share a small part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from msgspec import Struct

MEBIBYTE: Final = 1024 * 1024
_WORKING_SHARE = 1.5
"""The limits while requests are worked on: these count several times, as they came, parsed and written again."""


class Governor:
    """Bytes in use out of `limit`, which may change. `is_shared` is whether there are several clients.

    `setting` is the name of the limit where people change it.
    """

    def __init__(
        self,
        limit: int = sys.maxsize,
        *,
        is_shared: Callable[[], bool] = lambda: False,
        setting: str = "max_buffered_bytes",
    ) -> None:
        self.limit = limit
        self._setting = setting
        self._is_shared = is_shared
        self.used = 0
        self.used_by: dict[str | None, int] = {}

    def hold(self, owner: str | None = "") -> Hold:
        """Nothing yet, for the client of that name; None: for one that has shown no key."""
        return Hold(self, owner)

    def most(self, owner: str | None) -> int:
        """The most bytes that a client may hold."""
        if owner is None:
            return min(MEBIBYTE, self.limit // 8)
        return self.limit // 2 if self._is_shared() else self.limit

    def excess(self, owner: str | None, size: int, share: float = 1.0, *, is_alone: bool = False) -> str:
        """Why a client may not hold `size` more bytes; empty if it may.

        `share` of the limits counts; for the only request of a client (`is_alone`) that of all clients alone.
        """
        if self.used + size > self.limit * share:
            return f"too many bytes wait on this server ({self._setting} = {self.limit:,}); retry later"
        most = self.most(owner)
        if not is_alone and self.used_by.get(owner, 0) + size > most * share:
            whose = "requests without a key" if owner is None else "this client's requests"
            return f"too many bytes of {whose} wait (at most {most:,}, by {self._setting}); retry later"
        return ""


class Hold(Struct, eq=False):
    """What one thing that waits has in use, for the client `owner`."""

    _governor: Governor
    owner: str | None
    size: int = 0

    def grow(self, size: int, *, is_copy: bool = False) -> str:
        """Count `size` more bytes. Returns why that is refused, and counts nothing; empty if they are counted.

        `is_copy`: of what is held already, which working on it takes. Copies may be half as much as everything that waits. A
        request that is alone is always worked on: it was accepted.
        """
        governor, owner = self._governor, self.owner
        # While less than half is in use by all, no client with a key has too much.
        if (governor.used + size) * 2 > governor.limit or owner is None:
            if not is_copy:
                refusal = governor.excess(owner, size)
            elif self.size == governor.used:
                refusal = ""
            else:
                is_alone = self.size == governor.used_by.get(owner)
                refusal = governor.excess(owner, size, _WORKING_SHARE, is_alone=is_alone)
            if refusal:
                return refusal
        self.size += size
        governor.used += size
        governor.used_by[owner] = governor.used_by.get(owner, 0) + size
        return ""

    def another(self) -> Hold:
        """A hold of the same client, with nothing in it."""
        return Hold(self._governor, self.owner)

    def move(self) -> Hold:
        """A new hold with everything that is in this one, for what outlives it."""
        moved = self.another()
        moved.size, self.size = self.size, 0
        return moved

    def take_over(self, other: Hold) -> None:
        """Move everything of another hold of the same client into this one."""
        self.size, other.size = self.size + other.size, 0

    def release(self) -> None:
        """Give everything back."""
        size, self.size = self.size, 0
        if size:
            governor, owner = self._governor, self.owner
            governor.used -= size
            left = governor.used_by[owner] - size
            if left:
                governor.used_by[owner] = left
            else:
                del governor.used_by[owner]
