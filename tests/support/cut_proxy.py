"""A proxy between a client and a server that can cut what is on its way, one direction at a time."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Cut = Literal["", "requests", "answers"]


class CutProxy:
    """Passes bytes on, until `cut` says which are to be lost: the next ones of that direction end their connection.

    `cuts` counts how often that may still happen; each takes one.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.cut: Cut = ""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, cut: Cut, times: int = 1) -> None:
        """Lose the next bytes of a direction, `times` times."""
        with self._lock:
            self.cut, self.cuts = cut, times

    def close(self) -> None:
        _end(self._listening)
        with self._lock:
            for sock in self._open:
                _end(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                with self._lock:
                    self._open += [client, server]
                for source, target, direction in ((client, server, "requests"), (server, client, "answers")):
                    threading.Thread(target=self._pass_on, args=(source, target, direction), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: Cut) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    is_lost = self.cut == direction and self.cuts > 0
                    self.cuts -= is_lost
                if is_lost:
                    break
                target.sendall(data)
        _end(source)
        _end(target)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
