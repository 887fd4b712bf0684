"""`python -m bench effects [NAME …]`: kill an agent at four points of a payment, resume it, and count what was booked.

Each case is two processes: one asks the agent to pay once and is killed; the other resumes it as the documentation of its
framework says. Counted is what the ledger booked (0, 1, 2), and what the model learned in the end. The frameworks beside ours
run in `.venv-effects-peers`, if `make effects` could install them there. The table goes to `docs/library/effects.md`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.effects.ledger import Ledger
from bench.measure.tables import PageTable, write_tables

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "library" / "effects.md"
RESULTS = ROOT / "bench" / "results" / "effects.json"
PEERS = ROOT / ".venv-effects-peers" / "bin" / "python"
SECONDS = 60.0

POINTS = {
    "asked": "before the start mark",
    "started": "after the start mark",
    "committed": "after the commit, before the acknowledgement",
    "acknowledged": "after the acknowledgement, before storing",
}
TOOLS = {"plain": "plain", "key": "with a key", "reconcile": "with `reconcile`"}


_UNKNOWN = re.compile(r"unknown|may (?:or may not )?have|not known", re.IGNORECASE)


class Framework(Struct, frozen=True):
    """One framework: its adapter, the package whose version is shown, and the tools it can declare."""

    name: str
    package: str
    adapter: str
    tools: tuple[str, ...] = ("plain", "key")


FRAMEWORKS = (
    Framework("Antiphon", "antiphon", "adapter_antiphon", ("plain", "key", "reconcile")),
    Framework("LangGraph", "langgraph", "adapter_langgraph"),
    Framework("pydantic-ai harness", "pydantic-ai-harness", "adapter_pydantic_ai"),
    Framework("OpenAI Agents", "openai-agents", "adapter_openai_agents"),
    Framework("Strands", "strands-agents", "adapter_strands"),
)


class Case(Struct, frozen=True):
    """What became of one case: rows booked, and what the model learned; empty if nothing."""

    framework: str
    version: str
    tool: str
    point: str
    rows: int
    learned: str
    error: str = ""

    @property
    def words(self) -> str:
        if "receipt" in self.learned:
            learned = "model: paid"
        elif self.learned:
            word = (
                "unknown"
                if _UNKNOWN.search(self.learned)
                else "interrupted"
                if "interrupt" in self.learned
                else "failed"
            )
            learned = f"model: {word}"
        else:
            learned = "stopped" if not self.error else "broken"
        return f"**{self.rows}**, {learned}" if self.rows > 1 else f"{self.rows}, {learned}"


def main(arguments: list[str]) -> int:
    chosen = [one for one in FRAMEWORKS if not arguments or one.adapter.removeprefix("adapter_") in arguments]
    cases: list[Case] = []
    for framework in chosen:
        python, number = _environment(framework)
        if python is None:
            print(f"{framework.name} is not installed and not measured; make effects installs it")
            continue
        for tool in framework.tools:
            for point in POINTS:
                case = _run_case(framework, python, number, tool, point)
                cases.append(case)
                print(
                    f"{framework.name:19} {number:8} {tool:10} {point:13} {case.words} {case.error}".rstrip(),
                    flush=True,
                )
    if not arguments:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(cases), indent=1) + b"\n")
        write_tables(page_tables())
    ours = [case for case in cases if case.framework == "Antiphon"]
    return (
        1 if any(case.rows > 1 or (case.tool == "reconcile" and case.words != "1, model: paid") for case in ours) else 0
    )


def _environment(framework: Framework) -> tuple[Path | None, str]:
    if framework.package == "antiphon":
        return Path(sys.executable), version("antiphon")
    if not PEERS.exists():
        return None, ""
    asked = subprocess.run(
        [PEERS, "-c", f"from importlib.metadata import version; print(version({framework.package!r}))"],
        capture_output=True,
        text=True,
        check=False,
    )
    return (PEERS, asked.stdout.strip()) if asked.returncode == 0 else (None, "")


def _run_case(framework: Framework, python: Path, number: str, tool: str, point: str) -> Case:
    folder = Path(tempfile.mkdtemp(prefix="antiphon-effects-"))
    try:
        with Ledger() as ledger:
            ledger.kill = point == "committed"
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "PYTHONPATH": str(ROOT),
                "EFFECTS_FOLDER": str(folder),
                "EFFECTS_URL": ledger.url,
                "EFFECTS_TOOL": tool,
            }
            command = [str(python), "-m", f"bench.effects.{framework.adapter}"]
            killed = _start([*command, "start"], {**environment, "EFFECTS_CRASH": point}, folder)
            if killed.returncode != -9:
                error = f"it was not killed: {killed.stderr.strip().splitlines()[-1:]}"
                return Case(framework.name, number, tool, point, len(ledger.rows), "", error)
            resumed = _start([*command, "resume"], environment, folder)
            learned = folder / "learned.txt"
            error = "" if resumed.returncode == 0 else (resumed.stderr.strip().splitlines() or ["?"])[-1][:200]
            return Case(
                framework.name,
                number,
                tool,
                point,
                len(ledger.rows),
                learned.read_text() if learned.exists() else "",
                error,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def page_tables() -> list[PageTable]:
    """The table of what is stored."""
    cases = msgspec.json.decode(RESULTS.read_bytes(), type=list[Case])
    lines = [
        "| framework | tool | " + " | ".join(POINTS.values()) + " |",
        "| --- | --- |" + " --- |" * len(POINTS),
    ]
    for framework in FRAMEWORKS:
        for tool in framework.tools:
            found = {case.point: case for case in cases if (case.framework, case.tool) == (framework.name, tool)}
            if found:
                number = next(iter(found.values())).version
                cells = " | ".join(found[point].words if point in found else "" for point in POINTS)
                lines.append(f"| {framework.name} {number} | {TOOLS[tool]} | {cells} |")
    return [PageTable(PAGE, "effects", "\n".join(lines))]
