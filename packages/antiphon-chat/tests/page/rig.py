"""The chat, served for real in a thread on a port of this machine, and a small client that speaks to it as the page does."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from antiphon.history import HistoryStore, SqliteStore
from antiphon.http.server.application import Limits
from antiphon.providers.call import ProviderClient
from antiphon.providers.default_model import ModelChoice
from antiphon.providers.router import ProviderRouter
from antiphon_chat.page.app import ChatApp
from antiphon_chat.page.server import serve_app
from antiphon_chat.page.services import ChatServices
from antiphon_chat.shared.models import ChatModels
from antiphon_chat.shared.session import TurnSettings
from antiphon_chat.shared.toolbox import Toolboxes
from antiphon_gateway.access.client_keys import ClientKeys
from antiphon_gateway.config.settings import ClientKeySettings, Config
from gateway.rig import Got
from support.waiting import SECONDS

T = TypeVar("T")

PAGE = {"content-type": "application/json", "x-antiphon-chat": "1"}
"""What our page sends with everything that changes something."""


class SeenEvent(Struct, frozen=True):
    """One event of a stream."""

    id: int | None
    name: str
    data: Any


class Browser:
    """A page's side of the API. `key` is what it sends as its bearer."""

    def __init__(self, port: int, key: str = "") -> None:
        self.port = port
        self._key = {"authorization": f"Bearer {key}"} if key else {}

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, plain: bool = False
    ) -> Got:
        """Ask and wait for all of the answer; `plain` sends nothing but the headers given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            own = {} if plain or method in ("GET", "HEAD") else PAGE
            data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
            connection.request(method, path, data, {**own, **self._key, **(headers or {})})
            response = connection.getresponse()
            got = {name.lower(): value for name, value in response.getheaders()}
            return Got(response.status, got, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Got:
        return self.request("GET", path, headers=headers)

    def api(self, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
        """What the API answers; it must be well, or have that status."""
        got = self.request(method, f"/chat/api{path}", body)
        assert got.status == status if status else got.status < 300, (got.status, got.body)
        return got.json

    def create(self, **facts: str) -> str:
        made: str = self.api("POST", "/conversations", facts)["id"]
        return made

    def show(self, conversation: str) -> Any:
        return self.api("GET", f"/conversations/{conversation}")

    def say(self, conversation: str, text: str, **more: Any) -> int:
        body = {"content": [{"type": "text", "text": text}], **more}
        turn: int = self.api("POST", f"/conversations/{conversation}/turns", body, status=202)["turn"]
        return turn

    def ask(self, conversation: str, text: str, **more: Any) -> list[SeenEvent]:
        """Send a message and receive all events of the turn."""
        before = self.show(conversation)["last_event"]
        self.say(conversation, text, **more)
        with self.events(conversation, before) as events_seen:
            return until_finished(events_seen)

    @contextmanager
    def events(
        self, conversation: str, after: int | None = None, *, last_event_id: int | None = None
    ) -> Iterator[Iterator[SeenEvent]]:
        """A stream of events, until the block ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            query = f"?after={after}" if after is not None else ""
            resuming = {"last-event-id": str(last_event_id)} if last_event_id is not None else {}
            path = f"/chat/api/conversations/{conversation}/events{query}"
            connection.request("GET", path, headers={**self._key, **resuming})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            yield _read(response)
            response.close()
        finally:
            connection.close()


def _read(response: http.client.HTTPResponse) -> Iterator[SeenEvent]:
    fields: dict[str, str] = {}
    while line := response.readline():
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            yield SeenEvent(number, fields["event"], msgspec.json.decode(fields["data"]))
            fields = {}
        else:
            fields = {}


def until_finished(events_seen: Iterator[SeenEvent]) -> list[SeenEvent]:
    """The events up to the end of the turn."""
    events: list[SeenEvent] = []
    for event in events_seen:
        events.append(event)
        if event.name == "LoopFinished":
            return events
    raise AssertionError(f"the stream ended in mid-turn: {[event.name for event in events]}")


def names(events: Sequence[SeenEvent]) -> list[str]:
    return [event.name for event in events]


def text(events: Sequence[SeenEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "TextDelta")


def models(*clients: ProviderClient) -> ChatModels:
    """Models by the names of their clients; the first is taken by default."""
    router = ProviderRouter({client.name: client for client in clients}, environ={})
    return ChatModels(
        router, ModelChoice(clients[0].name, "a script", "Change the test."), [one.name for one in clients]
    )


OFFLINE = ChatModels(
    ProviderRouter(default="offline/plain", environ={}), ModelChoice("offline/plain", "offline", "Set a key."), ()
)


@contextmanager
def served(
    path: Path,
    talking: ChatModels | ProviderClient = OFFLINE,
    *,
    tools: Sequence[Any] = (),
    with_builtin: bool = False,
    keys: Sequence[ClientKeySettings] = (),
    environ: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    kept_in: Callable[[Path], HistoryStore] = SqliteStore,
    **options: Any,
) -> Iterator[Browser]:
    """The chat over the store at `path`; a browser that speaks to it."""
    there = models(talking) if isinstance(talking, ProviderClient) else talking
    known = ClientKeys(Config(keys=tuple(keys)), environ or {})
    with kept_in(path) as store:
        setup = options.get("setup")
        if (limit := options.pop("token_limit", None)) is not None:
            options["turns"] = lambda: TurnSettings(token_limit=limit)
        page = {name: options.pop(name) for name in ("page", "rules") if name in options}
        chat = ChatServices(
            store,
            (lambda: setup.models) if setup else (lambda: there),
            Toolboxes(path.parent, tools=tools, with_builtin=with_builtin),
            **options,
        )
        app = ChatApp(chat, keys=lambda: known, **page)
        with running(app, limits or Limits()) as port:
            yield Browser(port)


@contextmanager
def running(app: ChatApp, limits: Limits) -> Iterator[int]:
    """An app served in a thread; its port."""

    async def serve(ready: Callable[[str], None], stop: asyncio.Event) -> None:
        await serve_app(app, on_ready=ready, stop=stop, limits=limits)

    with in_a_thread(serve) as url:
        yield int(url.split(":")[2].partition("/")[0])


@contextmanager
def in_a_thread(serve: Callable[[Callable[[T], None], asyncio.Event], Coroutine[Any, Any, None]]) -> Iterator[T]:
    """Something that serves until it is stopped, in a thread with its own loop; what it reported when it was ready."""
    loop, stop, is_up = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    collected: list[T] = []

    def ready(reported: T) -> None:
        collected.append(reported)
        is_up.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve(ready, stop))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_up.wait(SECONDS), "it did not begin to serve"
    try:
        yield collected[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(SECONDS)
        assert not thread.is_alive(), "it did not stop"


class Gate:
    """Something a model or a tool waits at until the test lets it through."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._reached = threading.Event()

    async def passed(self) -> None:
        """Wait here."""
        self._reached.set()
        while not self._opened.is_set():
            await asyncio.sleep(0.002)

    def wait_for_caller(self) -> None:
        """Until a caller waits here."""
        assert self._reached.wait(SECONDS), "no caller reached the gate"

    def open(self) -> None:
        self._opened.set()
