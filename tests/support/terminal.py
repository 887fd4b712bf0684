"""A real pseudo-terminal with the real command on it, typed into and read by the test.

The screen is kept by pyte, with everything that scrolled off its top. The terminal answers where its cursor is, as real ones do.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pyte

from providers.scripted_server import ScriptedServer
from support.antiphon_process import AntiphonProcess

PATIENCE = 60.0
"""How long to wait for something to appear, in seconds: a loaded machine is slow, a broken chat says nothing forever."""


class Terminal:
    """Runs `antiphon` with these arguments. Data are kept in `place`; keys of this machine's user are not passed on."""

    def __init__(
        self,
        place: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 30,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._screen.write_process_input = self.type  # type: ignore[method-assign, assignment]
        self.raw = b""
        self._terminal, child = pty.openpty()
        self._resize(columns, rows)
        self._process = AntiphonProcess(
            *arguments,
            stdin=child,
            stdout=child,
            stderr=child,
            env=environment_of(place, environment),
            has_terminal=True,
            cwd=place,
        )
        os.close(child)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def send(self, text: str) -> None:
        """Type a line, and send it."""
        self.type(f"{text}\r")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window and signal the command."""
        self._screen.resize(rows, columns)
        self._resize(columns, rows)

    def sees(self, *texts: str, again: bool = False) -> str:
        """Wait until all of these stand on the terminal, wrapped or not; the text of the screen then.

        `again`: more often than they do now.
        """
        before = {text: self.words.count(text) if again else 0 for text in texts}
        return self.waits(lambda: all(self.words.count(text) > before[text] for text in texts), f"{texts}")

    def waits(self, is_so: Callable[[], bool], what: str) -> str:
        """Read what the command writes until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            while not (came := self._read(0.1)):
                assert came is not None, f"the command ended before {what} appeared:\n{self.text}"
                assert time.monotonic() < deadline, f"{what} did not appear:\n{self.text}"
            while self._read(0.005):
                pass
        return self.text

    def ends(self) -> int:
        """Wait until the command has ended; its exit code."""
        while self._read(PATIENCE) is not None:
            pass
        return self._process.wait(PATIENCE)

    @property
    def text(self) -> str:
        """Everything that was written and not erased, from the top of the scrollback."""
        gone: Any = self._screen.history.top
        lines = ["".join(line[column].data for column in range(self._screen.columns)) for line in gone]
        return "\n".join(line.rstrip() for line in [*lines, *self._screen.display])

    @property
    def words(self) -> str:
        """The same as one line, whatever it was wrapped to."""
        return " ".join(self.text.split())

    @property
    def widest(self) -> int:
        """How many columns are used."""
        return max(map(len, self.text.split("\n")))

    def _read(self, seconds: float = 0.05) -> bytes | None:
        """What came, or None if the command is gone."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # Linux says so when the last writer is gone
            return None
        self.raw += data
        self._stream.feed(data)
        return data or None

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
NASTY = "\x1b]0;owned\x07\x1b[31m\x9b2J\r\x08 \u202egnp.exe\u202c \u2066a\u2069 \u200f \u061c\x7f"
"""What would set the title, erase the screen, go back in the line, and turn words around."""


def is_control(char: str) -> bool:
    """Whether a terminal may obey it instead of showing it. New lines and tabs are shown."""
    return (unicodedata.category(char) == "Cc" and char not in "\n\t") or char in _BIDI_CONTROLS


def on_a_terminal(place: Path, *arguments: str, typed: str = "", **environment: str) -> tuple[int, str]:
    """The exit code of `antiphon` with these arguments, and everything it wrote to a terminal without colours."""
    shown, terminal = pty.openpty()
    mode = termios.tcgetattr(terminal)
    mode[1] &= ~termios.ONLCR  # lines end as the command ends them
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    process = AntiphonProcess(
        *arguments,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment_of(place, {"NO_COLOR": "1", "TERM": "dumb", **environment}),
        cwd=place,
    )
    os.close(terminal)
    os.write(shown, typed.encode())
    written = b""
    try:
        while more := os.read(shown, 65536):
            written += more
    except OSError:  # Linux says so when the last writer is gone
        pass
    os.close(shown)
    return process.wait(PATIENCE), written.decode()


def environment_of(place: Path, environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The environment of a user who set up nothing, with these variables."""
    named = ("_KEY", "_TOKEN", "_BASE_URL", "_HOST", "COLUMNS", "LINES", "NO_COLOR", "COLORTERM", "EDITOR", "VISUAL")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(named) and name not in ("ANTIPHON_STORE", "ANTIPHON_MODEL", "ANTIPHON_LANGUAGE")
    }
    own = {
        "TERM": "xterm-256color",
        "XDG_DATA_HOME": str(place),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONWARNINGS": "error",
    }
    return {**inherited, **own, **environment}


def with_model(server: ScriptedServer, place: Path, *arguments: str, **settings: Any) -> Terminal:
    """A chat with a model on the scripted server."""
    environment = {"OPENAI_API_KEY": "sk-secret-1", "OPENAI_BASE_URL": f"{server.url}/v1"}
    return Terminal(place, "chat", "--model", "openai/gpt-test", *arguments, environment=environment, **settings)
