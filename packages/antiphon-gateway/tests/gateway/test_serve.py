"""The gateway as a process: it stops gracefully, reloads under load, outlives its workers, and mixes no answers up."""

from __future__ import annotations

import http.client
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.parts import Text, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest
from gateway.rig import ENVIRONMENT, KEY, MODELS, Client, Rig, rig
from gateway.served import config_text, connected, served
from gateway.strict_upstream import CLOSED, EMPTY, PAGE, StrictUpstream, cut, gzipped, late, reset, text_answer, trickle
from support.installed import needs_chat
from support.waiting import SECONDS, until


def asking(words: str) -> ModelRequest:
    return ModelRequest(messages=(Message("user", (Text(words),)),), max_output_tokens=500)


@pytest.fixture
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream("anthropic", [KEY.format("anthropic")]) as one:
        yield one


@pytest.fixture
def config(tmp_path: Path, upstream: StrictUpstream) -> Path:
    path = tmp_path / "antiphon.toml"
    path.write_text(config_text([upstream], {"m": f"anthropic/{MODELS['anthropic']}"}))
    return path


def test_a_stop_lets_a_stream_come_to_its_end(config: Path, upstream: StrictUpstream) -> None:
    words = "One after the other. " * 20
    upstream.answer = lambda _: text_answer(words)
    upstream.faults.append(trickle(1500, 0.1))
    with served(config) as running:
        got: list[Any] = []

        def ask() -> None:
            with connected(running.port) as client:
                got.append(client.ask("gemini", "m", asking("Go on."), streams=True))

        asked = threading.Thread(target=ask)
        asked.start()
        until(lambda: upstream.received)
        assert running.stop() == 0
        asked.join(SECONDS)
        assert text_of(got[0].output("gemini", streams=True).parts) == words
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", running.port), timeout=5)
    assert not any("Traceback" in line for line in running.log), running.log


@pytest.mark.parametrize("fields", [{}, {"transfer-encoding": "chunked"}], ids=["length", "chunked"])
def test_a_shutdown_waits_until_a_slow_reader_has_the_whole_response(tmp_path: Path, fields: dict[str, str]) -> None:
    size = 20 * 1024 * 1024
    with StrictUpstream("openai-chat", [KEY.format("openai-chat")]) as upstream:
        upstream.answer = lambda _: text_answer("x" * size)
        config = tmp_path / "antiphon.toml"
        config.write_text(config_text([upstream], {"m": f"openai-chat/{MODELS['openai-chat']}"}))
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
        with served(config) as running, socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            raw.settimeout(SECONDS)
            raw.connect(("127.0.0.1", running.port))
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            if fields:
                raw.sendall(head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            else:
                raw.sendall(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            came = [raw.recv(1000)]
            running.process.send_signal(signal.SIGTERM)
            until(lambda: any("shutting down" in line for line in running.log))
            time.sleep(0.5)  # it would be cut by now
            while piece := raw.recv(1024 * 1024):
                came.append(piece)
            assert sum(piece.count(b"x") for piece in came) >= size
            assert running.process.wait(SECONDS) == 0


def test_a_port_in_use_is_a_clear_error(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "antiphon", "serve", "--config", str(config), "--port", port]
        ended = subprocess.run(
            [*command, "--format-port", "0"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, **ENVIRONMENT, "HOME": str(config.parent)},
            cwd=config.parent,
            check=False,
        )
    assert ended.returncode not in (0, None)
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_reload_under_load_loses_no_request(config: Path, upstream: StrictUpstream) -> None:
    target = f"anthropic/{MODELS['anthropic']}"
    is_over = threading.Event()
    failures: list[str] = []
    counts = [0] * 4

    def load(number: int, port: int) -> None:
        source = FORMATS[number]
        with connected(port) as client:
            while not is_over.is_set():
                words, streams = f"marker-{number}-{counts[number]}.", counts[number] % 2 == 0
                got = client.ask(source, "m", asking(words), streams=streams)
                counts[number] += 1
                if got.status != 200 or text_of(got.output(source, streams=streams).parts) != f"echo: {words}":
                    failures.append(f"{words} {got.status} {got.body[:300]!r}")

    with served(config) as running:
        clients = [threading.Thread(target=load, args=(number, running.port)) for number in range(4)]
        for asked in clients:
            asked.start()
        try:
            with connected(running.port) as client:
                for name in ("first", "second"):
                    config.write_text(config_text([upstream], {"m": target, name: target}))
                    if name == "second":
                        running.process.send_signal(signal.SIGHUP)
                    until(lambda: name in model_names(client))  # noqa: B023
                config.write_text("[gateway]\nprot = 8000\n")
                refused = until(lambda: [line for line in running.log if "prot" in line])
                assert "invalid configuration" in refused[0]
                assert "prot" in client.get("/status", accept="application/json").body.decode()
                assert "second" in model_names(client)
        finally:
            is_over.set()
            for asked in clients:
                asked.join(SECONDS)
        assert failures == []
        assert all(counts)
        assert running.stop() == 0


def model_names(client: Client) -> set[str]:
    return {model["id"] for model in client.get("/v1/models").json["data"]}


def test_workers_share_the_ports_and_one_that_dies_is_replaced(config: Path) -> None:
    def ask(port: int) -> int:
        with connected(port) as client:
            return client.ask("openai-chat", "m", asking("Hello."), streams=True).status

    def requests_counted(port: int) -> int:
        with connected(port) as client:
            text = client.get("/metrics").body.decode()
        found = re.findall(r"^antiphon_requests_total\{[^}]*\} (\S+)", text, re.MULTILINE)
        return int(sum(map(float, found)))

    with served(config, "--workers", "2") as running:
        first = until(lambda: len(running.workers) == 2 and running.workers)
        assert [ask(running.port) for _ in range(20)] == [200] * 20
        until(lambda: requests_counted(running.port) == 20)
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(running.workers) == 2 and first[0] not in running.workers)
        cause = f"worker {first[0]} was ended by signal 9 (Killed); starting"
        until(lambda: any(cause in line for line in running.log))
        assert [ask(running.port) for _ in range(20)] == [200] * 20
        until(lambda: requests_counted(running.port) == 40)
        workers = running.workers
        assert running.stop() == 0
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@needs_chat
@pytest.mark.parametrize("options", [("--workers", "2"), ()], ids=["workers", "one process"])
def test_a_hangup_without_a_configuration_file_is_ignored(tmp_path: Path, options: tuple[str, ...]) -> None:
    with served(tmp_path, *options) as running:
        workers = until(lambda: len(running.workers) == 2 and running.workers) if options else []
        until(lambda: sum("listening on" in line for line in running.log) == max(1, len(workers)))
        running.process.send_signal(signal.SIGHUP)
        until(lambda: sum("SIGHUP ignored" in line for line in running.log) == max(1, len(workers)))
        assert running.workers == workers
        with connected(running.port) as client:
            assert client.get("/healthz").status == 200
        assert running.stop() == 0


def test_workers_do_not_outlive_their_parent(config: Path) -> None:
    with served(config, "--workers", "2") as running:
        workers = until(lambda: len(running.workers) == 2 and running.workers)
        running.process.kill()
        running.process.wait(SECONDS)
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def answered(request: ModelRequest) -> ModelOutput:
    """The marker of the request, many times: any piece of another answer would show."""
    return text_answer(" ".join([text_of(request.messages[-1].parts)] * 30))


FAULTS = [CLOSED, EMPTY, PAGE, cut(300), reset(300), late(0.05), trickle(200, 0.001), gzipped]


class Soak:
    """Clients of all formats at once, each request with a marker of its own, while upstreams fail at random."""

    def __init__(self, gateway: Rig, seconds: float) -> None:
        self.wrong: list[str] = []
        self.sent = self.fine = self.failed = 0
        self._gateway = gateway
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()

    def run(self, count: int) -> None:
        clients = [threading.Thread(target=self._client, args=(number,)) for number in range(count)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(SECONDS + 60)
            assert not client.is_alive(), "a request was lost"

    def _client(self, number: int) -> None:
        chance = random.Random(number)
        turn = 0
        with self._gateway.client() as client:
            while time.monotonic() < self._deadline:
                turn += 1
                source, target = chance.choice(FORMATS), chance.choice([*FORMATS, "any"])
                if chance.random() < 0.25:
                    chance.choice(list(self._gateway.upstreams.values())).faults.append(chance.choice(FAULTS))
                streams = chance.random() < 0.6
                marker = f"marker-{number}-{turn}-{chance.randrange(10**9)}"
                with self._lock:
                    self.sent += 1
                try:
                    got = client.ask(source, f"to-{target}", asking(marker), streams=streams)
                except (OSError, http.client.HTTPException) as error:
                    self._note(f"{marker} got no answer: {error!r}")
                    return
                self._judge(marker, source, got, streams=streams)

    def _judge(self, marker: str, source: str, got: Any, *, streams: bool) -> None:
        whole = " ".join([marker] * 30)
        if got.status != 200:
            is_right = bool(got.error(source).message) and got.status >= 400
        elif streams:
            assembler = got.assembler(source)
            text_so_far = text_of(assembler.output.parts)
            is_right = (
                text_so_far == whole
                if assembler.is_finished
                else assembler.error is not None and whole.startswith(text_so_far)
            )
        else:
            is_right = text_of(got.output(source, streams=False).parts) == whole
        with self._lock:
            self.fine += got.status == 200
            self.failed += got.status != 200
        if not is_right:
            self._note(f"{marker} got {got.status} {got.body[:300]!r}")

    def _note(self, wrong: str) -> None:
        with self._lock:
            self.wrong.append(wrong)


def soak(seconds: float) -> None:
    everyone = [f"{name}/{MODELS[name]}" for name in FORMATS]
    with rig(models={"to-any": everyone}, keys=(), retries=1) as gateway:
        for upstream in gateway.upstreams.values():
            upstream.answer = answered
        test = Soak(gateway, seconds)
        test.run(20)
        refused = [words for upstream in gateway.upstreams.values() for words in upstream.refused]
    assert test.wrong == []
    assert refused == []
    assert test.sent == test.fine + test.failed
    assert test.fine > 20


def test_no_answers_are_lost_or_mixed_up() -> None:
    soak(3)


@pytest.mark.slow
def test_no_answers_are_lost_or_mixed_up_in_a_long_run() -> None:
    soak(15)


_COUNT_PAGE_FAULTS = """
import resource
from antiphon_gateway.serve import tune_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

tune_memory((0, 0))
body = b"x" * 512 * 1024
for _ in range(10):
    copies = [bytearray(body) for _ in range(3)]
    del copies
before = faults()
for _ in range(100):
    copies = [bytearray(body) for _ in range(3)]
    del copies
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide differently")
def test_memory_of_a_large_request_is_reused_by_the_next() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNT_PAGE_FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100 * 100, "three bodies of 512 KB are 384 pages"
