"""`antiphon` as a process of its own, without the time that its imports take.

Starting Python and importing a chat or a gateway costs more than what most tests let it do. So one process imports them, and each
command is a fork of it: a child of the tests like any other, with its own files, environment, folder, session and signals.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import json
import os
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from support import leaks

_SERVER = Path(__file__).with_name("antiphon_server.py")
_SET_CHILD_SUBREAPER = 36  # of prctl(2)


class AntiphonProcess(subprocess.Popen[Any]):
    """`antiphon` with these arguments; `has_terminal` makes its standard input the terminal that controls it.

    Options are those of `Popen`. Systems without subreapers start it the usual way.
    """

    def __init__(self, *arguments: str, has_terminal: bool = False, **options: Any) -> None:
        self._has_terminal = has_terminal
        if has_terminal:
            options |= {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
        super().__init__([sys.executable, "-m", "antiphon", *arguments], **options)

    def _execute_child(self, *options: Any) -> None:
        if sys.platform != "linux":
            super()._execute_child(*options)  # type: ignore[misc]
            return
        command, _, _, _, _, folder, environment = options[:7]
        pipes = options[10:16]
        files = [end if end != -1 else standard for standard, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = _server().start(command[3:], files, environment, folder, has_terminal=self._has_terminal)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run_antiphon(*arguments: str, timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run `antiphon` to its end, like `subprocess.run` with its output captured."""
    given = options.pop("input", None)
    options |= {"stdin": subprocess.PIPE} if given is not None else {}
    with AntiphonProcess(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, errors = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(["antiphon", *arguments], process.returncode, out, errors)


class _Server:
    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, str(_SERVER), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        leaks.shared.add(self._process.pid)
        theirs.close()
        self._lock = threading.Lock()
        atexit.register(self._close)

    def start(
        self,
        arguments: list[str],
        files: list[int],
        environment: Mapping[str, str] | None,
        folder: Path | str | None,
        *,
        has_terminal: bool,
    ) -> int:
        command = {
            "arguments": arguments,
            "environment": dict(os.environ if environment is None else environment),
            "folder": os.fspath(folder or os.getcwd()),
            "has_terminal": has_terminal,
        }
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._channel, [json.dumps(command).encode()], files)
                return int(self._channel.recv(20))
            finally:
                _adopt_orphans(False)

    def _close(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def _adopt_orphans(does: bool) -> None:
    """Whether this process becomes the parent of descendants whose parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(does), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
