"""Work in threads: results and errors arrive, nothing waits without limit, and a failed request is freed at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import traceback
import weakref
from collections.abc import Iterator

import pytest

from antiphon import threads as threads_module
from antiphon.errors import StoreBusy
from antiphon.threads import Threads

KIND = Threads("test", workers=2, waiting=2)


class _Body:
    """In place of the body of a request: its weak reference shows whether it is still held."""


class _StoreFailed(Exception):
    pass


@contextlib.contextmanager
def _converting_errors() -> Iterator[None]:
    """As the stores do: an error of the driver leaves as one of ours. `contextlib` keeps the first one in a cycle."""
    try:
        yield
    except KeyError as error:
        raise _StoreFailed("no such table") from error


def _fail_to_store(body: _Body) -> None:
    with _converting_errors():
        raise KeyError(id(body))


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_the_result_arrives() -> None:
    assert asyncio.run(KIND.run(divmod, 7, 2)) == (3, 1)
    assert asyncio.run(KIND.run(sorted, [1, 2], reverse=True)) == [2, 1]


def test_the_error_arrives_with_the_lines_it_passed() -> None:
    with pytest.raises(_StoreFailed, match="no such table") as caught:
        asyncio.run(KIND.run(_fail_to_store, _Body()))
    lines = "".join(traceback.format_exception(caught.value))
    assert "raise KeyError(id(body))" in lines
    assert "raise _StoreFailed" in lines


def test_a_failed_request_is_freed_immediately() -> None:
    async def request() -> weakref.ref[_Body]:
        body = _Body()
        try:
            await KIND.run(_fail_to_store, body)
        except _StoreFailed:
            return weakref.ref(body)
        raise AssertionError("it did not fail")

    assert asyncio.run(request())() is None


def test_calls_beyond_the_limit_are_refused_at_once_and_the_others_end() -> None:
    gate = threading.Event()

    async def work() -> None:
        calls = [asyncio.create_task(KIND.run(gate.wait, 30)) for _ in range(4)]
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(StoreBusy, match="too many calls wait for the test"):
                await KIND.run(gate.wait, 30)
        gate.set()
        assert await asyncio.gather(*calls) == [True] * 4
        assert await KIND.run(divmod, 7, 2) == (3, 1)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_call_that_no_thread_takes_is_refused_and_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "WAIT_SECONDS", 0.05)
    gate, made = threading.Event(), list[int]()

    async def work() -> None:
        stuck = [asyncio.create_task(KIND.run(gate.wait, 30)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(StoreBusy):
            await KIND.run(made.append, 1)
        cancelled = asyncio.create_task(KIND.run(made.append, 2))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        gate.set()
        await asyncio.gather(*stuck)
        await KIND.run(made.append, 3)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert made == [3]


def test_one_kind_that_hangs_stops_no_other() -> None:
    other, gate = Threads("other", workers=1, waiting=1), threading.Event()

    async def work() -> None:
        stuck = [asyncio.create_task(KIND.run(gate.wait, 30)) for _ in range(4)]
        await asyncio.sleep(0)
        assert await other.run(divmod, 7, 2) == (3, 1)
        assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        gate.set()
        await asyncio.gather(*stuck)

    asyncio.run(asyncio.wait_for(work(), 60))
