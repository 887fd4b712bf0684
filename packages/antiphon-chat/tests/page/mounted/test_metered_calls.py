"""Model calls of the chat page on a gateway: ledger rows, budgets and metrics like those of any client's request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon.parts import TokenUsage, ToolCallRequest
from antiphon.prices.table import PriceOverride
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import (
    ClientKeySettings,
    Config,
    GatewaySettings,
    LedgerSettings,
    ModelSettings,
    ProviderSettings,
)
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.spend import spend
from gateway.strict_upstream import ERROR_PAGE, StrictUpstream, hang, text_answer
from page.mounted.test_gateway_chat import gateway
from page.rig import Browser, SeenEvent

MODEL = "claude-sonnet-4-5"


class CountingUpstream:
    """Answers with other token counts each time and keeps its own count."""

    def __init__(self, upstream: StrictUpstream) -> None:
        self.upstream = upstream
        self.calls = 0
        self.prompt = self.completion = 0
        self.next: ModelOutput | None = None
        self._lock = threading.Lock()
        upstream.answer = self._answer

    def _answer(self, request: ModelRequest) -> ModelOutput:
        with self._lock:
            self.calls += 1
            prompt, completion = 100 + 7 * self.calls, 10 + 3 * self.calls
            self.prompt += prompt
            self.completion += completion
            given, self.next = self.next or text_answer("Well.", request.model), None
        usage = TokenUsage(prompt_tokens=prompt, completion_tokens=completion)
        return structs.replace(given, usage=usage)

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


@pytest.fixture
def upstream() -> Iterator[CountingUpstream]:
    with StrictUpstream("anthropic", ["sk-up"]) as strict:
        yield CountingUpstream(strict)


def config_for(upstream: CountingUpstream, folder: Path, **limits: Any) -> Config:
    provider = ProviderSettings(
        name="mine", preset="anthropic", base_url=upstream.upstream.base_url, keys=("env:UPSTREAM",), retries=0
    )
    return Config(
        gateway=GatewaySettings(port=0, format_port=0, log_level="error"),
        ledger=LedgerSettings(address=str(folder / "ledger.db")),
        providers=(provider,),
        models=(
            ModelSettings(name="clever", targets=(f"mine/{MODEL}",)),
            ModelSettings(name="unpriced", targets=("mine/claude-of-the-future",)),
        ),
        keys=(
            ClientKeySettings(name="ada", key=hash_key("sk-ada"), **limits),
            ClientKeySettings(name="root", key=hash_key("sk-root"), admin=True),
        ),
    )


def rows(folder: Path) -> list[tuple[Any, ...]]:
    database = open_operator_database(str(folder / "ledger.db"), create=False, read_only=True)
    try:
        columns = "key_name, client_format, operation, provider, model_asked, model_served, status, outcome, metering"
        tokens = "prompt_tokens, completion_tokens, request_id"
        return list(database.rows(f"SELECT {columns}, {tokens} FROM attempts ORDER BY request_id, attempt"))
    finally:
        database.close()


def failure(events: list[SeenEvent]) -> Any:
    return next(event.data for event in events if event.name == "LoopFinished")


def test_every_model_call_of_a_turn_has_a_ledger_row_and_the_sums_equal_the_count_of_the_upstream(
    tmp_path: Path, upstream: CountingUpstream
) -> None:
    with gateway(config_for(upstream, tmp_path), tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="clever")
        ada.ask(conversation, "hello")
        upstream.next = ModelOutput(
            parts=(ToolCallRequest(tool_call_id="c1", tool_name="list_plans", arguments="{}"),),
            stop_reason="tool_calls",
        )
        ada.ask(conversation, "look at the plans")  # two calls: the tool, then the answer
        ada.api("POST", f"/conversations/{conversation}/compact")
        upstream.upstream.faults.append(ERROR_PAGE)
        assert failure(ada.ask(conversation, "this one fails"))["reason"] != "answered"
        page = browser.request("GET", "/metrics", headers={"authorization": "Bearer sk-root"}).body.decode()
    assert upstream.calls == 4
    found = rows(tmp_path)
    answered = [row for row in found if row[7] == "ok"]
    assert [row[:7] for row in answered] == [("ada", "chat-page", "chat", "mine", "clever", MODEL, 200)] * 4
    assert {row[8] for row in answered} == {"reported"}
    (failed,) = [row for row in found if row not in answered]
    assert failed[8:11] == ("free", 0, 0)
    assert (sum(row[9] for row in found), sum(row[10] for row in found)) == (upstream.prompt, upstream.completion)
    assert len({row[11] for row in found}) == 5, "each call has its own id"
    assert f'kind="prompt",provider="mine",model="clever",key="ada"}} {upstream.prompt}' in page
    assert 'antiphon_overhead_seconds_count{client_format="chat-page"' not in page
    database = open_operator_database(str(tmp_path / "ledger.db"), create=False, read_only=True)
    (total,) = spend(database, ("key",))
    database.close()
    assert (total.calls, total.cost is not None) == (5, True)


def test_an_answer_that_is_stopped_has_a_row_with_an_estimate(tmp_path: Path, upstream: CountingUpstream) -> None:
    with gateway(config_for(upstream, tmp_path), tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="clever")
        upstream.next = text_answer("Word after word. " * 300)
        upstream.upstream.faults.append(hang(after=3_000))
        before = ada.show(conversation)["last_event"]
        ada.say(conversation, "hello")
        with ada.events(conversation, before) as events:
            next(event for event in events if event.name == "TextDelta")
        ada.api("POST", f"/conversations/{conversation}/interrupt")
    (row,) = rows(tmp_path)
    assert row[6:9] == (200, "disconnected", "estimated")
    assert row[9] > 0


def test_a_turn_over_budget_is_refused_with_the_limit_and_its_reset(tmp_path: Path, upstream: CountingUpstream) -> None:
    config = config_for(upstream, tmp_path, tokens_per_day=300)
    with gateway(config, tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="clever")
        while upstream.tokens < 300:
            ada.ask(conversation, "hello")
        asked = upstream.calls
        turn = {"content": [{"type": "text", "text": "more"}]}
        for path, body in (("turns", turn), ("resume", {}), ("compact", {})):
            got = browser.request(
                "POST", f"/chat/api/conversations/{conversation}/{path}", body, {"authorization": "Bearer sk-ada"}
            )
            assert (got.status, got.headers["x-antiphon-limit"]) == (429, "tokens_per_day"), path
            message = got.json["error"]["message"]
            assert f"{upstream.tokens} of 300 tokens used today (tokens_per_day); retry in" in message
            assert int(got.headers["retry-after"]) > 0
        # the limit is one for the page and for other requests
        chat = {"model": "clever", "messages": [{"role": "user", "content": "hi"}]}
        refused = browser.request("POST", "/v1/chat/completions", chat, {"authorization": "Bearer sk-ada"})
        assert (refused.status, refused.headers["x-antiphon-limit"]) == (429, "tokens_per_day")
    assert upstream.calls == asked
    assert sum(row[9] + row[10] for row in rows(tmp_path)) == upstream.tokens


def test_a_money_budget_reached_within_a_turn_ends_it_with_the_reason(
    tmp_path: Path, upstream: CountingUpstream
) -> None:
    config = config_for(upstream, tmp_path, budget_per_day=0.0001)
    with gateway(config, tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="clever")
        upstream.next = ModelOutput(
            parts=(ToolCallRequest(tool_call_id="c1", tool_name="list_plans", arguments="{}"),),
            stop_reason="tool_calls",
        )
        ada.ask(conversation, "look at the plans")
        assert upstream.calls == 1, "the second call of the turn is refused"
        shown = ada.show(conversation)["failure"]
        assert shown["kind"] == "billing"
        assert "budget exceeded for this key: $0." in shown["message"]
        assert "spent today (budget_per_day); retry in" in shown["message"]
        turn = {"content": [{"type": "text", "text": "more"}]}
        refusal = ada.api("POST", f"/conversations/{conversation}/turns", turn, status=402)["error"]
        assert (refusal["code"], "budget_per_day" in refusal["message"]) == ("billing", True)
    assert len(rows(tmp_path)) == 1


def test_a_money_budget_refuses_a_model_without_a_known_price(tmp_path: Path, upstream: CountingUpstream) -> None:
    config = config_for(upstream, tmp_path, budget_per_month=50.0)
    with gateway(config, tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="unpriced")
        turn = {"content": [{"type": "text", "text": "hello"}]}
        refusal = ada.api("POST", f"/conversations/{conversation}/turns", turn, status=403)["error"]
        assert refusal["code"] == "price_unknown"
        assert "mine/claude-of-the-future is not known; add it under [[prices]]" in refusal["message"]
    assert upstream.calls == 0


def test_the_page_shows_the_prices_of_the_configuration_that_the_ledger_charges(
    tmp_path: Path, upstream: CountingUpstream
) -> None:
    price = PriceOverride(model="claude-of-the-*", provider="mine", input=1000, output=2000)
    config = structs.replace(config_for(upstream, tmp_path), prices=(price,))
    with gateway(config, tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="unpriced")
        events = ada.ask(conversation, "hello")
        shown = ada.show(conversation)
    database = open_operator_database(str(tmp_path / "ledger.db"), create=False, read_only=True)
    (charged,) = spend(database, ("key",))
    database.close()
    expected = Decimal(upstream.prompt * 1000 + upstream.completion * 2000) / 1_000_000
    streamed = [event.data["entry"]["cost"] for event in events if "cost" in event.data.get("entry", {})]
    assert Decimal(str(charged.cost)) == expected
    assert [Decimal(cost) for cost in streamed] == [expected]
    assert Decimal(shown["spending"]["cost"]) == expected
    assert Decimal(shown["entries"][-1]["cost"]) == expected


def test_tool_calls_of_the_page_are_in_the_metrics(tmp_path: Path, upstream: CountingUpstream) -> None:
    with gateway(config_for(upstream, tmp_path), tmp_path / "chats.db", {"UPSTREAM": "sk-up"}) as (browser, _):
        ada = Browser(browser.port, "sk-ada")
        conversation = ada.create(model="clever")
        calls = [("c1", "list_plans", "{}"), ("c2", "get_plan", '{"plan_id": "plan-9"}'), ("c3", "invented", "{}")]
        upstream.next = ModelOutput(
            parts=tuple(ToolCallRequest(name, call_id, arguments) for call_id, name, arguments in calls),
            stop_reason="tool_calls",
        )
        ada.ask(conversation, "look at the plans")
        page = browser.request("GET", "/metrics", headers={"authorization": "Bearer sk-root"}).body.decode()
    assert 'antiphon_tool_calls_total{tool="list_plans",outcome="success"} 1' in page
    assert 'antiphon_tool_calls_total{tool="get_plan",outcome="failed"} 1' in page
    assert 'antiphon_tool_calls_total{tool="other",outcome="failed"} 1' in page
    assert 'antiphon_tool_seconds_count{tool="list_plans"} 1' in page
    assert "invented" not in page
