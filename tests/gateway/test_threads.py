"""Work in a thread: its result and its error arrive, and a failed request is freed without a garbage collection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
import weakref
from collections.abc import Iterator

import pytest

from antiphon.gateway.threads import run_in_thread


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
    assert asyncio.run(run_in_thread(divmod, 7, 2)) == (3, 1)
    assert asyncio.run(run_in_thread(sorted, [1, 2], reverse=True)) == [2, 1]


def test_the_error_arrives_with_the_lines_it_passed() -> None:
    with pytest.raises(_StoreFailed, match="no such table") as caught:
        asyncio.run(run_in_thread(_fail_to_store, _Body()))
    lines = "".join(traceback.format_exception(caught.value))
    assert "raise KeyError(id(body))" in lines
    assert "raise _StoreFailed" in lines


def test_a_failed_request_is_freed_immediately() -> None:
    async def request() -> weakref.ref[_Body]:
        body = _Body()
        try:
            await run_in_thread(_fail_to_store, body)
        except _StoreFailed:
            return weakref.ref(body)
        raise AssertionError("it did not fail")

    assert asyncio.run(request())() is None
