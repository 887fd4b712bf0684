"""A table of cases in one test: for many cases of a pure function, which take less time than a test of their own would.

All cases run. A failure lists those that failed, each with its values and what went wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

_MOST_SHOWN = 10


def each_case(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, stacked like it, without a test for each case. All cases share the fixtures."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [dict(zip(arguments, value if len(arguments) > 1 else (value,), strict=True)) for value in values]
    assert table, "there are no cases"

    def with_cases(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def all_cases(**others: Any) -> None:
            failed = []
            for case in table:
                try:
                    test(**others, **case)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append((case, error))
            if failed:
                shown = "\n\n".join(
                    f"{_label(case)}\n{type(error).__name__}: {error}" for case, error in failed[:_MOST_SHOWN]
                )
                raise AssertionError(f"{len(failed)} of {len(table)} cases failed\n\n{shown}") from failed[0][1]

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        all_cases.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return all_cases

    return with_cases


def _label(case: dict[str, Any]) -> str:
    return ", ".join(f"{name}={repr(value)[:200]}" for name, value in case.items())
