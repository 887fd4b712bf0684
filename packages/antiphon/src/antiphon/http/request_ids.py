"""Request ids: a series of new ones, and the one of the request that is being answered, for its log lines.

They look like those of `antiphon.ids` but are drawn a block at a time: the prefix (time and 70 random bits) is drawn once a
second, and the ids in a block count up. They sort by time and need not be hard to guess.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from secrets import choice

from antiphon.ids import PAIRS, new_id

_request_id: ContextVar[str] = ContextVar("antiphon_request_id", default="")


current_request_id = _request_id.get
"""The id of the request that is being answered; empty outside of one."""
set_request_id = _request_id.set
"""Every line that this task logs from here on has this request id."""


@contextmanager
def request_id_scope(request_id: str) -> Iterator[None]:
    """Every line logged inside has this request id."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


_TIME, _RANDOM = 10, 7
"""Characters of an id that encode its time, and pairs of them that are random; one pair is the counter."""
_SECONDS = 1.0


def new_request_ids() -> Iterator[str]:
    """An endless series of ids, each greater than the one before."""
    prefix = ""
    while True:
        last, until = prefix, time.monotonic() + _SECONDS
        while prefix <= last:  # the next block may be drawn in the same millisecond
            prefix = new_id()[:_TIME] + "".join([choice(PAIRS) for _ in range(_RANDOM)])
        for pair in PAIRS:
            yield prefix + pair
            if time.monotonic() > until:
                break
