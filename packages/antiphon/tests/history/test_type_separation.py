"""What a model must not see is no `ContextEntry`, and the type checker says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.repository import ROOT

PRELUDE = """
from antiphon.history import *
from antiphon.parts import Text, ToolCallResult

def send(context: list[ContextEntry]) -> None: ...
def show(entry: ContextEntry) -> None: ...

history = AgentHistory()
asked = ModelInputEntry((Text("hi"),))
"""

RIGHT = [
    "show(asked)",
    "show(asked.with_live_screen('12:00'))",
    "show(ModelOutputEntry.of('hello'))",
    "show(ToolCallResultsEntry(()))",
    "history.append(asked)",
    "history.append(DebugLogEntry('a', 'b'))",
]

# Wrong code, and what mypy must say of it.
WRONG = {
    "show(DebugLogEntry('a', 'b'))": '"DebugLogEntry"; expected "ContextEntry"',
    "show(SetSystemInstructionEntry('x'))": '"SetSystemInstructionEntry"; expected "ContextEntry"',
    "show(SetMemoryNotebookEntry('x'))": '"SetMemoryNotebookEntry"; expected "ContextEntry"',
    "show(RollbackEntry(1))": '"RollbackEntry"; expected "ContextEntry"',
    "show(CompactionEntry('s', 1))": '"CompactionEntry"; expected "ContextEntry"',
    "show(ToolCallStartedEntry('t', 'c'))": '"ToolCallStartedEntry"; expected "ContextEntry"',
    "show(ToolCallFinishedEntry(ToolCallResult('t', 'c')))": '"ToolCallFinishedEntry"; expected "ContextEntry"',
    "show(LiveContextInjectedEntry('s', 1))": '"LiveContextInjectedEntry"; expected "ContextEntry"',
    "show(HumanDecisionEntry('c', 'approve'))": '"HumanDecisionEntry"; expected "ContextEntry"',
    "send(list(history.entries))": 'expected "Iterable[ContextEntry]"',
    "history.append(asked.with_live_screen('12:00'))": 'of "append" of "AgentHistory" cannot be "DecoratedContextEntry"',
    "asked.content = ()": "is read-only",
}


def test_the_type_checker_keeps_the_rest_out(tmp_path: Path) -> None:
    code = tmp_path / "wrong.py"
    lines = PRELUDE.splitlines()
    code.write_text("\n".join([*lines, *RIGHT, *WRONG]) + "\n")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            str(code),
        ],
        cwd=ROOT,  # with the settings and the cache of `make types`
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    messages: dict[int, str] = {}
    for line in run.stdout.splitlines():
        if ": error: " in line:
            place, _, complaint = line.partition(": error: ")
            messages.setdefault(int(place.rpartition(":")[2]), complaint)
    first_wrong = len(lines) + len(RIGHT) + 1
    assert not [line for line in messages if line < first_wrong], run.stdout
    for number, (wrong, complaint) in enumerate(WRONG.items(), first_wrong):
        assert complaint in messages.get(number, "(nothing)"), wrong
