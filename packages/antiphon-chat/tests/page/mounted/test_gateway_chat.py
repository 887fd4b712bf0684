"""The chat inside the gateway: its models, its keys, its limits, and no harm to the rest."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import GatewayStartError
from antiphon_chat.page.mounted.gateway_chat import chat_factory
from antiphon_chat.page.server import serve_chat
from antiphon_chat.shared.session import ChatSettings
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, GatewaySettings, ModelSettings, ProviderSettings
from antiphon_gateway.routes import is_chat_path
from antiphon_gateway.serve import serve
from gateway.strict_upstream import StrictUpstream
from page.rig import Browser, in_a_thread, text
from support.waiting import SECONDS

SETTINGS = GatewaySettings(port=0, format_port=0, log_level="error")
OFFLINE = Config(
    gateway=SETTINGS,
    providers=(ProviderSettings(name="offline"),),
    models=(ModelSettings(name="plain", targets=("offline/plain",)),),
)


@contextmanager
def gateway(config: Config, store: Path, environ: dict[str, str] | None = None) -> Iterator[tuple[Browser, Browser]]:
    """A gateway with its chat in a thread; browsers at both of its ports."""

    async def served(ready: Callable[[tuple[int, int]], None], stop: asyncio.Event) -> None:
        await serve(config, ready=ready, environ=environ or {}, stop=stop, chat=chat_factory(store))

    with in_a_thread(served) as (main, format_port):
        yield Browser(main), Browser(format_port)


def test_the_gateway_serves_the_chat_next_to_its_endpoints(tmp_path: Path) -> None:
    with ExitStack() as watching, gateway(OFFLINE, tmp_path / "data" / "history.db") as (browser, formats):
        assert browser.get("/").headers["location"] == "/chat/"
        state = browser.api("GET", "/state")
        assert (state["choice"]["model"], state["models"]) == ("plain", ["plain"])
        assert state["choice"]["what"].startswith("not a language model")
        conversation = browser.create()
        events_seen = browser.ask(conversation, "hello")
        assert "not a language model" in text(events_seen)
        assert browser.api("PATCH", f"/conversations/{conversation}", {"model": "local/smollm2"}, status=400)
        body = {"model": "plain", "messages": [{"role": "user", "content": "hi"}]}
        assert browser.request("POST", "/chat/completions", body).json["choices"]
        assert browser.get("/healthz").status == 200
        assert formats.get("/chat/api/state").status == 404, "the chat is on the main port"
        # A page that watches must not hold the gateway up when it stops.
        watching.enter_context(browser.events(conversation))
    assert (tmp_path / "data" / "history.db").exists()


def test_no_store_is_created_before_the_first_request(tmp_path: Path) -> None:
    with gateway(OFFLINE, tmp_path / "data" / "history.db") as (browser, _):
        assert browser.get("/healthz").status == 200
    assert not (tmp_path / "data").exists()


def test_without_a_store_the_chat_reports_it_and_the_rest_works(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    with gateway(OFFLINE, tmp_path / "data" / "history.db") as (browser, _):
        error = browser.api("GET", "/state", status=503)["error"]
        assert "cannot create the folder" in error["message"]
        assert browser.get("/healthz").status == 200


def test_the_chat_has_the_gateways_keys_limits_providers_and_credentials(tmp_path: Path) -> None:
    secret = "sk-canary-of-the-upstream"
    with StrictUpstream("anthropic", [secret]) as upstream:
        config = Config(
            gateway=SETTINGS,
            providers=(
                ProviderSettings(
                    name="mine", preset="anthropic", base_url=upstream.base_url, keys=("env:UPSTREAM",), retries=0
                ),
            ),
            models=(ModelSettings(name="clever", targets=("mine/claude-sonnet-4-5",)),),
            keys=(ClientKeySettings(name="ada", key=hash_key("sk-ada"), requests_per_minute=1),),
        )
        with gateway(config, tmp_path / "history.db", {"UPSTREAM": secret}) as (browser, _):
            assert browser.get("/chat/api/state").status == 401
            ada = Browser(browser.port, "sk-ada")
            conversation = ada.create()
            events_seen = ada.ask(conversation, "hello")
            assert events_seen[-1].data["reason"] == "answered", events_seen[-1]
            shown = ada.show(conversation)
            assert shown["entries"][-1]["origin"] == {
                "provider": "mine",
                "format": "anthropic",
                "model": "claude-sonnet-4-5",
            }
            rendered = ada.api("GET", f"/conversations/{conversation}/rendered")["formats"]
            assert rendered["anthropic"]["model"] == "mine/claude-sonnet-4-5"
            turn: dict[str, Any] = {"content": [{"type": "text", "text": "again"}]}
            assert ada.api("POST", f"/conversations/{conversation}/turns", turn, status=429)
            assert secret not in str(shown) + str(rendered)


def test_tokens_of_the_chat_and_of_requests_are_counted_together(tmp_path: Path) -> None:
    config = Config(
        gateway=SETTINGS,
        providers=OFFLINE.providers,
        models=OFFLINE.models,
        keys=(ClientKeySettings(name="ada", key=hash_key("sk-ada"), tokens_per_minute=10),),
    )
    body = {"model": "plain", "messages": [{"role": "user", "content": "hi"}]}
    with gateway(config, tmp_path / "history.db") as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create()
        ada.ask(conversation, "hello")
        turn: dict[str, Any] = {"content": [{"type": "text", "text": "again"}]}
        assert ada.api("POST", f"/conversations/{conversation}/turns", turn, status=429)
        assert ada.request("POST", "/v1/chat/completions", body).status == 429


@pytest.mark.parametrize(
    ("path", "chats"),
    [
        *((path, True) for path in ("/", "/chat", "/chat/", "/chat/page/app.js", "/chat/api/state")),
        *((path, False) for path in ("/chat/completions", "/v1/chat/completions", "/chatter", "/status")),
    ],
)
def test_which_paths_are_the_chats(path: str, chats: bool) -> None:
    assert is_chat_path(path) is chats


def test_the_chat_without_keys_is_for_this_machine(tmp_path: Path) -> None:
    with pytest.raises(GatewayStartError, match="for this machine alone"):
        serve_chat(ChatSettings(store=tmp_path / "history.db"), host="0.0.0.0")


def test_the_chat_command_prints_model_and_address_and_stops_on_a_signal(tmp_path: Path) -> None:
    code = (
        "import sys; from antiphon_chat.page.server import serve_chat; from antiphon_chat.shared.session import ChatSettings;"
        "sys.exit(serve_chat(ChatSettings(store=sys.argv[1]), port=0, environ={}))"
    )
    store = tmp_path / "new" / "history.db"
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    with subprocess.Popen([sys.executable, "-c", code, str(store)], stderr=subprocess.PIPE, env=environ) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith(b"antiphon: offline/plain: not a language model")
            line = process.stderr.readline().decode()
            assert line.startswith("antiphon: the chat is at http://127.0.0.1:")
            browser = Browser(int(line.rpartition(":")[2].partition("/")[0]))
            browser.ask(browser.create(), "hello")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == b""
