"""Clients that make a gateway wait with as many bytes as it takes: `ATTACKS`, and what each does to its memory (`measure`).

Each sends several times what `gateway.max_buffered_bytes` allows, in messages of a sixteenth of it or more, and leaves nothing
unsent that the gateway accepts. The law L13 (`tests/laws/test_l13_bounded_gateway.py`) asserts what `python -m bench memory`
prints.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from antiphon_devtools.conform.http_server import Connection, RawServer, Request

KEYS = {"ATTACKER_KEY": "sk-attacker-0123456789abcdef", "OTHER_KEY": "sk-other-0123456789abcdef"}
"""The client keys, by the variables that have them."""
SILENT, QUICK = "silent", "quick"
"""The model that never answers, and the one that does at once."""
_SEND_SECONDS = 1.0
"""A gateway that takes nothing for so long has stopped reading."""
_MESSAGES = 80
_PACKET = 256 * 1024
_QUIET_SECONDS = 0.15
_MOST_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Provider(RawServer):
    """A Chat Completions host that never answers, or at once, by the model's name."""

    def __init__(self) -> None:
        super().__init__({"chat": 0})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['chat']}/v1"

    async def respond(self, request: Request, connection: Connection) -> bool:
        model = str(msgspec.json.decode(request.body, type=_Named).model)
        if model == SILENT:
            await connection.wait_closed(_MOST_SECONDS * 10)
            return False
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "a", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        await connection.send_json(200, {**answer, "usage": usage})
        return True


class _Named(Struct):
    model: str


def configuration(provider: Provider, limit: int, *, port: int = 0) -> str:
    """An `antiphon.toml` for the attacks: two clients and no file of its own."""
    clients = ", ".join(f'"env:{name}"' for name in KEYS)
    models = "".join(f'[[models]]\nname = "{name}"\ntargets = ["host/{name}"]\n' for name in (SILENT, QUICK))
    return (
        f"[gateway]\nport = {port}\nformat_port = 0\nmax_buffered_bytes = {limit}\nmax_body_bytes = {max(limit, 1024)}\n"
        f"client_keys = [{clients}]\n[ledger]\nenabled = false\n"
        f'[[providers]]\nname = "host"\nformat = "openai-chat"\nbase_url = "{provider.url}"\nretries = 0\n{models}'
    )


class Victim(Struct, frozen=True):
    """A running gateway, and its `limit` (`gateway.max_buffered_bytes`)."""

    port: int
    pid: int
    limit: int

    @property
    def piece(self) -> int:
        """The bytes of one message."""
        return max(self.limit // 16, min(self.limit // 4, 1024 * 1024))

    @property
    def memory(self) -> int:
        """Resident bytes."""
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """The most resident bytes since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def settle(self) -> None:
        """Wait until it has nothing to do."""
        deadline, last, since = time.monotonic() + _MOST_SECONDS, -1.0, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < _QUIET_SECONDS:
            if (used := self._cpu) != last:
                last, since = used, time.monotonic()
            time.sleep(0.02)

    def connect(self) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self.port), timeout=_MOST_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def serves_another(self) -> bool:
        """Whether another client gets an answer."""
        body = msgspec.json.encode({"model": QUICK, "messages": [{"role": "user", "content": "Hi"}]})
        return self.ask("/v1/chat/completions", body, KEYS["OTHER_KEY"])[0] == 200

    def ask(self, path: str, body: bytes, key: str) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_MOST_SECONDS)
        try:
            headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
            client.request("POST", path, body, headers)
            with client.getresponse() as answer:
                return answer.status, answer.read()
        except ConnectionError:  # it was refused, and the connection closed before all was sent
            return 0, b""
        finally:
            client.close()

    @property
    def _cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _status(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


Attack: TypeAlias = Callable[[Victim], AbstractContextManager[None]]
"""It lasts until its block ends; then the client leaves."""


class Growth(Struct, frozen=True):
    """What an attack did: bytes over those `before` at the worst moment, and after the client left."""

    before: int
    peak: int
    after: int
    serves_another: bool


def measure(victim: Victim, attack: Attack, *, rounds: int = 1) -> Growth:
    """Run an attack so many times, one after the other."""
    if not victim.serves_another():
        raise RuntimeError("the gateway does not answer before the attack")
    victim.settle()
    before, serves = victim.memory, True
    victim.forget_peak()
    for _ in range(rounds):
        with attack(victim):
            victim.settle()
            serves = victim.serves_another() and serves
        victim.settle()
    return Growth(before, victim.peak - before, victim.memory - before, serves)


def _head(path: str, key: str, framing: str, kind: str, method: str = "POST") -> bytes:
    shown = f"authorization: Bearer {key}\r\n" if key else ""
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{shown}content-type: {kind}\r\n{framing}\r\n\r\n".encode()


def _send(connection: socket.socket, data: bytes) -> bool:
    """Send as much as the gateway takes; whether that is all."""
    connection.settimeout(_SEND_SECONDS)
    unsent = memoryview(data)
    try:
        while unsent:
            unsent = unsent[connection.send(unsent[:_PACKET]) :]
    except OSError:  # refused, closed, or not read any more
        return False
    return True


def _question(size: int, **fields: object) -> bytes:
    return msgspec.json.encode({"model": SILENT, "input": "word " * (size // 5), **fields})


def _unfinished(path: str, key: str, kind: str, method: str = "POST") -> Attack:
    """Many connections, each with a body that never ends."""

    @contextmanager
    def attack(victim: Victim) -> Iterator[None]:
        with ExitStack() as stack:
            for _ in range(_MESSAGES):
                connection = stack.enter_context(victim.connect())
                _send(
                    connection,
                    _head(path, key, f"content-length: {victim.piece}", kind, method) + b"a" * (victim.piece - 1),
                )
            yield

    return attack


def _small_pieces(path: str, key: str, kind: str, piece: bytes, packets: int = 0) -> Attack:
    """One body in tiny chunks, or in packets of one byte each."""

    @contextmanager
    def attack(victim: Victim) -> Iterator[None]:
        with victim.connect() as connection:
            _send(connection, _head(path, key, "transfer-encoding: chunked", kind))
            if packets:
                _send(connection, b"%x\r\n" % packets)
                all(_send(connection, b"a") for _ in range(packets - 1))
            else:
                _send(connection, piece * (victim.limit // 3))
            yield

    return attack


class _Socket:
    """A WebSocket of a client that sends without masking what it says (its mask is zero)."""

    def __init__(self, connection: socket.socket, key: str) -> None:
        self._connection = connection
        nonce = base64.b64encode(os.urandom(16)).decode()
        connection.sendall(
            "GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {nonce}\r\nauthorization: Bearer {key}\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1) or b"\r\n\r\n"
        if not head.startswith(b"HTTP/1.1 101"):
            raise RuntimeError(f"no WebSocket: {head[:200]!r}")

    def send(self, data: bytes) -> bool:
        size = len(data)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = b"\xfe" + size.to_bytes(2, "big")
        else:
            length = b"\xff" + size.to_bytes(8, "big")
        return _send(self._connection, b"\x81" + length + bytes(4) + data)


def _messages(make: Callable[[Victim, int], bytes], first: bytes = b"") -> Attack:
    """One WebSocket whose client reads nothing; `make` gives the messages by their number."""

    @contextmanager
    def attack(victim: Victim) -> Iterator[None]:
        with victim.connect() as connection:
            opened = _Socket(connection, KEYS["ATTACKER_KEY"])
            if first:
                opened.send(first)
            all(opened.send(make(victim, number)) for number in range(_MESSAGES))
            yield

    return attack


def _requests(path: str, make: Callable[[Victim, int], bytes]) -> Attack:
    """Whole requests, each answered; what they store stays."""

    @contextmanager
    def attack(victim: Victim) -> Iterator[None]:
        for number in range(_MESSAGES):
            victim.ask(path, make(victim, number), KEYS["ATTACKER_KEY"])
        yield

    return attack


@contextmanager
def _in_progress(victim: Victim) -> Iterator[None]:
    """Whole requests that are translated and sent, and never answered."""
    body = _question(victim.piece, store=False)
    with ExitStack() as stack:
        for _ in range(_MESSAGES):
            connection = stack.enter_context(victim.connect())
            _send(connection, _head("/v1/responses", _KEY, f"content-length: {len(body)}", "application/json") + body)
        yield


@contextmanager
def _conversation_items(victim: Victim) -> Iterator[None]:
    _, answer = victim.ask("/v1/conversations", b"{}", KEYS["ATTACKER_KEY"])
    path = f"/v1/conversations/{msgspec.json.decode(answer)['id']}/items"
    for _ in range(_MESSAGES):
        item = {"type": "message", "role": "user", "content": "word " * (victim.piece // 5)}
        victim.ask(path, msgspec.json.encode({"items": [item]}), KEYS["ATTACKER_KEY"])
    yield


def _create(victim: Victim, **fields: object) -> bytes:
    return _question(victim.piece, type="response.create", store=False, **fields)


def _steer(victim: Victim, _: int) -> bytes:
    text = "word " * (victim.piece // 5)
    return msgspec.json.encode({"type": "response.steer", "previous_response_id": "resp_none", "input": text})


_CHAT, _LOGIN, _FORM = "/v1/chat/completions", "/status/login", "application/x-www-form-urlencoded"
_KEY = KEYS["ATTACKER_KEY"]
_SILENT_REQUEST = msgspec.json.encode({"type": "response.create", "model": SILENT, "input": "Hi"})

ATTACKS: Mapping[str, Attack] = {
    "bodies that never end": _unfinished(_CHAT, _KEY, "application/json"),
    "2-byte chunks": _small_pieces(_CHAT, _KEY, "application/json", b"2\r\naa\r\n"),
    "1-byte packets": _small_pieces(_CHAT, _KEY, "application/json", b"", packets=20_000),
    "login forms without a key": _unfinished(_LOGIN, "", _FORM),
    "login form in 2-byte chunks, without a key": _small_pieces(_LOGIN, "", _FORM, b"2\r\naa\r\n"),
    "bodies for a probe, without a key": _unfinished("/healthz", "", "application/json", "GET"),
    "requests in progress for another format": _in_progress,
    "WebSocket warm-ups": _messages(lambda victim, _: _create(victim, generate=False)),
    "WebSocket requests that wait": _messages(lambda victim, _: _create(victim), _SILENT_REQUEST),
    "WebSocket requests in progress": _messages(lambda victim, number: _create(victim, stream_id=f"{number}")),
    "WebSocket steers that fail": _messages(_steer),
    "background answers": _requests("/v1/responses", lambda victim, _: _question(victim.piece, background=True)),
    "stored answers": _requests("/v1/responses", lambda victim, _: _question(victim.piece, model=QUICK)),
    "conversation items": _conversation_items,
}
"""What a client may try, by name."""
STAYS = frozenset({"background answers", "stored answers", "conversation items"})
"""What stays when the client leaves: it was asked for."""
