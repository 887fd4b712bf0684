"""Claude Code, Codex and Gemini CLI, the real ones, each before a scripted upstream on this machine.

`Stage` is one program with folders of its own. `make_session` has it look at a picture and read a note; `resume` continues a
session by its id and returns what the program then sent to its model.
"""

from __future__ import annotations

import base64
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, structs

from antiphon.parts import Thinking
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from clients.coding_agents import AGENTS
from clients.installed import install
from clients.program import ANTHROPIC, RESPONSES, Place, Program
from clients.run import MARKER, SECRET, prepare_folders, run_program, write_settings
from clients.script import Script
from gateway.strict_upstream import StrictUpstream, hang, text_answer
from providers.scripted_server import Received
from sessions.session_lines import PIXEL
from support.repository import ROOT

PROMPT = "Look at the lamp, then read note.txt 绿灯"
NEXT_PROMPT = "And what colour is it?"
REASONING = "The note comes first."
_SIGNED = {
    ANTHROPIC: {"anthropic": {"signature": "c2lnbmF0dXJl"}},
    RESPONSES: {"openai-responses": {"encrypted_content": "ZW5jcnlwdGVk"}},
}
INSTALLED = Path(os.environ.get("ANTIPHON_CLIENTS") or ROOT / ".clients")


class RealProgram(Struct, frozen=True):
    """A program by the names it has here and in `tests/clients`, and its commands: begin with a picture, resume by id."""

    name: str
    client: Program
    begin: Callable[[str], list[str]]
    resume: Callable[[str, str], list[str]]


def _client(name: str) -> Program:
    return next(program for program in AGENTS if program.name == name)


_CODEX = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
REAL_PROGRAMS = {
    program.name: program
    for program in (
        RealProgram(
            "claude-code",
            _client("Claude Code"),
            lambda prompt: ["claude", "-p", f"@lamp.png {prompt}", "--allowedTools", "Read"],
            lambda session, prompt: ["claude", "--resume", session, "-p", prompt],
        ),
        RealProgram(
            "codex",
            _client("Codex CLI"),
            lambda prompt: ["codex", "exec", *_CODEX, "-i", "lamp.png", "--", prompt],
            lambda session, prompt: ["codex", "exec", "resume", *_CODEX, session, prompt],
        ),
        RealProgram(
            "gemini-cli",
            _client("Gemini CLI"),
            lambda prompt: ["gemini", "-m", "gemini-2.5-pro", "--yolo", "-p", f"@lamp.png {prompt}"],
            lambda session, prompt: ["gemini", "-m", "gemini-2.5-pro", "--yolo", "--resume", session, "-p", prompt],
        ),
    )
}


def install_programs() -> str:
    """Install what is missing; returns why that is not possible here, or nothing."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    INSTALLED.mkdir(parents=True, exist_ok=True)
    try:
        for program in REAL_PROGRAMS.values():
            install(program.client, INSTALLED)
    except SystemExit as error:
        return str(error)
    return ""


class Stage:
    """A program before an upstream that has it read the note; in folders of its own, or in those of another stage."""

    def __init__(
        self, program: RealProgram, folder: Path, upstream: StrictUpstream, *, is_shared: bool = False
    ) -> None:
        self.program = program
        self.upstream = upstream
        client = program.client
        self.place = Place(
            url=upstream.base_url.removesuffix("/v1"),
            key="sk-dummy-0123456789abcdef",
            model=client.model,
            work=folder / "work",
            home=folder / "home",
            installed=INSTALLED,
        )
        if is_shared:
            write_settings(self.place, client)
        else:
            folder.mkdir(parents=True)
            prepare_folders(self.place, client)
            (self.place.work / "lamp.png").write_bytes(base64.b64decode(PIXEL))
        self._script = Script(self.place.note, SECRET, MARKER, style="parallel")
        upstream.answer = self._answer

    def make_session(self) -> None:
        """Have the program look, read and answer."""
        code, printed = self.run(self.program.begin(PROMPT))
        assert (code, MARKER in printed) == (0, True), printed[-2000:]

    def make_interrupted_session(self) -> None:
        """Press Ctrl-C while the program waits for the answer to the results."""
        interrupt = threading.Event()

        def reports(received: Received) -> bool:
            if SECRET.encode() not in received.body:
                return False
            interrupt.set()
            return True

        self.upstream.may_fail = reports
        self.upstream.faults.append(hang(200))
        _, printed = self.run(self.program.begin(PROMPT), interrupt)
        assert interrupt.is_set(), printed[-2000:]
        self.upstream.faults.clear()

    def resume(self, session: str) -> ModelRequest:
        """Continue a session, and return what the program sent to its model."""
        self.upstream.received.clear()
        self.upstream.answer = lambda request: text_answer("It is green.", request.model)
        code, printed = self.run(self.program.resume(session, NEXT_PROMPT))
        assert (code, self.upstream.refused) == (0, []), printed[-2000:]
        requests = [self.upstream.wire.read_request(body) for body in self.upstream.bodies]
        return next(request for request in reversed(requests) if request.tools)

    def run(self, command: list[str], interrupt: threading.Event | None = None) -> tuple[int, str]:
        """Run a command in the folders of the program; returns its exit code and what it printed."""
        return run_program(structs.replace(self.program.client, command=lambda _: command), self.place, interrupt)

    def _answer(self, request: ModelRequest) -> ModelOutput:
        output = self._script(request)
        if not request.tools:
            return output
        reasoning = Thinking(REASONING, native=_SIGNED.get(self.program.client.wire))
        return structs.replace(output, parts=(reasoning, *output.parts))
