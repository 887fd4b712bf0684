"""A real gateway in a thread, on real sockets: strict upstreams of every format, and a small client."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.http.client.client import HttpClient
from antiphon.wire import FORMATS, formats
from antiphon.wire.delta import Assembler
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon_gateway.app import Gateway, TapeHandler
from antiphon_gateway.config.settings import (
    CacheDoctorSettings,
    ClientKeySettings,
    Config,
    GatewaySettings,
    LedgerSettings,
    ModelSettings,
    ProviderSettings,
)
from antiphon_gateway.serve import serve
from gateway.strict_upstream import StrictUpstream
from providers.sample_answers import PRESET_OF

MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-3.6-flash",
}
"""A model of each provider."""
KEY = "sk-canary-0123456789abcdef-of-{}"
"""The credential of each provider: only that provider may see it."""
FAST = GatewaySettings(port=0, format_port=0, hold_seconds=2.0, keep_alive_seconds=30.0, log_level="warning")


class Got(Struct, frozen=True):
    """An answer to a client. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def output(self, format_name: str, *, streams: bool) -> ModelOutput:
        """What it says to a client of that format."""
        assert self.status == 200, self.body
        if not streams:
            return formats[format_name].read_response(self.body)
        assembler = self.assembler(format_name)
        assert assembler.is_finished, (assembler.error, self.body)
        return assembler.output

    def assembler(self, format_name: str) -> Assembler:
        """A stream, as far as it came."""
        reader, assembler = formats[format_name].stream_reader(), Assembler()
        for delta in [*reader.feed(self.body), *reader.close()]:
            assembler.add(delta)
        return assembler

    def error(self, format_name: str) -> ProviderError:
        """Why it was refused, as a client of that format reads it."""
        assert self.status >= 400, self.body
        return formats[format_name].read_error(self.body, self.status)


class Client:
    """One connection to the gateway, kept open."""

    def __init__(self, port: int, key: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._key = key

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Got:
        """Ask and wait for all of the answer."""
        sent_headers = {"content-type": "application/json", **(headers or {})}
        if self._key:
            sent_headers.setdefault("authorization", f"Bearer {self._key}")
        self._connection.request(method, path, body, sent_headers)
        with self._connection.getresponse() as response:  # which has the socket, if the connection closes
            got = {name.lower(): value for name, value in response.getheaders()}
            return Got(response.status, got, response.read())

    def get(self, path: str, **headers: str) -> Got:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Got:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.request("POST", path, data, headers)

    def ask(
        self,
        format_name: str,
        model: str,
        request: ModelRequest | dict[str, Any],
        *,
        streams: bool,
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """Send a request in a format, as its clients do."""
        if isinstance(request, ModelRequest):
            named = structs.replace(request, model=model, stream=None if format_name == "gemini" else streams)
            request = formats[format_name].write_request(named).body
        else:
            request = {**request, **({} if format_name == "gemini" else {"model": model, "stream": streams})}
        return self.post(path_of(format_name, model, streams=streams), request, headers)

    def close(self) -> None:
        self._connection.close()


def path_of(format_name: str, model: str, *, streams: bool) -> str:
    """Where clients of a format send their requests."""
    if format_name == "gemini":
        return f"/v1beta/models/{model}:" + ("streamGenerateContent?alt=sse" if streams else "generateContent")
    return {
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "anthropic": "/v1/messages",
        "gemini-interactions": "/v1beta/interactions",
    }[format_name]


class Rig:
    """A gateway and its upstreams. The model `to-<format>` is answered by the upstream of that format."""

    def __init__(self, upstreams: Mapping[str, StrictUpstream], ports: tuple[int, int]) -> None:
        self.upstreams = upstreams
        self.port, self.format_port = ports

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def client(self, key: str = "", *, port: int | None = None) -> Iterator[Client]:
        client = Client(port or self.port, key)
        try:
            yield client
        finally:
            client.close()

    def clear(self) -> None:
        """Make the upstreams forget what was."""
        for upstream in self.upstreams.values():
            upstream.clear()


def provider_of(name: str, upstream: StrictUpstream, **settings: Any) -> ProviderSettings:
    """An upstream as the configuration names it."""
    return ProviderSettings(
        name=name,
        preset=PRESET_OF[upstream.format],
        base_url=upstream.base_url,
        **{"keys": (f"env:{variable_of(upstream.format)}",), "retries": 0, **settings},
    )


def variable_of(format_name: str) -> str:
    return f"KEY_{format_name.upper().replace('-', '_')}"


ENVIRONMENT = {variable_of(name): KEY.format(name) for name in FORMATS}


@contextmanager
def rig(
    settings: GatewaySettings = FAST,
    *,
    models: Mapping[str, Sequence[str]] | None = None,
    keys: Sequence[ClientKeySettings] = (),
    environ: Mapping[str, str] | None = None,
    ledger: LedgerSettings | None = None,
    cache_doctor: CacheDoctorSettings | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    tape: Callable[[Gateway], TapeHandler] | None = None,
    ends_idle: bool = True,
    **provider_settings: Any,
) -> Iterator[Rig]:
    """A gateway with an upstream of each format; `models` adds names and their targets.

    `ends_idle`: no request is in progress when the block ends, and then nothing of any is left.
    """
    with ExitStack() as stack:
        upstreams = {name: stack.enter_context(StrictUpstream(name, [KEY.format(name)])) for name in FORMATS}
        routes = {f"to-{name}": [f"{name}/{MODELS[name]}"] for name in FORMATS}
        config = Config(
            gateway=settings,
            providers=tuple(provider_of(name, upstream, **provider_settings) for name, upstream in upstreams.items()),
            models=tuple(
                ModelSettings(name=name, targets=tuple(targets))
                for name, targets in {**routes, **(models or {})}.items()
            ),
            keys=tuple(keys),
            ledger=ledger or LedgerSettings(),
            cache_doctor=cache_doctor or CacheDoctorSettings(),
        )
        ports = stack.enter_context(
            serving(config, {**ENVIRONMENT, **(environ or {})}, new_loop=new_loop, tape=tape, ends_idle=ends_idle)
        )
        yield Rig(upstreams, ports)


@contextmanager
def serving(
    config: Config,
    environ: Mapping[str, str],
    path: Path | None = None,
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    tape: Callable[[Gateway], TapeHandler] | None = None,
    ends_idle: bool = True,
) -> Iterator[tuple[int, int]]:
    """A gateway in a thread with a loop of its own; the ports it serves. `path` is the file it reloads, if it has one."""
    ports: list[tuple[int, int]] = []
    gateways: list[Gateway] = []
    loop, stop, is_up = new_loop(), asyncio.Event(), threading.Event()

    def see(gateway: Gateway) -> Any:
        gateways.append(gateway)
        return tape(gateway) if tape is not None else None

    def ready(opened: tuple[int, int]) -> None:
        ports.append(opened)
        is_up.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve(config, path=path, ready=ready, environ=environ, stop=stop, tape=see))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_up.wait(20), "the gateway did not begin to serve"
    before = tasks_of(loop)
    try:
        yield ports[0]
        deadline = time.monotonic() + 20
        while ends_idle and (left := left_over(gateways[0], loop, before)):
            assert time.monotonic() < deadline, f"after the last request: {left}"
            time.sleep(0.01)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive(), "the gateway did not stop"


def tasks_of(loop: asyncio.AbstractEventLoop) -> frozenset[str]:
    """The tasks of a loop in another thread, by the names of their coroutines."""
    with contextlib.suppress(RuntimeError):  # one came while they were listed
        return frozenset(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks(loop))
    return tasks_of(loop)


def left_over(gateway: Gateway, loop: asyncio.AbstractEventLoop, before: frozenset[str]) -> str:
    """What a gateway still has after the last request: bytes that wait, upstream connections in use, tasks. Empty: nothing."""
    services = gateway.services
    left = []
    followable = sum(answer.hold.size for answer in list(services.background._answers.values()))
    if services.governor.used != followable:
        left.append(f"bytes are held: {services.governor.used_by}, {followable} of them for those who follow answers")
    assert isinstance(services.transport, HttpClient)
    for pool in list(services.transport._pools.values()):
        in_use = pool.connections - {each for idle in list(pool.idle.values()) for each in idle}
        if in_use:
            left.append(f"{len(in_use)} upstream connections are in use")
    if tasks := tasks_of(loop) - before:
        left.append(f"tasks run: {', '.join(sorted(tasks))}")
    return "; ".join(left)
