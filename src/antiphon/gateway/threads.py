"""`run_in_thread`: blocking work of a request, done in a thread, whose error does not keep the request in memory.

An error refers to its traceback, that to the frames it passed, and these to all their variables. Where one of those variables
leads back to the error (an asyncio future keeps the error it carried, a context manager the one that it converted) there is a
cycle, and the request's body stays until the next garbage collection. So the error does not travel in the future, and the
variables of the frames in the thread are cleared; the traceback still shows their lines.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The result of `work`, or its error, as `asyncio.to_thread` gives them."""
    jobs = [partial(work, *args, **kwargs)]
    errors: list[Exception] = []

    def run() -> list[_T]:
        try:
            return [jobs.pop()()]
        except Exception as error:
            errors.append(error)
            return []

    results = await asyncio.to_thread(run)
    if errors:
        _clear_frames(errors[0])
        raise errors.pop()
    return results.pop()


def _clear_frames(error: BaseException) -> None:
    """Clear the variables of all frames that the error, or one that it came from, passed."""
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            chain += link.__cause__, link.__context__
