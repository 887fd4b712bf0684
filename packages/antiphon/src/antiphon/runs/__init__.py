"""Durable runs: submit a turn in one process and let any worker finish it, even after a crash."""

from antiphon.runs.client import Runs, submit
from antiphon.runs.registry import Kind, RunBook, load_run_book
from antiphon.runs.retry import RunRetryPolicy
from antiphon.runs.worker import Worker

__all__ = [
    "Kind",
    "RunBook",
    "RunRetryPolicy",
    "Runs",
    "Worker",
    "load_run_book",
    "submit",
]
