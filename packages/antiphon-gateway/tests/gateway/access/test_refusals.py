"""Limits and refused keys over HTTP: in the shape of every client format, and as the exceptions of the official SDKs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from antiphon.parts import Text
from antiphon.wire import FORMATS
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.accounts import LimitReached, dollars
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.routes import ROUTES
from gateway.rig import Got, Rig, rig
from gateway.strict_upstream import text_answer

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
LIMITS: dict[str, dict[str, Any]] = {
    "requests_per_minute": {"requests_per_minute": 1},
    "tokens_per_minute": {"tokens_per_minute": 1},
    "tokens_per_day": {"tokens_per_day": 1},
    "tokens_per_month": {"tokens_per_month": 1},
    "budget_per_day": {"budget_per_day": 1e-9},
    "budget_per_month": {"budget_per_month": 1e-9},
}
MONEY_STATUS = {
    "openai-chat": (429, "insufficient_quota"),
    "openai-responses": (429, "insufficient_quota"),
    "anthropic": (402, "billing_error"),
    "gemini": (429, "RESOURCE_EXHAUSTED"),
    "gemini-interactions": (429, "resource_exhausted"),
}


def secret(limit: str, name: str) -> str:
    return f"sk-{limit}-{name}"


KEYS = [
    ClientKeySettings(name=f"{limit} {name}", key=hash_key(secret(limit, name)), **rules)
    for limit, rules in LIMITS.items()
    for name in (*FORMATS, "sdk", "ollama")
]
KEYS += [
    ClientKeySettings(name="expired", key=hash_key("sk-expired"), expires=datetime.now(UTC) - timedelta(days=1)),
    ClientKeySettings(name="current", key=hash_key("sk-current"), expires=datetime.now(UTC) + timedelta(days=1)),
    ClientKeySettings(name="budget", key=hash_key("sk-budget"), budget_per_day=1.0),
    ClientKeySettings(name="narrow", key=hash_key("sk-narrow"), models=("to-gemini", "other-*")),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    ledger = LedgerSettings(address=str(tmp_path_factory.mktemp("ledger") / "ledger.db"))
    with rig(keys=KEYS, models={"unpriced": ["openai-chat/made-up-model"]}, ledger=ledger) as running:
        yield running


def code_of(name: str, got: Got) -> str:
    error = got.json["error"]
    return str(error["status"] if name == "gemini" else error["type"] if name == "anthropic" else error["code"])


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_limit_that_is_used_up_is_refused_in_the_clients_own_shape(gateway: Rig, name: str, limit: str) -> None:
    with gateway.client(secret(limit, name)) as client:
        assert client.ask(name, f"to-{name}", QUESTION, streams=False).status == 200
        got = client.ask(name, f"to-{name}", QUESTION, streams=True)
        is_money = limit.startswith("budget")
        expected = MONEY_STATUS[name] if is_money else (429, None)
        assert (got.status, code_of(name, got) if is_money else None) == expected
        error = got.error(name)
        assert error.kind == ("billing" if is_money and not name.startswith("gemini") else "rate_limit")
        assert f"({limit})" in error.message
        assert "retry in" in error.message
        assert got.headers["x-antiphon-limit"] == limit
        reset = datetime.fromisoformat(got.headers["x-antiphon-limit-reset"])
        wait = (reset - datetime.now(UTC)).total_seconds()
        assert abs(wait - int(got.headers["retry-after"])) < 5
        now = datetime.now(UTC)
        if limit.endswith("_day"):
            assert reset.date() == (now + timedelta(days=1)).date()
        if limit.endswith("_month"):
            assert (reset.day, reset.hour) == (1, 0)
        if name == "anthropic" and not is_money:
            kind = "requests" if limit.startswith("requests") else "tokens"
            assert got.headers[f"anthropic-ratelimit-{kind}-remaining"] == "0"
            assert got.headers[f"anthropic-ratelimit-{kind}-reset"] == got.headers["x-antiphon-limit-reset"]
        if name == "openai-chat" and not is_money:
            kind = "requests" if limit.startswith("requests") else "tokens"
            assert got.headers[f"x-ratelimit-limit-{kind}"] == "1"
        if name == "gemini":
            assert got.json["error"]["details"][0]["retryDelay"] == f"{got.headers['retry-after']}s"
        if "minute" not in limit:
            assert client.get("/v1/models").status == 200  # reading costs nothing


def test_ollama_clients_get_402_for_money_and_429_otherwise(gateway: Rig) -> None:
    body = {"model": "to-openai-chat", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    for limit, status in {"budget_per_day": 402, "tokens_per_day": 429}.items():
        with gateway.client(secret(limit, "ollama")) as client:
            assert client.post("/api/chat", body).status == 200
            got = client.post("/api/chat", body)
            assert got.status == status
            assert limit in got.json["error"]


@pytest.mark.parametrize("limit", LIMITS)
def test_the_official_sdks_raise_their_rate_limit_error_and_do_not_retry_for_hours(gateway: Rig, limit: str) -> None:
    key = secret(limit, "sdk")
    retries = 0 if "minute" in limit else 2
    asked: list[Any] = [{"role": "user", "content": "hi"}]
    with (
        openai.OpenAI(api_key=key, base_url=f"{gateway.url}/v1", max_retries=retries) as chat,
        anthropic.Anthropic(api_key=key, base_url=gateway.url, max_retries=retries) as messages,
    ):
        chat.chat.completions.create(model="to-openai-chat", messages=asked)
        seen = sum(len(upstream.received) for upstream in gateway.upstreams.values())
        with pytest.raises(openai.RateLimitError) as refused:
            chat.chat.completions.create(model="to-openai-chat", messages=asked)
        assert limit in str(refused.value)
        with pytest.raises(anthropic.APIStatusError) as other:
            messages.messages.create(model="to-anthropic", max_tokens=100, messages=asked)
    is_money = limit.startswith("budget")
    assert isinstance(other.value, anthropic.RateLimitError) is not is_money
    assert other.value.status_code == (402 if is_money else 429)
    assert sum(len(upstream.received) for upstream in gateway.upstreams.values()) == seen


@pytest.mark.parametrize("limit", ["tokens_per_day", "budget_per_day"])
def test_the_google_sdk_sees_429(gateway: Rig, limit: str) -> None:
    genai = pytest.importorskip("google.genai")
    from google.genai import errors

    with genai.Client(api_key=secret(limit, "gemini"), http_options={"base_url": gateway.url}) as client:
        for _ in range(2):  # whether or not the key was used by another test
            with_error = None
            try:
                client.models.generate_content(model="to-gemini", contents="hi")
            except errors.ClientError as error:
                with_error = error
    assert with_error is not None
    assert (with_error.code, with_error.status) == (429, "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_and_expired_keys_are_401_in_the_clients_own_shape(gateway: Rig, name: str) -> None:
    for key, reason in {
        "": "missing or invalid",
        "sk-wrong": "missing or invalid",
        "sk-expired": "expired at 2",
    }.items():
        with gateway.client(key) as client:
            got = client.ask(name, f"to-{name}", QUESTION, streams=False)
            assert got.status == 401
            error = got.error(name)
            assert error.kind == "authentication"
            assert reason in error.message
    with gateway.client("sk-current") as client:
        assert client.ask(name, f"to-{name}", QUESTION, streams=False).status == 200


HI = [{"role": "user", "content": "hi"}]
CONTENTS = [{"parts": [{"text": "hi"}]}]
NAMING_ROUTES: dict[str, dict[str, Any] | None] = {
    "/v1/chat/completions": {"model": "", "messages": HI},
    "/v1/completions": {"model": "", "prompt": "hi"},
    "/openai/deployments/{}/chat/completions": {"messages": HI},
    "/v1/responses": {"model": "", "input": "hi"},
    "/v1/responses?background": {"model": "", "input": "hi", "background": True},
    "/v1/responses/compact": {"model": "", "input": "hi"},
    "/v1/responses/input_tokens": {"model": "", "input": "hi"},
    "/v1/embeddings": {"model": "", "input": "hi"},
    "/v1/messages": {"model": "", "max_tokens": 9, "messages": HI},
    "/v1/messages/count_tokens": {"model": "", "messages": HI},
    "/v1beta/models/{}:generateContent": {"contents": CONTENTS},
    "/v1beta/models/{}:streamGenerateContent": {"contents": CONTENTS},
    "/v1beta/models/{}:countTokens": {"contents": CONTENTS},
    "/v1beta/models/{}:embedContent": {"content": CONTENTS[0]},
    "/v1beta/models/{}:batchEmbedContents": {"requests": [{"content": CONTENTS[0]}]},
    "/v1beta/interactions": {"model": "", "input": "hi"},
    "/api/chat": {"model": "", "messages": HI},
    "/api/generate": {"model": "", "prompt": "hi"},
    "/api/embed": {"model": "", "input": "hi"},
    "/api/embeddings": {"model": "", "prompt": "hi"},
    "/api/show": {"model": ""},
    "/v1/models/{}": None,
    "/v1beta/models/{}": None,
}
"""Every route that takes the name of a model, with a body if it is POST."""


def test_every_route_that_takes_the_name_of_a_model_is_known() -> None:
    actions = {"generate", "embed", "count", "compact", "get_model", "show"}
    paths = {re.sub(r"\{\w+\}", "{}", route.path) for route in ROUTES if route.endpoint.action in actions}
    assert paths <= NAMING_ROUTES.keys()


def ask_for(gateway: Rig, route: str, model: str) -> Got:
    body, path = NAMING_ROUTES[route], route.format(model)
    with gateway.client("sk-narrow") as client:
        return (
            client.get(path)
            if body is None
            else client.post(path, {**body, **({"model": model} if "model" in body else {})})
        )


@pytest.mark.parametrize("route", NAMING_ROUTES)
def test_a_model_that_a_key_may_not_use_is_refused_alike_on_every_route(gateway: Rig, route: str) -> None:
    """And alike whether there is one of that name. What the key may use and is not there is not found."""
    for model in ("to-anthropic", "no-such-model"):
        got = ask_for(gateway, route, model)
        assert got.status == 403, got
        assert f"this key may not use model '{model}'; allowed: to-gemini, other-*" in got.body.decode()
    got = ask_for(gateway, route, "other-model")
    assert got.status == 404, got
    assert "There are: to-gemini." in got.body.decode()


def test_the_official_sdks_raise_their_permission_error_for_another_model(gateway: Rig) -> None:
    with (
        openai.OpenAI(api_key="sk-narrow", base_url=f"{gateway.url}/v1") as chat,
        anthropic.Anthropic(api_key="sk-narrow", base_url=gateway.url) as messages,
    ):
        assert [model.id for model in chat.models.list()] == ["to-gemini"]
        with pytest.raises(openai.PermissionDeniedError):
            chat.models.retrieve("to-anthropic")
        with pytest.raises(openai.PermissionDeniedError):
            chat.embeddings.create(model="to-anthropic", input="hi")
        with pytest.raises(anthropic.PermissionDeniedError):
            messages.models.retrieve("to-anthropic")
        with pytest.raises(anthropic.PermissionDeniedError):
            messages.messages.count_tokens(model="to-anthropic", messages=[{"role": "user", "content": "hi"}])


def test_a_model_without_a_price_is_refused_under_a_money_budget(gateway: Rig) -> None:
    with gateway.client("sk-budget") as client:
        got = client.ask("openai-chat", "unpriced", QUESTION, streams=False)
        assert got.status == 403
        assert "price of openai-chat/made-up-model is not known" in got.error("openai-chat").message
        passed = client.post("/v1/images/generations", {"model": "gpt-image-1", "prompt": "x"})
        assert passed.status == 403
        assert "what images requests use of it is not known" in passed.json["error"]["message"]
    with gateway.client("sk-current") as client:
        assert client.ask("openai-chat", "unpriced", QUESTION, streams=False).status == 200


def test_parallel_requests_exceed_a_limit_only_by_what_is_in_flight(tmp_path: Path) -> None:
    key = ClientKeySettings(name="a", key=hash_key("sk-a"), tokens_per_day=100)
    with rig(keys=[key], ledger=LedgerSettings(address=str(tmp_path / "ledger.db"))) as gateway:
        upstream = gateway.upstreams["openai-chat"]
        upstream.answer = lambda _: text_answer("word")
        statuses: list[int] = []

        def ask() -> None:
            with gateway.client("sk-a") as client:
                statuses.extend(
                    client.ask("openai-chat", "to-openai-chat", QUESTION, streams=False).status for _ in range(10)
                )

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        answered = statuses.count(200)
        tokens_of_one = 18
        needed = -(-100 // tokens_of_one)
        assert needed <= answered <= needed + 3  # at most one more for each of the others
        assert statuses.count(429) == 40 - answered
        assert len(upstream.received) == answered


def test_amounts_and_times_are_written_for_people() -> None:
    assert [dollars(amount) for amount in (0.0, 1.5, 1234.56, 0.000123)] == ["$0.00", "$1.50", "$1,234.56", "$0.000123"]
    message = LimitReached(limit="requests_per_minute", used=1.9, allowed=2, wait=0.2).message
    assert message.startswith("rate limit exceeded for this key: 2 of 2 requests per minute used (requests_per_minute)")
    assert "retry in 1 s" in message
