"""Durable runs: submit a turn in one process and let any worker finish it, even after a crash."""

from antiphon.runs.client import Runs
from antiphon.runs.registry import Kind, RunRegistry, load_run_registry
from antiphon.runs.retry import RunRetryPolicy
from antiphon.runs.worker import Worker

__all__ = [
    "Kind",
    "RunRegistry",
    "RunRetryPolicy",
    "Runs",
    "Worker",
    "load_run_registry",
]
