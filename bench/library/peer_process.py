"""`python -m bench.library.peer_process LIBRARY FOLDER`: the CPU times of another library for the work in a folder, as JSON.

Run by the Python of `.venv-peers`, with only the standard library and that one library. The folder has bodies (`FORMAT.json`),
streams (`FORMAT.stream`) and the text of the streams (`words.txt`). Each task is checked once, then timed many times within a
limit. A task that fails reports why; the others continue.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.library.peer_conversions import CONVERSIONS
from bench.library.peer_streams import STREAMS

PACKAGES = {"any-llm": "any-llm-sdk", "langchain": "langchain-core", "pydantic-ai": "pydantic-ai-slim"}
MOST_RUNS, MOST_SECONDS = 40, 2.0


def main(library: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    report = {
        "library": library,
        "version": version(PACKAGES.get(library, library)),
        "work": list(work(library, folder)),
    }
    # The libraries may print, too: the last line is ours.
    sys.stdout.write("\n" + json.dumps(report) + "\n")
    sys.stdout.flush()
    os._exit(0)  # some libraries leave threads that never end


def work(library: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Each task with its `seconds`, or `why` there are none."""
    for task, prepare in CONVERSIONS.get(library, {}).items():
        data = (folder / f"{task.partition(' ')[0]}.json").read_bytes()
        expected = (folder / "answer.txt").read_text()
        try:
            convert = prepare(json.loads(data))
            _check(expected in _shown(convert(json.loads(data))), "the last answer is not in what it wrote")
            yield {"task": task, "seconds": _times(convert, lambda data=data: json.loads(data))}  # type: ignore[misc]
        except Exception as error:
            yield {"task": task, "why": f"{type(error).__name__}: {error}"[:200]}
    for name, prepare_stream in STREAMS.get(library, {}).items():
        task = f"assembling {name}"
        try:
            assemble = prepare_stream((folder / f"{name}.stream").read_bytes())
            _check(assemble() == (folder / "words.txt").read_text(), "the words are not those of the stream")
            yield {"task": task, "seconds": _times(lambda _, assemble=assemble: assemble(), lambda: None)}  # type: ignore[misc]
        except Exception as error:
            yield {"task": task, "why": f"{type(error).__name__}: {error}"[:200]}


def _check(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)


def _shown(value: Any) -> str:
    """What was written, as text."""
    return json.dumps(value, ensure_ascii=False, default=lambda other: getattr(other, "model_dump", other.__repr__)())


def _times(work: Callable[[Any], Any], given: Callable[[], Any]) -> list[float]:
    times: list[float] = []
    until = time.process_time() + MOST_SECONDS
    while len(times) < MOST_RUNS and (len(times) < 3 or time.process_time() < until):
        value = given()
        gc.collect()
        started = time.process_time()
        work(value)
        times.append(time.process_time() - started)
    return times


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
