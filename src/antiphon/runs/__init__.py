"""Durable runs: turns that are asked for in one process and played in another, whichever dies meanwhile."""

from antiphon.runs.book import Kind, RunBook, book_at
from antiphon.runs.desk import Runs, submit
from antiphon.runs.patience import Patience
from antiphon.runs.worker import Worker

__all__ = ["Kind", "Patience", "RunBook", "Runs", "Worker", "book_at", "submit"]
