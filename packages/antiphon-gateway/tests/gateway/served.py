"""The gateway as a process of its own, on ports that are free, and its clients."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gateway.rig import ENVIRONMENT, Client, variable_of
from gateway.strict_upstream import StrictUpstream
from support.antiphon_process import AntiphonProcess
from support.waiting import SECONDS


class ServedGateway:
    """A process that serves, its ports, and what it logs."""

    def __init__(self, config: Path, *options: str, environ: Mapping[str, str]) -> None:
        """`config` is its file, or an empty folder: then it is started without one."""
        folder = config if config.is_dir() else config.parent
        file = [] if config.is_dir() else ["--config", str(config)]
        inherited = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
        self.process = AntiphonProcess(
            *("serve", *file, "--port", "0", "--format-port", "0", *options),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**inherited, **environ, "ANTIPHON_HOME": str(folder), "HOME": str(folder)},
            cwd=folder,
            text=True,
        )
        self.log: list[str] = []
        self.port = 0
        self._is_up = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        assert self._is_up.wait(SECONDS), self.log
        assert self.port, self.log

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if not self.port and (found := re.search(r"listening on http://127.0.0.1:(\d+)", line)):
                self.port = int(found[1])
                self._is_up.set()
        self._is_up.set()

    @property
    def workers(self) -> list[int]:
        """The processes it started."""
        number = self.process.pid
        return [int(child) for child in Path(f"/proc/{number}/task/{number}/children").read_text().split()]

    def stop(self) -> int:
        """Tell it to stop; the code it ends with."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        self._reading.join(SECONDS)
        if self.process.stderr is not None:
            self.process.stderr.close()


@contextmanager
def served_gateway(config: Path, *options: str, environ: Mapping[str, str]) -> Iterator[ServedGateway]:
    """Serve as `config` says, a file or an empty folder, until the block ends."""
    running = ServedGateway(config, *options, environ=environ)
    try:
        yield running
    finally:
        running.close()


def config_text(upstreams: Sequence[StrictUpstream], models: dict[str, str]) -> str:
    """An `antiphon.toml`: the upstreams, and the names of models with their one target."""
    text = '[gateway]\nlog = "json"\n'
    for upstream in upstreams:
        preset = "openai" if upstream.format == "openai-chat" else upstream.format
        text += f'[[providers]]\nname = "{upstream.format}"\npreset = "{preset}"\nbase_url = "{upstream.base_url}"\n'
        text += f'keys = ["env:{variable_of(upstream.format)}"]\n'
    for name, target in models.items():
        text += f'[[models]]\nname = "{name}"\ntargets = ["{target}"]\n'
    return text


@contextmanager
def served(config: Path, *options: str) -> Iterator[ServedGateway]:
    with served_gateway(config, *options, environ=ENVIRONMENT) as running:
        yield running


@contextmanager
def connected(port: int) -> Iterator[Client]:
    client = Client(port)
    try:
        yield client
    finally:
        client.close()
