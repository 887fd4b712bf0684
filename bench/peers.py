"""The peers beside us: other libraries' own functions on the same bodies and streams, in the same run.

Each library runs in a process of its own, by the Python of `.venv-peers`, and tells its CPU times as JSON (see `peers_process`);
between the processes we measure ourselves, so that what disturbs one disturbs the other. Like is compared with like: a decoded
body in and the target's body out for requests, bytes in and the whole answer out for streams. So JSON itself, which takes most
of a translation of ours, is not counted; and a library that has no reader of the source is timed for its writer alone.

What cannot be measured says so, and why.
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
from bench.figures import Figure, Taken, not_measured, timed
from bench.formats import assembler, bodies
from bench.streams import EVENTS, GEMINI_ARRAY, WORDS, streams

PYTHON = Path(".venv-peers/bin/python")
LIBRARIES = ("any-llm", "litellm", "langchain", "pydantic-ai", "openai", "anthropic", "google-genai")
ANSWER = "The key was dropped because `Settings` was built from the known fields only."
NOTES = {"pydantic-ai": " (its own messages in, tools left out)", "langchain": " (messages and tools only)"}


class Piece(msgspec.Struct, frozen=True):
    """A piece of work as a peer tells it."""

    task: str
    seconds: list[float] = []
    why: str = ""


class PeerReport(msgspec.Struct, frozen=True):
    """What a peer's process tells."""

    library: str
    version: str
    work: list[Piece]


def figures() -> Iterator[Figure | str]:
    if not PYTHON.exists():
        yield not_measured("the peers", "there is no .venv-peers: `make bench` builds it")
        return
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name:
        folder = Path(name)
        ours = _work(folder)
        taken = {task: _times(work) for task, work in ours.items()}
        reported: list[PeerReport] = []
        for library in LIBRARIES:
            answer = _asked(library, folder)
            if isinstance(answer, str):
                yield answer
                continue
            reported.append(answer)
            for piece in answer.work:
                taken[piece.task] += _times(ours[piece.task])
    for answer in reported:
        for piece in answer.work:
            yield _figure(answer, piece, Taken.of(taken[piece.task]))


def _times(work: Callable[[], Any]) -> list[float]:
    return [timed(work) for _ in range(10)]


def _figure(reported: PeerReport, piece: Piece, ours: Taken) -> Figure | str:
    is_stream = piece.task.startswith("assembling")
    task = piece.task.replace("assembling", f"assembling {EVENTS} events,") if is_stream else f"{piece.task}, decoded"
    if not piece.seconds:
        return not_measured(f"{task}: {reported.library} {reported.version}", piece.why)
    note = "" if is_stream else NOTES.get(reported.library, "")
    theirs, against = Taken.of(piece.seconds).scaled(1e3), f"{reported.library} {reported.version}{note}"
    return Figure.of(task, ours.scaled(1e3), theirs, "ms", at_most=1.0, against=against)


def _work(folder: Path) -> dict[str, Callable[[], Any]]:
    """Write the bodies and streams for the peers; what we do with them, by the name of the task."""
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
    read, compose = formats[source].read_request, formats[target].compose_request
    return lambda: compose(repair(read(body), target).request)


def _asked(library: str, folder: Path) -> PeerReport | str:
    command = [str(PYTHON), "-m", "bench.peers_process", library, str(folder)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=150)
    except subprocess.TimeoutExpired:
        return not_measured(library, "its process took more than 150 seconds")
    try:
        return msgspec.json.decode(done.stdout.strip().rpartition(b"\n")[2], type=PeerReport)
    except msgspec.DecodeError:
        last_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return not_measured(library, last_line[:200] or f"its process ended with {done.returncode}")
