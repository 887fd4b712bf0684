"""Workers as real processes, and the traces of their tools."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from msgspec import Struct

from antiphon.conversation import Turn
from antiphon.history import HistoryStore, Run, ToolCallFinishedEntry, ToolCallResultsEntry, ToolCallStartedEntry
from antiphon.history.location import open_store
from antiphon.parts import ToolCallResult
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from support.antiphon_process import AntiphonProcess, run_antiphon
from support.planned_turns import refusals
from support.repository import TEST_PATHS
from support.waiting import until

TESTS = os.pathsep.join(TEST_PATHS)
PATIENCE = 60.0
PLACES = ["sqlite", "postgres"]
EVERYDAY = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


class Place:
    """Where a test has its store and its files."""

    def __init__(self, folder: Path, store: str, opens: Callable[[], HistoryStore]) -> None:
        self.folder = folder
        self.store = store
        self.open = opens

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "RUNS_FOLDER": str(self.folder),
            "ANTIPHON_STORE": self.store,
            "COLUMNS": "160",
            "TZ": "UTC",
        }

    def go(self) -> None:
        """Let the tools that hold come to their end."""
        (self.folder / "go").touch()

    def traced(self) -> list[Traced]:
        file = self.folder / "trace"
        lines = file.read_text().splitlines() if file.exists() else []
        return [
            Traced(what, name, key, int(process)) for what, name, key, process in (line.split(" ") for line in lines)
        ]

    def began(self, name: str) -> list[Traced]:
        return [each for each in self.traced() if each.what == "began" and each.name == name]

    def antiphon(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Run a command; its exit code and output."""
        run = run_antiphon(*arguments, input=given, text=True, env=self.environment, cwd=self.folder, timeout=PATIENCE)
        return run.returncode, run.stdout, run.stderr


def placed(folder: Path, address: str = "") -> Place:
    """A place with a store at that address, or in a file of the folder."""
    store = address or str(folder / "chats.db")
    return Place(folder, store, lambda: open_store(store))


def place_asked_for(request: pytest.FixtureRequest, folder: Path) -> Place:
    """The place for a test."""
    return placed(folder, request.getfixturevalue("postgres") if request.param == "postgres" else "")


class Traced(Struct, frozen=True):
    """A line that a tool left: what it did, under which key, in which process."""

    what: str
    name: str
    key: str
    process: int


class WorkerProcess:
    """`antiphon worker`, running until the block ends."""

    def __init__(self, place: Place, *options: str, lease: float = 1.0, app: str = "runs.sample_runs:registry") -> None:
        self._log = place.folder / f"worker-{time.monotonic_ns()}.log"
        command = ("worker", "--app", app, "--lease", str(lease), *options)
        with open(self._log, "wb") as log:
            self._process = AntiphonProcess(*command, env=place.environment, cwd=place.folder, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_alive:
            self._process.kill()
        self._process.wait()


@contextmanager
def workers(place: Place, number: int, *options: str, lease: float = 1.0) -> Iterator[list[WorkerProcess]]:
    """Several at once."""
    started = [WorkerProcess(place, *options, lease=lease) for _ in range(number)]
    try:
        yield started
    finally:
        for worker in started:
            worker.__exit__(None, None, None)


def over(store: HistoryStore, *runs: Run) -> list[Run]:
    """The runs once they are over."""
    until(lambda: all(store.runs.get(run.id).is_over for run in runs), "some never end")
    return [store.runs.get(run.id) for run in runs]


def check_log(place: Place, store: HistoryStore, run: Run) -> int:
    """Law L7 for one run: what finished was not begun again, what must not run twice did not. How many outcomes are unknown.

    A start is logged before the tool runs. So a tool that ran more often than the log has starts was run without
    a record, and a start after a result is a repeated tool. A process that lost its lease between the two may well
    begin late; but for that beginning it had the right.
    """
    history = store.open(run.conversation)
    assert refusals(history.snapshot()) == []
    assert not Turn.of(history.snapshot()).open_calls
    results_seen: dict[str, ToolCallResult] = {}
    starts: Counter[str] = Counter()
    for entry in history.entries:
        if isinstance(entry, ToolCallStartedEntry):
            assert entry.tool_call_id not in results_seen, "what finished runs no more"
            assert entry.idempotency_key == f"{run.conversation}:{entry.tool_call_id}"
            starts[entry.tool_call_id] += 1
        elif isinstance(entry, ToolCallFinishedEntry):
            results_seen[entry.result.tool_call_id] = entry.result
        elif isinstance(entry, ToolCallResultsEntry):
            results_seen |= {result.tool_call_id: result for result in entry.results}
    began = Counter(each.key for each in place.traced() if each.what == "began")
    unknown = 0
    for call_id, result in results_seen.items():
        ran = began[f"{run.conversation}:{call_id}"]
        assert ran <= starts[call_id]
        if result.result_markdown == UNKNOWN_OUTCOME:
            assert result.tool_name in ("send", "hold_send")
            unknown += 1
        else:
            assert result.result_markdown == f"done {call_id}"
            assert ran
        if result.tool_name in ("send", "hold_send"):
            assert starts[call_id] == 1, "what must not be done twice is not"
    return unknown
