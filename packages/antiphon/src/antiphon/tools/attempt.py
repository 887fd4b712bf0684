"""One attempt to run a tool: in a task of its own, within a timeout, ended even if it ignores its cancellation.

Python 3.12 has eager tasks, which start at once; on 3.11 a task starts in the next turn of the event loop. An async function
without `await` needs no task on any version (`Tool.can_wait`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, Literal

from msgspec import Struct, structs

from antiphon.http.eager_task import start_task

logger = logging.getLogger("antiphon.tools")


class AttemptOutcome(Struct, frozen=True):
    """How an attempt ended: with a value, with an error, or `stopped` at its deadline."""

    kind: Literal["done", "raised", "stopped"]
    value: Any = None
    error: BaseException | None = None
    is_late: bool = False
    """Whether it returned its value only after it was cancelled."""


async def run_attempt(work: Coroutine[Any, Any, Any], timeout: float | None, grace: float) -> AttemptOutcome:
    """How `work` ends: after at most `timeout` seconds and `grace` more to clean up.

    It runs in a task of its own, so that its scopes and cancellations stay in it and it can be left if it ignores them.
    """
    task = start_task(_outcome_of(work), asyncio.get_running_loop())
    if task.done():
        return task.result()
    try:
        await asyncio.wait((task,), timeout=timeout)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait((task,), timeout=grace)
    except asyncio.CancelledError:
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=grace)
        finally:
            _abandon(task)
        raise
    if task.done() and (late := task.result()).kind == "done":
        return structs.replace(late, is_late=True)
    _abandon(task)
    return AttemptOutcome("stopped")  # what it raised came from the cancellation


def run_at_once(work: Coroutine[Any, Any, Any]) -> AttemptOutcome:
    """How `work` ends that never waits: nothing could stop it, so it needs no task and no turn of the event loop."""
    try:
        copy_context().run(_outcome_of(work).send, None)
    except StopIteration as end:
        outcome: AttemptOutcome = end.value
        return outcome
    raise RuntimeError(f"{work!r} waits although it contains no await")


async def _outcome_of(work: Coroutine[Any, Any, Any]) -> AttemptOutcome:
    # Every exception, because `sys.exit` in a tool ends the call and not the process.
    try:
        return AttemptOutcome("done", await work)
    except BaseException as error:
        return AttemptOutcome("raised", error=error)


def _abandon(task: asyncio.Task[AttemptOutcome]) -> None:
    """Close the coroutine of a task that ignores its cancellation: it is never resumed."""
    if task.done():
        return
    task.add_done_callback(_ignore_end)
    coroutine: Any = task.get_coro()
    try:
        coroutine.close()
    except RuntimeError as error:  # it ignored even that
        logger.debug("%r: %s", coroutine, error)
    task.cancel()  # wakes the task, which then ends


def _ignore_end(task: asyncio.Task[AttemptOutcome]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved: the call has its result already
