"""The animation of the README, from a real run: a chat is killed in the middle of a tool, resumed in another process, and shows
its history as every API gets it.

A shell runs in a pseudo-terminal and is typed into; the chat is the guided tour, which needs no key. The screen at
each moment becomes one frame of an SVG, which a browser plays by itself; with reduced motion only the last one is shown.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import pyte

HERE = Path(__file__).parent
COLUMNS, ROWS = 92, 30
_WIDTH, _HEIGHT, _MARGIN = 8.4, 19.0, 20.0
_PATIENCE = 60.0
_COLOURS = {
    "default": "#e5eae5",
    "green": "#6dd3a1",
    "brown": "#e6b65c",
    "yellow": "#e6b65c",
    "red": "#f69186",
    "brightblack": "#9aa59d",
}
Screen = list[str]
"""The lines of a frame, as SVG."""


class Shell:
    """A shell in a terminal, typed into as a person would."""

    def __init__(self, folder: Path) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.screen.write_process_input = self.write  # type: ignore[method-assign, assignment]
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
            look = {"TERM": "xterm-256color", "PS1": "$ ", "LANG": "C.UTF-8"}
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], {"PATH": path, "HOME": str(folder), **size, **look})
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def waits_for(self, pattern: str, then: float = 0.4) -> re.Match[str]:
        """Read until the screen has it, and a moment longer; what was found."""
        deadline = time.monotonic() + _PATIENCE
        while not (found := re.search(pattern, "\n".join(self.screen.display))):
            if time.monotonic() > deadline:
                sys.exit(f"{pattern!r} did not appear:\n" + "\n".join(self.screen.display))
            self._read(0.1)
        ends = time.monotonic() + then
        while time.monotonic() < ends:
            self._read(0.05)
        return found

    def _read(self, seconds: float) -> None:
        if select.select([self._terminal], [], [], seconds)[0]:
            self._stream.feed(os.read(self._terminal, 65536))


@contextmanager
def shell_in(folder: Path) -> Iterator[Shell]:
    """A shell that ends with the block."""
    shell = Shell(folder)
    try:
        yield shell
    finally:
        os.kill(shell.pid, signal.SIGKILL)
        os.waitpid(shell.pid, 0)


def take_kill_and_resume() -> None:
    """Write kill-and-resume.svg."""
    frames: list[tuple[Screen, float]] = []
    with tempfile.TemporaryDirectory() as folder, shell_in(Path(folder)) as shell:

        def shows(seconds: float) -> None:
            frames.append((draw(shell.screen), seconds))

        shell.waits_for(r"\$")
        shell.write("antiphon chat")
        shell.waits_for("antiphon chat")
        shows(1.0)
        shell.write("\r")
        shell.waits_for("Ctrl-D: quit")
        shows(2.0)
        shell.write("2\r")
        process = int(shell.waits_for(r"kill -9 (\d+)", then=2.5)[1])
        shows(3.5)
        os.kill(process, signal.SIGKILL)
        shell.waits_for("Killed")
        shows(2.0)
        shell.write("antiphon chat --resume\r")
        shell.waits_for("is unfinished")
        shows(2.5)
        shell.write("/retry\r")
        shell.waits_for("2 rounds")
        shows(5.0)
        frames.append((draw(exports(Path(folder))), 7.0))
    (HERE / "kill-and-resume.svg").write_text(animate(frames), encoding="utf-8")


def exports(folder: Path) -> pyte.Screen:
    """The conversation as the command exports it for each API: of each, the beginning of what carries the result of the call."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": ""}
    for api in ("anthropic", "openai-chat", "openai-responses", "gemini", "gemini-interactions"):
        command = ["antiphon", "history", "export", "last", "--as", api]
        done = subprocess.run(
            [sys.executable, "-m", *command], env=environment, capture_output=True, text=True, check=True
        )
        messages = json.loads(done.stdout)
        (result,) = [text for text in map(_compact, _listed(messages)) if "Outcome unknown" in text]
        stream.feed(f"\x1b[1m$ {' '.join(command)}\x1b[0m\r\n\x1b[32m")
        room = COLUMNS * 3 - 2
        text = result if len(result) <= room else f"{result[:room]} …"
        stream.feed("\r\n".join(text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS)))
        stream.feed("\x1b[0m\r\n\r\n")
    return screen


def _compact(message: object) -> str:
    return json.dumps(message, ensure_ascii=False)


def _listed(exported: Any) -> list[Any]:
    """The messages of an export, which is a list or a body that has one."""
    if isinstance(exported, list):
        return exported
    return next(value for value in exported.values() if isinstance(value, list))


def draw(screen: pyte.Screen) -> Screen:
    """The lines of a screen: one text for each run of equal style."""
    lines = []
    for row in range(ROWS):
        cells = [screen.buffer[row][column] for column in range(COLUMNS)]
        start = 0
        for column in range(1, COLUMNS + 1):
            if column < COLUMNS and _style(cells[column]) == _style(cells[start]):
                continue
            text = "".join(cell.data for cell in cells[start:column])
            if text.strip():
                lines.append(_run(row, start, column - start, text, _style(cells[start])))
            start = column
    return lines


def _style(cell: pyte.screens.Char) -> tuple[str, bool]:
    return _COLOURS.get(
        cell.fg, f"#{cell.fg}" if re.fullmatch("[0-9a-f]{6}", cell.fg) else _COLOURS["default"]
    ), cell.bold


def _run(row: int, column: int, length: int, text: str, style: tuple[str, bool]) -> str:
    stripped = text.lstrip()
    column, length = column + len(text) - len(stripped), len(stripped.rstrip())
    bold = ' font-weight="700"' if style[1] else ""
    x, y = _MARGIN + column * _WIDTH, _MARGIN + 36 + row * _HEIGHT
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length * _WIDTH:.1f}" fill="{style[0]}"{bold}>'
        f"{escape(stripped.rstrip())}</text>"
    )


def _percent(at: float, whole: float) -> str:
    return f"{100 * at / whole:.2f}%"


def animate(frames: list[tuple[Screen, float]]) -> str:
    """One SVG that shows the frames one after the other, again and again."""
    whole = sum(seconds for _, seconds in frames)
    rules, groups, start = [], [], 0.0
    for number, (lines, seconds) in enumerate(frames):
        shown = f"{_percent(start, whole)} {{ visibility: visible }} {_percent(start + seconds, whole)} {{ visibility: hidden }}"
        first = "" if number == 0 else "0% { visibility: hidden } "
        rules.append(
            f"@keyframes f{number} {{ {first}{shown} }} .f{number} {{ animation: f{number} {whole}s step-end infinite }}"
        )
        groups.append(f'<g class="frame f{number}">{"".join(lines)}</g>')
        start += seconds
    width, height = 2 * _MARGIN + COLUMNS * _WIDTH, 2 * _MARGIN + 26 + ROWS * _HEIGHT
    still = f".frame {{ animation: none; visibility: hidden }} .f{len(frames) - 1} {{ visibility: visible }}"
    font = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    styles = f"text {{ font-family: {font}; font-size: 14px; white-space: pre }}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'aria-label="A chat is killed in the middle of a tool, resumed, and its history shown for every API">'
        f"<style>{styles} .frame {{ visibility: hidden }} {' '.join(rules)} "
        f"@media (prefers-reduced-motion: reduce) {{ {still} }}</style>"
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="10" fill="#101311"/>'
        '<path d="M21 25h7v7h-7z" fill="none" stroke="#e5eae5" stroke-width="2"/><path d="M28 16h9v9h-9z" fill="#6dd3a1"/>'
        f"{''.join(groups)}</svg>\n"
    )


if __name__ == "__main__":
    take_kill_and_resume()
