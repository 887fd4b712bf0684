"""The picture of a session that moves: made by the real Claude Code, continued by the real Codex, on one machine.

Run it with `PYTHONPATH=tests:packages/antiphon-gateway/tests python docs/pictures/session_move.py`. Both programs come from npm;
a scripted upstream on this machine answers them.
Folders are shown from the home folder on; of the programs' output, only the end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from terminal_picture import draw_terminal

from clients.run import MARKER, NOTE, SECRET
from gateway.strict_upstream import StrictUpstream, text_answer
from together.real_programs import REAL_PROGRAMS, Stage, install_programs

_COLUMNS = 118
_PROMPT = "Read note.txt. What colour is the lamp?"
_NEXT = "And its number?"


class Recorder:
    """Keeps commands and what they printed, with the folders of this run shown as `~` and `~/lamp`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shown: list[tuple[str, str]] = []

    def show(self, command: str, printed: str) -> None:
        self.shown.append((self._shorten(command), self._shorten(printed.strip())))

    def _shorten(self, text: str) -> str:
        work, home = str(self._folder / "work"), str(self._folder / "home")
        text = text.replace(f"{work}  ", "~/lamp".ljust(len(work) + 2))  # columns stay aligned
        return text.replace(work, "~/lamp").replace(home, "~").replace(re.sub("[^A-Za-z0-9]", "-", work), "-lamp")


def take_session_move() -> None:
    """Write session-move.svg."""
    if why := install_programs():
        sys.exit(why)
    with (
        tempfile.TemporaryDirectory() as folder,
        StrictUpstream("anthropic") as first,
        StrictUpstream("openai-responses") as second,
    ):
        place = Path(folder, "machine")
        claude = Stage(REAL_PROGRAMS["claude-code"], place, first)
        codex = Stage(REAL_PROGRAMS["codex"], place, second, is_shared=True)
        recorder = Recorder(place)
        _answer_with(claude, "The lamp is green.")
        _, printed = claude.run(["claude", "-p", _PROMPT, "--allowedTools", "Read"])
        recorder.show(f'claude -p "{_PROMPT}"', printed.splitlines()[-1])
        recorder.show("antiphon sessions", _antiphon(place, "sessions"))
        recorder.show("antiphon import claude-code", _antiphon(place, "import", "claude-code"))
        exported = _antiphon(place, "export", "last", "--as", "codex", "--folder", str(place / "work"))
        recorder.show("antiphon export last --as codex", exported)
        session = exported.split()[-1]
        second.answer = lambda request: text_answer(_number_in(str(request.messages)), request.model)
        _, printed = codex.run(["codex", "exec", "resume", "--skip-git-repo-check", session, _NEXT])
        assert f"is {SECRET}." in printed, printed
        recorder.show(f'codex exec resume {session} "{_NEXT}"', printed[printed.rindex("\ncodex\n") :])
    draw_terminal("session-move.svg", "a session moves", recorder.shown, _COLUMNS)


def _answer_with(stage: Stage, words: str) -> None:
    """Let the script of the stage read the note, and end with these words."""
    script = stage.upstream.answer

    def answer(request: object) -> object:
        output = script(request)  # type: ignore[arg-type]
        is_last = MARKER in str(output.parts)
        return text_answer(words, output.model) if is_last else output

    stage.upstream.answer = answer  # type: ignore[assignment]


def _number_in(conversation: str) -> str:
    """What a model that reads the whole conversation would say."""
    return f"Its number is {SECRET}." if SECRET in conversation and SECRET in NOTE else "I have not seen the note."


def _antiphon(place: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place / "home"),
        "LANG": "C.UTF-8",
        "COLUMNS": str(_COLUMNS),
        "ANTIPHON_STORE": str(place / "home" / "history.db"),
    }
    command = [sys.executable, "-m", "antiphon", *arguments]
    done = subprocess.run(
        command,
        cwd=place / "work",
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    take_session_move()
