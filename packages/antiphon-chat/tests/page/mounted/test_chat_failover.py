"""The chat page of a gateway calls models through the gateway's own providers and circuits, with its timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon_gateway.config.settings import Config, GatewaySettings, ModelSettings, ProviderSettings
from gateway.strict_upstream import ERROR_PAGE, StrictUpstream, hang, text_answer
from page.mounted.test_gateway_chat import gateway
from page.rig import Browser, text

KEYS = {"FIRST": "sk-first", "SECOND": "sk-second"}


class Upstreams:
    """Two providers of the model `clever`: `second` is asked if `first` fails."""

    def __init__(self, first: StrictUpstream, second: StrictUpstream) -> None:
        self.first, self.second = first, second
        first.answer = lambda request: text_answer("First.", request.model)
        second.answer = lambda request: text_answer("Second.", request.model)

    def config(self, provider: dict[str, Any] | None = None, **settings: Any) -> Config:
        return Config(
            gateway=GatewaySettings(port=0, format_port=0, log_level="error", **settings),
            providers=(
                ProviderSettings(
                    name="first",
                    preset="anthropic",
                    base_url=self.first.base_url,
                    keys=("env:FIRST",),
                    retries=0,
                    **(provider or {}),
                ),
                ProviderSettings(
                    name="second", preset="openai", base_url=self.second.base_url, keys=("env:SECOND",), retries=0
                ),
            ),
            models=(ModelSettings(name="clever", targets=("first/claude-sonnet-4-5", "second/gpt-4o")),),
        )


@pytest.fixture
def upstreams() -> Iterator[Upstreams]:
    with (
        StrictUpstream("anthropic", ["sk-first"]) as first,
        StrictUpstream("openai-chat", ["sk-second"]) as second,
    ):
        yield Upstreams(first, second)


def ask_page(browser: Browser) -> str:
    return text(browser.ask(browser.create(), "hello"))


def ask_endpoint(browser: Browser) -> str:
    body = {"model": "clever", "messages": [{"role": "user", "content": "hello"}]}
    return str(browser.request("POST", "/v1/chat/completions", body).json["choices"][0]["message"]["content"])


def test_a_circuit_that_clients_opened_is_open_for_the_page(upstreams: Upstreams, tmp_path: Path) -> None:
    upstreams.first.faults.extend([ERROR_PAGE] * 50)
    config = upstreams.config(circuit_failures=2, circuit_seconds=300, circuit_max_seconds=300)
    with gateway(config, tmp_path / "chats.db", KEYS) as (browser, _):
        assert [ask_endpoint(browser) for _ in range(2)] == ["Second.", "Second."]
        asked = len(upstreams.first.received)
        assert ask_page(browser) == "Second."
        assert len(upstreams.first.received) == asked == 2


def test_a_circuit_that_the_page_opened_is_open_for_clients(upstreams: Upstreams, tmp_path: Path) -> None:
    upstreams.first.faults.extend([ERROR_PAGE] * 50)
    config = upstreams.config(circuit_failures=1, circuit_seconds=300, circuit_max_seconds=300)
    with gateway(config, tmp_path / "chats.db", KEYS) as (browser, _):
        assert ask_page(browser) == "Second."
        asked = len(upstreams.first.received)
        assert ask_endpoint(browser) == "Second."
        assert len(upstreams.first.received) == asked
        status = browser.get("/status?format=json").json
        assert [row["target"] for row in status["circuits"]] == ["first/claude-sonnet-4-5"]


@pytest.mark.parametrize("where", ["gateway", "provider"])
def test_the_first_token_timeout_holds_for_the_page(upstreams: Upstreams, tmp_path: Path, where: str) -> None:
    upstreams.first.faults.extend([hang()] * 5)
    limit: dict[str, Any] = {"first_token_seconds": 0.3}
    config = upstreams.config(**limit) if where == "gateway" else upstreams.config(limit)
    with gateway(config, tmp_path / "chats.db", KEYS) as (browser, _):
        assert ask_page(browser) == "Second."
        upstreams.first.clear()
        assert "within 0.3 s" in str(browser.get("/status?format=json").json["requests"])


def test_another_target_finishes_a_broken_text_on_the_page(upstreams: Upstreams, tmp_path: Path) -> None:
    start, whole = text_answer("One two "), text_answer("One two three.")
    upstreams.first.faults.append(upstreams.first.error_in_stream("overloaded", "busy", after=start))
    upstreams.second.answer = lambda _: whole
    with gateway(upstreams.config(continue_streams=True), tmp_path / "chats.db", KEYS) as (browser, _):
        assert ask_page(browser) == "One two three."
