"""Stores of answers for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from antiphon_gateway.state.answers import AnswerStore
from antiphon_gateway.state.file import StateFile


@contextmanager
def answer_store(path: str | Path = "", **options: Any) -> Iterator[AnswerStore]:
    """A store in a file, or in memory; `options` are those of the file."""
    with StateFile(path, **options) as file:
        yield AnswerStore(file)
