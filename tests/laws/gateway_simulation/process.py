"""A gateway in a process of its own that starts afresh on demand, and can say whether it still holds a request's body.

The garbage collector is off in that process: a body that only a reference cycle keeps alive is found, not collected by chance.
Run as a program it reads commands from standard input, one a line, and answers each with a line of JSON:

    start PATH    serve the configuration in that file  ->  {"ports": [8000, 8181]}
    stop          shut down what is served              ->  {"stopped": true}
    held TEXT     how many objects hold a text          ->  {"held": 0, "by": []}

Log lines go to standard error, as those of `antiphon serve` do. SIGHUP reloads.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct, structs

from support.repository import TEST_PATHS
from support.waiting import SECONDS


class GatewayProcess:
    """The process, seen from a test. `log` is the file that holds its log lines."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.log = folder / "gateway.log"
        self._read = 0
        paths = [*TEST_PATHS, os.environ.get("PYTHONPATH", "")]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "laws.gateway_simulation.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, config: Path) -> tuple[int, int]:
        """Serve a configuration; the ports."""
        main, format_port = self._command(f"start {config}")["ports"]
        return main, format_port

    def stop(self) -> None:
        """Shut down what is served."""
        self._command("stop")

    def hang_up(self) -> None:
        """Ask for a reload."""
        self._process.send_signal(signal.SIGHUP)

    def held(self, text: str) -> list[str]:
        """What still holds a text, once nothing more changes; empty as it should be."""
        until = time.monotonic() + 2.0
        while True:
            by: list[str] = self._command(f"held {text}")["by"]
            if not by or time.monotonic() > until:
                return by
            time.sleep(0.02)

    def new_log(self) -> str:
        """What was logged since the last call, up to the last whole line."""
        with open(self.log, "rb") as log:
            log.seek(self._read)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode("utf-8", "replace")

    def _command(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        try:
            answer: dict[str, Any] = json.loads(self._answers.get(timeout=SECONDS))
        except queue.Empty:
            raise AssertionError(f"the gateway process did not answer to {line!r}: {self.log.read_text()}") from None
        return answer

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)


def main() -> None:
    """Obey commands until standard input ends."""
    gc.disable()
    starts: queue.Queue[Path | None] = queue.Queue()
    server = _Server()
    threading.Thread(target=_listen, args=(starts, server), daemon=True).start()
    while (path := starts.get()) is not None:
        server.run(path)
        gc.unfreeze()
        gc.collect()
        _say({"stopped": True})


class _Server:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def run(self, path: Path) -> None:
        asyncio.run(self._served(path))

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _served(self, path: Path) -> None:
        from antiphon_gateway.config.file import load_config
        from antiphon_gateway.serve import serve

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await serve(load_config(path), path=path, ready=_ready, stop=self._stop)
        finally:
            self._loop = self._stop = None


def _ready(ports: tuple[int, int]) -> None:
    gc.collect()
    gc.freeze()  # from here on `gc.get_objects` gives only what requests make
    _say({"ports": list(ports)})


def _listen(starts: queue.Queue[Path | None], server: _Server) -> None:
    for line in sys.stdin:
        command, _, rest = line.rstrip("\n").partition(" ")
        if command == "start":
            starts.put(Path(rest))
        elif command == "stop":
            server.stop()
        elif command == "held":
            by = list(_holders(rest))
            _say({"held": len(by), "by": by})
    server.stop()
    starts.put(None)


def _holders(text: str) -> Iterator[str]:
    """The types of the objects that hold a long text or bytes with this in it."""
    data = text.encode()
    for holder in gc.get_objects():
        for value in _values(holder, 0):
            needle = text if isinstance(value, str) else data
            if len(value) > 1000 and needle in value:  # type: ignore[operator]
                yield f"{type(holder).__name__} holds {len(value)} of {type(value).__name__}"


def _values(holder: object, depth: int) -> Iterator[str | bytes | bytearray]:
    """The texts and bytes an object holds itself, or through objects that the garbage collector does not know."""
    if depth > 6:
        return
    held = list(structs.astuple(holder)) if isinstance(holder, Struct) else gc.get_referents(holder)
    for value in held:
        if isinstance(value, str | bytes | bytearray):
            yield value
        elif not gc.is_tracked(value) and isinstance(value, dict | list | tuple | Struct):
            yield from _values(value, depth + 1)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
