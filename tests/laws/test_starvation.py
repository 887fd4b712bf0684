"""No client and no database stops the requests of others: not a database that accepts connections and says nothing, and not
a large request that takes long to read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import pytest
from msgspec import structs

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, LedgerSettings, ModelSettings, ProviderSettings
from antiphon_gateway.ledger.ledger import UsageLedger
from gateway.rig import FAST, Client, Got, serving
from laws.growing_formats.requests import gemini_turn
from providers.sample_answers import WHOLES
from providers.scripted_server import Reply, ScriptedServer
from support.waiting import until

READERS = 100
CHATS = 20
MOST_SECONDS = 2.0
ANSWER = Reply(body=msgspec.json.encode(WHOLES["openai-chat"]), content_type="application/json")


class SilentDatabase:
    """A server that answers no client, until it hangs up."""

    def __init__(self) -> None:
        self.was_asked = threading.Event()
        self._accepted: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"postgresql://reader@127.0.0.1:{self._listener.getsockname()[1]}/usage"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._accepted.append(self._listener.accept()[0])
            except OSError:
                return
            self.was_asked.set()

    def hang_up(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._accepted:
            each.close()


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentDatabase]:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(
        UsageLedger.close, "__defaults__", (0.1,)
    )  # its rows cannot be written, so do not wait for that
    database = SilentDatabase()
    yield database
    database.hang_up()


def config_of(database: SilentDatabase, upstream: ScriptedServer) -> Config:
    url = f"http://localhost:{upstream.port}/v1"  # a name that has to be resolved
    return Config(
        gateway=FAST,
        providers=(ProviderSettings(name="up", preset="compatible", base_url=url, retries=0),),
        models=(ModelSettings(name="m", targets=("up/m",)),),
        keys=(
            ClientKeySettings(name="reader", key=hash_key("sk-reader")),
            ClientKeySettings(name="limited", key=hash_key("sk-limited"), tokens_per_day=1_000_000),
        ),
        ledger=LedgerSettings(address=database.address),
    )


def test_a_silent_database_stops_no_other_request(database: SilentDatabase) -> None:
    with (
        ScriptedServer(structs.replace(ANSWER, headers={"connection": "close"})) as upstream,
        ThreadPoolExecutor(READERS + CHATS) as clients,
    ):
        with serving(config_of(database, upstream), {}) as (port, _):
            readers = [clients.submit(ask_usage, port) for _ in range(READERS)]
            assert database.was_asked.wait(20), "nothing asked the database"
            chats = [clients.submit(ask_model, port) for _ in range(CHATS)]
            for chat in chats:  # each needs a new connection
                got = chat.result(timeout=60)
                assert got.status == 200, got
            assert len({request.connection for request in upstream.received}) == CHATS
            database.hang_up()
            refusals = [reader.result(timeout=60) for reader in readers]
        assert {got.status for got in refusals} == {503}
        assert all(int(got.headers["retry-after"]) >= 1 for got in refusals)


def test_a_silent_database_does_not_keep_the_ports_closed(database: SilentDatabase) -> None:
    """Requests that need nothing of it are answered; a key that may be a stored one is not called invalid."""
    with (
        ScriptedServer(ANSWER) as upstream,
        serving(config_of(database, upstream), {}) as (port, _),
    ):
        assert database.was_asked.wait(20), "nothing asked the database"
        assert ask_model(port).status == 200
        unknown = ask_model(port, "sk-stored")
        assert (unknown.status, int(unknown.headers["retry-after"]) >= 1) == (503, True)
        assert ask_model(port, "").status == 401
        database.hang_up()
        until(lambda: ask_model(port, "sk-stored").status == 401, "the failed read of the keys did not end the wait")


def test_a_silent_database_does_not_stop_a_client_with_a_budget(database: SilentDatabase) -> None:
    """What it used is in there: the first request waits a moment for it, and the next ones do not."""
    with (
        ScriptedServer(ANSWER) as upstream,
        serving(config_of(database, upstream), {}) as (port, _),
        ThreadPoolExecutor(CHATS) as clients,
    ):
        began = time.monotonic()
        first = [clients.submit(ask_model, port, "sk-limited") for _ in range(CHATS)]
        assert {chat.result(timeout=60).status for chat in first} == {200}
        between = time.monotonic()
        assert [ask_model(port, "sk-limited").status for _ in range(CHATS)] == [200] * CHATS
        ended = time.monotonic()
        database.hang_up()
    assert between - began < 2 * MOST_SECONDS, "they waited for the database"
    assert ended - between < MOST_SECONDS, "they waited for the database again"


def test_a_silent_database_does_not_stop_the_status_page(database: SilentDatabase) -> None:
    """It says that the ledger does not answer, and shows all else: after a moment, and then at once."""
    admin = ClientKeySettings(name="admin", key=hash_key("sk-admin"), admin=True)
    with ScriptedServer(ANSWER) as upstream:
        config = config_of(database, upstream)
        with serving(structs.replace(config, keys=(*config.keys, admin)), {}) as (port, _):
            assert ask_model(port).status == 200
            client, began = Client(port, "sk-admin"), time.monotonic()
            pages = [client.get("/status?format=json&key=reader").json for _ in range(CHATS)]
            seconds = time.monotonic() - began
            client.close()
            database.hang_up()
    assert seconds < 2 * MOST_SECONDS, f"they waited for the database for {seconds:.1f} s"
    for page in pages:
        assert [request["key"] for request in page["requests"]] == ["reader"]
        assert "does not answer" in page["spend"]["problem"]
        assert "does not answer" in page["ledger"]["problem"]


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_large_request_does_not_stop_others_for_long(has_ids: bool) -> None:
    """Results in reverse order are looked up among all calls: that once took five seconds."""
    body = msgspec.json.encode(gemini_turn(6_000, ids=has_ids, names=1 if has_ids else 6_000, step=-1))
    with ScriptedServer(ANSWER) as upstream, ThreadPoolExecutor(1) as clients:
        provider = ProviderSettings(name="up", preset="compatible", base_url=upstream.url, retries=0)
        config = Config(gateway=FAST, providers=(provider,), models=(ModelSettings(name="m", targets=("up/m",)),))
        with serving(config, {}) as (port, _):
            client, other, waits = Client(port), Client(port), []
            large = clients.submit(other.request, "POST", "/v1beta/models/m:generateContent", body)
            while not large.done():
                began = time.monotonic()
                assert client.get("/healthz").status == 200
                waits.append(time.monotonic() - began)
                time.sleep(0.005)
            assert large.result().status == 200, large.result().body[:300]
            client.close()
            other.close()
    assert max(waits) < MOST_SECONDS, f"a probe waited for {max(waits):.1f} s"


def ask_usage(port: int) -> Got:
    client = Client(port, "sk-reader")
    try:
        return client.get("/v1/usage")
    finally:
        client.close()


def ask_model(port: int, key: str = "sk-reader") -> Got:
    client = Client(port, key)
    try:
        return client.post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Rain?"}]})
    finally:
        client.close()
