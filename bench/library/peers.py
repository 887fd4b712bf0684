"""Other libraries on the same request bodies and streams, in the same run.

Each library runs in a process of its own, with the Python of `.venv-peers`, and reports its CPU times as JSON (`peer_process`);
between the processes we measure ourselves. Requests go from a decoded body to the target's body, streams from bytes to the whole
answer. So JSON, most of the cost of our translations, is not counted, and a library that cannot read the source format is timed
for writing alone.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from antiphon.repair import repair
from antiphon.wire import formats
from bench.library.formats import assembler, bodies
from bench.measure.figures import Figure, Timing, not_measured, time_once
from bench.workload.streams import EVENTS, GEMINI_ARRAY, WORDS, streams

PYTHON = Path(".venv-peers/bin/python")
LIBRARIES = ("any-llm", "litellm", "langchain", "pydantic-ai", "openai", "anthropic", "google-genai")
ANSWER = "The key was dropped because `Settings` was built from the known fields only."
NOTES = {"pydantic-ai": " (its own messages in, tools left out)", "langchain": " (messages and tools only)"}


class PeerTask(msgspec.Struct, frozen=True):
    """A task as a peer reports it; `why` there are no times."""

    task: str
    seconds: list[float] = []
    why: str = ""


class PeerReport(msgspec.Struct, frozen=True):
    """The report of a peer's process."""

    library: str
    version: str
    work: list[PeerTask]


def figures() -> Iterator[Figure | str]:
    if not PYTHON.exists():
        yield not_measured("the peers", "no .venv-peers; `make bench` creates it")
        return
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name:
        folder = Path(name)
        ours = _work(folder)
        times = {task: _times(work) for task, work in ours.items()}
        reported: list[PeerReport] = []
        for library in LIBRARIES:
            answer = _run_peer(library, folder)
            if isinstance(answer, str):
                yield answer
                continue
            reported.append(answer)
            for task_report in answer.work:
                times[task_report.task] += _times(ours[task_report.task])
    for answer in reported:
        for task_report in answer.work:
            yield _figure(answer, task_report, Timing.of(times[task_report.task]))


def _times(work: Callable[[], Any]) -> list[float]:
    return [time_once(work) for _ in range(10)]


def _figure(reported: PeerReport, task_report: PeerTask, ours: Timing) -> Figure | str:
    is_stream = task_report.task.startswith("assembling")
    task = (
        task_report.task.replace("assembling", f"assembling {EVENTS} events,")
        if is_stream
        else f"{task_report.task}, decoded"
    )
    if not task_report.seconds:
        return not_measured(f"{task}: {reported.library} {reported.version}", task_report.why)
    note = "" if is_stream else NOTES.get(reported.library, "")
    theirs, against = Timing.of(task_report.seconds).scaled(1e3), f"{reported.library} {reported.version}{note}"
    return Figure.of(task, ours.scaled(1e3), theirs, "ms", at_most=1.0, against=against)


def _work(folder: Path) -> dict[str, Callable[[], Any]]:
    """Write the bodies and streams for the peers; our work on them, by the name of the task."""
    data, reported = bodies(), {name: stream for name, stream in streams().items() if name != GEMINI_ARRAY}
    (folder / "answer.txt").write_text(ANSWER)
    (folder / "words.txt").write_text("".join(WORDS))
    for name, body in data.items():
        (folder / f"{name}.json").write_bytes(body)
    for name, stream in reported.items():
        (folder / f"{name}.stream").write_bytes(stream)
    work: dict[str, Callable[[], Any]] = {f"assembling {name}": assembler(name, reported[name]) for name in reported}
    for source in formats:
        for target in formats:
            work[f"{source} to {target}"] = _converter(source, target, msgspec.json.decode(data[source]))
    return work


def _converter(source: str, target: str, body: Any) -> Callable[[], Any]:
    read, compose = formats[source].read_request, formats[target].build_request
    return lambda: compose(repair(read(body), target).request)


def _run_peer(library: str, folder: Path) -> PeerReport | str:
    command = [str(PYTHON), "-m", "bench.library.peer_process", library, str(folder)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=150)
    except subprocess.TimeoutExpired:
        return not_measured(library, "its process took more than 150 seconds")
    try:
        return msgspec.json.decode(done.stdout.strip().rpartition(b"\n")[2], type=PeerReport)
    except msgspec.DecodeError:
        last_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return not_measured(library, last_line[:200] or f"its process ended with {done.returncode}")
