"""The cost of importing: CPU seconds of a process that imports a library and does nothing else.

Each library has the interpreter of its own environment and compiled files.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.library.loop import PEERS_PYTHON as LOOP_PYTHON
from bench.library.loop import ROOT
from bench.measure.figures import Figure, Timing, not_measured

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
RUNS = 5
PEERS = {
    "llm": (LOOP_PYTHON, "llm", "llm"),
    "agno": (LOOP_PYTHON, "agno.agent", "agno"),
    "pydantic-ai": (LOOP_PYTHON, "pydantic_ai", "pydantic-ai-slim"),
    "langgraph": (LOOP_PYTHON, "langgraph.prebuilt", "langgraph"),
    "openai-agents": (LOOP_PYTHON, "agents", "openai-agents"),
    "openai": (PEERS_PYTHON, "openai", "openai"),
    "anthropic": (PEERS_PYTHON, "anthropic", "anthropic"),
    "google-genai": (PEERS_PYTHON, "google.genai", "google-genai"),
    "any-llm": (PEERS_PYTHON, "any_llm", "any-llm-sdk"),
    "litellm": (PEERS_PYTHON, "litellm", "litellm"),
}
"""Each with its interpreter, the module to import, and the package with the version."""
MODULES = "antiphon; antiphon.Conversation, antiphon.ToolLoop, antiphon.SqliteStore, antiphon.render_live_context"
LOADED = "import antiphon, the loop and the log loaded"
"""Comparable with the others' imports: `import antiphon` alone loads only names."""
OWN = {
    "python itself": [sys.executable, "-c", "pass"],
    "import antiphon": [sys.executable, "-c", "import antiphon; assert antiphon.__version__"],
    LOADED: [sys.executable, "-c", f"import {MODULES}"],
    "antiphon --help": [sys.executable, "-m", "antiphon", "--help"],
}
PROMISED = {"import antiphon": 60, "antiphon --help": 150}
"""CPU milliseconds."""


def figures() -> Iterator[Figure | str]:
    versions: dict[str, str] = {}
    commands: dict[str, list[str]] = dict(OWN)
    for name, (python, module, package) in PEERS.items():
        version = version_of(python, package)
        if version is None:
            yield not_measured(f"import {name}", "not installed; `make bench` installs it where possible")
            continue
        versions[name] = f"import {name} {version}"
        commands[name] = [str(python), "-c", f"import {module}"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    reasons: dict[str, str] = {}
    for run in range(RUNS + 1):  # the first run only compiles
        for name, command in commands.items():
            if name not in reasons and (run < 3 or name in OWN):
                answer = cpu_of(command)
                if isinstance(answer, str):
                    reasons[name] = answer
                elif run:
                    times[name].append(answer * 1e3)
    timings = {name: Timing.of(runs) for name, runs in times.items() if runs}
    for name in OWN:
        if name in PROMISED:
            promise = float(PROMISED[name])
            against = f"the promise: {promise:g} ms"
            yield Figure.of(name, timings[name], Timing(promise, promise), "ms", at_most=1.0, against=against)
        if name != "python itself":
            yield Figure.of(name, timings[name], timings["python itself"], "ms", against="python itself")
    for name, label in versions.items():
        if name in timings:
            yield Figure.of(LOADED, timings[LOADED], timings[name], "ms", at_most=1.0, against=label)
        else:
            yield not_measured(label, reasons[name])


def version_of(python: Path, package: str) -> str | None:
    """The version of a package in an interpreter's environment; None if it is not installed."""
    if not python.exists():
        return None
    code = f"from importlib.metadata import version; print(version({package!r}))"
    run = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return run.stdout.strip() or None


def cpu_of(command: list[str]) -> float | str:
    """CPU seconds of a program from start to end, or its error output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environ = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PYTHONPATH")}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        return run.stderr.strip().rpartition("\n")[2][-200:] or f"it ended with {run.returncode}"
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
