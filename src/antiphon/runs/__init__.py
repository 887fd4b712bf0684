"""Durable runs: submit a turn in one process and let any worker finish it, even after a crash."""

from antiphon.runs.client import Runs, submit
from antiphon.runs.registry import Kind, RunBook, book_at, load_run_book
from antiphon.runs.retry import Patience, RunRetryPolicy
from antiphon.runs.worker import Worker

__all__ = [
    "Kind",
    "Patience",
    "RunBook",
    "RunRetryPolicy",
    "Runs",
    "Worker",
    "book_at",
    "load_run_book",
    "submit",
]
