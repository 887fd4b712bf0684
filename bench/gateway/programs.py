"""The gateways of the bench: how each is configured, started and addressed. All forward to the same scripted upstream.

Each is a program of its own with an empty environment, a HOME of its own and dummy keys, run as its documentation says for one
process. Requests that it does not support are not in its `work`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from bench.gateway.traffic import ANTHROPIC_MODEL, MODEL, SHORT_MODEL, SLOW_MODEL, RequestCase

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv-gateway-peers"
PORTKEY = PEERS / "node_modules" / "@portkey-ai" / "gateway"
OURS, AIOHTTP, RAW, LITELLM, PORTKEY_NAME = "antiphon", "aiohttp proxy", "raw proxy", "LiteLLM", "Portkey"
TENSORZERO = "TensorZero"
NOT_FOUND = {"any-llm gateway": "the registry has no package of it; only a client for it is published"}
SAME_FORMAT = ("small", "stream", "agent", "agent stream", "slow stream")
EVERYTHING = (*SAME_FORMAT, "translated", "translated stream")
CLIENT_KEY = f"sk-{secrets.token_hex(24)}"
CLIENT_HEADERS = {"authorization": f"Bearer {CLIENT_KEY}"}
_TICKS = os.sysconf("SC_CLK_TCK")
_START_TIMEOUT = 90.0
_address = re.compile(r"http://127\.0\.0\.1:(\d+)/openai").search


class DidNotStart(Exception):
    """A gateway is not installed, or ended before it accepted connections."""


class Contestant(Struct, frozen=True):
    """A gateway that listens on `port` (0: its log names the address). `work` are the requests it supports, `headers` those it
    needs; `prefix` is prepended to paths and `model` to the names of models."""

    name: str
    command: tuple[str, ...]
    port: int
    work: tuple[str, ...]
    environ: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    prefix: str = ""
    model: str = ""

    def adapt(self, case: RequestCase) -> RequestCase:
        """The same request as this gateway expects it."""
        if not self.prefix:
            return case
        body = case.body.replace(f'"{MODEL}"'.encode(), f'"{self.model}{MODEL}"'.encode(), 1)
        return RequestCase(self.prefix + case.path, body, case.expected)


class RunningGateway:
    """A started gateway. `start_seconds` is the time until it accepted a connection."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        self.contestant = contestant
        self.port = contestant.port
        self._log = folder / f"{contestant.name}.log"
        began = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                contestant.command,
                cwd=ROOT if "bench." in " ".join(contestant.command) else folder,
                env={"PATH": os.defpath, "HOME": str(folder), **contestant.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait(began + _START_TIMEOUT)
        self.start_seconds = time.perf_counter() - began

    def _wait(self, until: float) -> None:
        while self._process.poll() is None and time.perf_counter() < until:
            if not self.port and (address_found := _address(self._log.read_text(errors="replace"))):
                self.port = int(address_found[1])
            if self.port:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            time.sleep(0.01)
        self.stop()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        raise DidNotStart(lines[-1][:200] if lines else "it does not accept connections")

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def cpu(self) -> float:
        """CPU seconds of its process tree so far."""
        return sum(_cpu_by_process(self._process.pid).values())

    @property
    def memory(self) -> float:
        """Resident megabytes of its process tree."""
        return sum(_resident_kilobytes(process) for process in _cpu_by_process(self._process.pid)) / 1024

    def stop(self) -> None:
        """End its process group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
                return


def _resident_kilobytes(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def _cpu_by_process(root: int) -> dict[int, float]:
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS

    def is_descendant(process: int) -> bool:
        while process not in (0, root):
            process = parents.get(process, 0)
        return process == root

    return {process: spent for process, spent in seconds.items() if is_descendant(process)}


def contestants(folder: Path, upstream: int) -> Iterator[Contestant]:
    """All of them, ours first. `folder` is where they may write."""
    yield ours(folder, upstream)
    for name, kind in ((AIOHTTP, "aiohttp"), (RAW, "raw")):
        port = free_port()
        command = (sys.executable, "-m", "bench.gateway.floors", kind, str(port), str(upstream))
        yield Contestant(name, command, port, SAME_FORMAT)
    yield litellm(folder, upstream)
    yield portkey(upstream)
    yield tensorzero(folder, upstream)


def ours(folder: Path, upstream: int) -> Contestant:
    port = free_port()
    config = folder / "antiphon.toml"
    config.write_text(f"""
[gateway]
port = {port}
format_port = 0
client_keys = ["env:CLIENT_KEY"]

[[providers]]
name = "scripted"
format = "openai-chat"
base_url = "http://127.0.0.1:{upstream}/v1"
keys = ["env:UPSTREAM_KEY"]

[[models]]
name = "gpt-*"
targets = ["scripted/*"]

[[models]]
name = "claude-*"
targets = ["scripted/{MODEL}"]
""")
    command = (sys.executable, "-m", "antiphon", "serve", "--config", str(config))
    return Contestant(
        OURS, command, port, EVERYTHING, {"UPSTREAM_KEY": "none", "CLIENT_KEY": CLIENT_KEY}, CLIENT_HEADERS
    )


def litellm(folder: Path, upstream: int) -> Contestant:
    port = free_port()
    config = folder / "litellm.yaml"
    models = "".join(
        f"""
  - model_name: {name}
    litellm_params:
      model: openai/{model}
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: none"""
        for name, model in (
            (MODEL, MODEL),
            (SLOW_MODEL, SLOW_MODEL),
            (SHORT_MODEL, SHORT_MODEL),
            (ANTHROPIC_MODEL, MODEL),
        )
    )
    config.write_text(f"model_list:{models}\ngeneral_settings:\n  master_key: os.environ/CLIENT_KEY\n")
    program = PEERS / "bin" / "litellm"
    command = (str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port))
    environ = {
        "LITELLM_USE_CHAT_COMPLETIONS_URL_FOR_ANTHROPIC_MESSAGES": "true",  # the upstream speaks nothing else
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",  # asks no other host
        "LITELLM_RUST": "true",  # its native paths, where it has them
        "CLIENT_KEY": CLIENT_KEY,
    }
    return Contestant(LITELLM, command, port, EVERYTHING, environ, CLIENT_HEADERS)


def portkey(upstream: int) -> Contestant:
    port = free_port()
    command = (
        shutil.which("node") or "node",
        str(PORTKEY / "build" / "start-server.js"),
        "--headless",
        f"--port={port}",
    )
    headers = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1",
        "authorization": "Bearer none",
    }
    return Contestant(PORTKEY_NAME, command, port, SAME_FORMAT, headers=headers)


def tensorzero(folder: Path, upstream: int) -> Contestant:
    config = folder / "tensorzero.toml"
    models = "".join(
        f"""
[models."{name}"]
routing = ["scripted"]

[models."{name}".providers.scripted]
type = "openai"
model_name = "{name}"
api_base = "http://127.0.0.1:{upstream}/v1/"
api_key_location = "env::UPSTREAM_KEY"
"""
        for name in (MODEL, SLOW_MODEL, SHORT_MODEL)
    )
    config.write_text(
        f"[gateway]\nobservability.enabled = false\n{models}"
    )  # it stores nothing; we keep the usage ledger
    command = (str(PEERS / "bin" / "python"), str(ROOT / "bench" / "gateway" / "start_tensorzero.py"), str(config))
    return Contestant(
        TENSORZERO,
        command,
        0,
        ("small", "stream", "agent", "agent stream"),
        {"UPSTREAM_KEY": "none"},
        prefix="/openai",
        model="tensorzero::model_name::",
    )


def is_installed(contestant: Contestant) -> bool:
    """Whether the files of its command are there, and its package."""
    if contestant.name == TENSORZERO and not version_of(contestant):
        return False
    return all(Path(word).exists() for word in contestant.command if word.startswith("/"))


def version_of(contestant: Contestant) -> str:
    """The version of its package; empty for programs of this repository."""
    if contestant.name == PORTKEY_NAME:
        manifest = PORTKEY / "package.json"
        return manifest.read_text().partition('"version": "')[2].partition('"')[0] if manifest.exists() else ""
    if contestant.name in (LITELLM, TENSORZERO):
        found = next(PEERS.glob(f"lib/python*/site-packages/{contestant.name.lower()}-*.dist-info"), None)
        return found.name.removesuffix(".dist-info").partition("-")[2] if found is not None else ""
    return ""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
