"""One program through the gateway to an upstream of one format: what came of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from antiphon.parts import Text, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire.inbound import client_formats
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from antiphon_gateway.routes import Endpoint, match_route
from clients.faults import Trouble
from clients.program import Place, Program, text_of_file
from clients.script import Script
from clients.wiretap import SeenRequest, Wiretap
from gateway.rig import FAST, MODELS, Rig, rig
from gateway.strict_upstream import StrictUpstream
from providers.scripted_server import Received

CLIENT_KEY = "sk-antiphon-0123456789abcdef"
NOTE = "The lamp of Łódź is green, 绿灯 🚦\nand its number is lamp-7431\n"
SECRET = "lamp-7431"
"""Plain letters: some programs escape all others in what they send back."""
MARKER = "lamp-seen-终点"
NO_TROUBLE = Trouble(name="")
SETTINGS = structs.replace(FAST, hold_seconds=1.0, keep_alive_seconds=0.5)
"""Streams that pause for a second have several keep-alives."""


class Outcome(Struct, frozen=True):
    """What came of a run. Without problems it passed."""

    program: Program
    trouble: str
    upstream: str
    problems: tuple[str, ...]
    losses: tuple[str, ...]
    """Losses and repairs that the gateway reported."""
    output: str = ""
    requests: tuple[SeenRequest, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.program.title} {self.trouble}".strip()


class Stage:
    """A gateway with an upstream of each format; one answers for every model."""

    def __init__(self, running: Rig, tap: Wiretap, upstream: StrictUpstream) -> None:
        self.rig, self.tap, self.upstream = running, tap, upstream

    @property
    def reported(self) -> tuple[str, ...]:
        """Losses and repairs that the gateway reported."""
        with self.rig.client(CLIENT_KEY) as client:
            status = client.get("/status", accept="application/json").json
        requests = status["requests"]
        return tuple(
            dict.fromkeys(reported for request in requests for reported in (*request["losses"], *request["repairs"]))
        )


@contextlib.contextmanager
def stage(format_name: str) -> Iterator[Stage]:
    """A gateway before an upstream of that format."""
    with ExitStack() as stack:
        target = f"{format_name}/{MODELS[format_name]}"
        key = ClientKeySettings(name="programs", key=hash_key(CLIENT_KEY), admin=True)  # it reads /status
        running = stack.enter_context(rig(SETTINGS, models={"*": [target]}, keys=[key], retries=2))
        tap = Wiretap(running.port)
        stack.enter_context(tap)
        yield Stage(running, tap, running.upstreams[format_name])


def run(program: Program, format_name: str, installed: Path, trouble: Trouble = NO_TROUBLE) -> Outcome:
    """Run a program in folders of its own and judge what it did."""
    with tempfile.TemporaryDirectory(prefix="client-") as folder, stage(format_name) as on:
        place = Place(
            url=on.tap.url,
            key=CLIENT_KEY,
            model=program.model,
            work=Path(folder, "work"),
            home=Path(folder, "home"),
            installed=installed,
        )
        prepare_folders(place, program)
        script = Script(
            place.note,
            SECRET,
            MARKER,
            last_command=program.last_command,
            asks_in_words=program.asks_in_words,
            style=trouble.style,
        )
        on.upstream.answer = script
        on.upstream.piece = trouble.piece
        if trouble.first is not None:
            on.upstream.may_fail = _offers_tools  # and not a side call, such as one for a title
            on.upstream.faults.append(trouble.first(on.upstream))
        code, output = run_program(program, place)
        requests = tuple(on.tap.requests())
        problems = [*_problems(code, output, script, on.upstream), *_missing(requests, on)]
        if program.is_websocket != any(request.is_message for request in requests):
            problems.append("it did not use a WebSocket" if program.is_websocket else "it used a WebSocket")
        if trouble.is_harmless and script.calls > 1:
            problems.append("it asked again, although the first answer arrived whole")
        return Outcome(program, trouble.name, format_name, tuple(problems), on.reported, output, requests)


def _offers_tools(received: Received) -> bool:
    return bool(msgspec.json.decode(received.body).get("tools"))


def prepare_folders(place: Place, program: Program) -> None:
    """Make the folders of a program: a home with its settings, and a repository with a note."""
    place.work.mkdir()
    place.home.mkdir()
    place.note.write_text(NOTE)
    for command in (["git", "init", "-q"], ["git", "add", "note.txt"]):  # coding agents are at home in a repository
        subprocess.run(command, cwd=place.work, check=True)
    write_settings(place, program)


def write_settings(place: Place, program: Program) -> None:
    """Write the files that point a program at the gateway or upstream."""
    for name, content in program.files(place).items():
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of_file(content))


def run_program(program: Program, place: Place, interrupt: threading.Event | None = None) -> tuple[int, str]:
    """Run the program's command in its folders; returns its exit code and what it printed.

    When `interrupt` is set, the program gets what Ctrl-C sends.
    """
    environment = {
        "PATH": f"{place.installed / program.folder / 'bin'}:{place.installed / 'node' / 'bin'}:/usr/bin:/bin",
        "HOME": str(place.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "1",
        "DO_NOT_TRACK": "1",
        "ANTIPHON_CLIENT_KEY": place.key,
        **program.environment(place),
    }
    try:
        return _command(program.command(place), environment, place.work, program.seconds, interrupt)
    finally:
        for process in _leftover_processes(place.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _leftover_processes(home: Path) -> Iterator[int]:
    """Processes that a program put into a group of their own (Cline has a daemon): its home belonged to it alone."""
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in place.read_bytes().split(b"\0"):
                yield int(place.parent.name)


def _command(
    command: list[str],
    environment: dict[str, str],
    work: Path,
    seconds: float,
    interrupt: threading.Event | None = None,
) -> tuple[int, str]:
    """Run a command for a bounded time, in a process group that is ended with it."""
    executable = shutil.which(command[0], path=environment["PATH"])
    if executable is None:
        return 127, f"{command[0]} is not installed"
    with subprocess.Popen(
        [executable, *command[1:]],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        if interrupt is not None:
            threading.Thread(target=_interrupt, args=(process, interrupt, seconds), daemon=True).start()
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            return 124, printed.decode(errors="replace") + f"\nended after {seconds:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # leftover processes
    return process.returncode, printed.decode(errors="replace")


def _interrupt(process: subprocess.Popen[bytes], interrupt: threading.Event, seconds: float) -> None:
    if interrupt.wait(seconds) and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)


def _problems(code: int, output: str, script: Script, upstream: StrictUpstream) -> Iterator[str]:
    if code:
        yield f"exit code {code}"
    if not script.calls:
        yield f"no tool was called (offered: {', '.join(script.offered) or 'none'})"
    elif not script.is_read:
        yield f"the result did not come back; came: {[result[:80] for result in script.results]}"
    if MARKER not in output:
        yield "the marker is not in the output"
    yield from (f"refused: {reason}" for reason in dict.fromkeys(upstream.refused))


def _missing(requests: Sequence[SeenRequest], on: Stage) -> Iterator[str]:
    """What a client sent and the upstream never received. Text may be moved and framed; other losses are reported."""
    received = "\0".join(word for body in on.upstream.bodies for word in _words(on.upstream.wire.read_request(body)))
    for request in requests:
        endpoint = match_route(request.method, request.path.partition("?")[0], request.headers)
        if isinstance(endpoint, Endpoint) and endpoint.action == "generate":
            sent = client_formats[endpoint.format].read_request(request.body)
            missing = [word for word in _words(sent) if word not in received]
            if missing:
                yield f"never received: {missing[0][:120]!r}"


def _words(request: ModelRequest) -> Iterator[str]:
    """What must arrive, whatever the format: words, names of tools, calls and their results."""
    for tool in request.tools:
        if isinstance(tool, ToolDefinition):
            yield f"tool {tool.name}: {tool.description or ''}"
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                yield part.text
            elif isinstance(part, ToolCallRequest):
                yield f"call {part.tool_name}: {_settled(part.arguments)}"
            elif isinstance(part, ToolCallResult):
                # A format that cannot mark a failure says it in front of the words.
                yield f"result {_settled(text_of(part.content).removeprefix('Error: '))}"


def _settled(text: str) -> str:
    """Text that is JSON, in one spelling: some formats hold it as an object, and blanks and escapes are not content.

    Arguments that are not JSON are in `_raw` there, which is reported as a loss.
    """
    try:
        printed = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if isinstance(printed, dict) and list(printed) == ["_raw"]:
        return str(printed["_raw"])
    return msgspec.json.encode(printed, order="sorted").decode()
