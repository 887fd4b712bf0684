"""`cache_prompt`: clients of other APIs use Claude's prompt cache, and bodies in Claude's own format are not changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon.parts import TokenUsage
from antiphon.prices import cost_of
from antiphon_devtools.cache_doctor import CacheDoctor, outline_prompt
from antiphon_gateway.config.settings import Config, LedgerSettings, ModelSettings
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.spend import spend
from cache_doctor.bodies import RULES
from gateway.rig import ENVIRONMENT, FAST, Client, Rig, provider_of, rig, serving
from gateway.strict_upstream import StrictUpstream, echo

MODEL = "claude-sonnet-4-5"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
USAGE = TokenUsage(prompt_tokens=4_000, completion_tokens=20, cached_tokens=3_000, cache_write_tokens=900)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with StrictUpstream("anthropic", [ENVIRONMENT["KEY_ANTHROPIC"]]) as upstream:
        providers = [
            provider_of("claude", upstream),
            provider_of("hour", upstream, cache_prompt="1h"),
            provider_of("off", upstream, cache_prompt=False),
        ]
        models = [
            ModelSettings(name="auto", targets=(f"claude/{MODEL}",)),
            ModelSettings(name="hour", targets=(f"hour/{MODEL}",)),
            ModelSettings(name="off", targets=(f"off/{MODEL}",)),
            ModelSettings(name="route-off", targets=(f"claude/{MODEL}",), cache_prompt=False),
            ModelSettings(name="route-on*", targets=(f"off/{MODEL}",), cache_prompt=True),
        ]
        config = Config(
            gateway=FAST,
            providers=tuple(providers),
            models=tuple(models),
        )
        with serving(config, ENVIRONMENT) as ports:
            yield Rig({"anthropic": upstream}, ports)


@pytest.fixture
def client(gateway: Rig) -> Iterator[Client]:
    gateway.clear()
    with gateway.client() as one:
        yield one


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": RULES}, *messages], **fields}


def sent(gateway: Rig, client: Client, model: str, body: dict[str, Any], client_format: str = "openai-chat") -> Any:
    """What Claude is sent for a request."""
    got = client.ask(client_format, model, body, streams=False)
    assert got.status == 200, got.body
    assert "x-antiphon-losses" not in got.headers
    return gateway.upstreams["anthropic"].bodies[-1]


def lifetimes(body: Any) -> list[str]:
    """The lifetimes of the breakpoints in the messages of a body."""
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [block["cache_control"].get("ttl", "5m") for block in blocks if "cache_control" in block]


@pytest.mark.parametrize(
    ("model", "expected"),
    [("auto", ["5m", "5m"]), ("hour", ["1h", "1h"]), ("off", []), ("route-off", []), ("route-on-1", ["5m", "5m"])],
)
def test_a_translated_conversation_is_cached_as_configured(
    gateway: Rig, client: Client, model: str, expected: list[str]
) -> None:
    body = sent(gateway, client, model, chat("Rain?", "Yes.", "Sure?", tools=[TOOL]))
    assert lifetimes(body) == expected
    assert ("cache_control" in str(body["tools"])) is ("cache_control" in str(body["system"])) is bool(expected)


@pytest.mark.parametrize(("model", "is_cached"), [("auto", False), ("hour", True), ("route-on", True)])
def test_a_single_question_is_cached_only_where_that_is_set(
    gateway: Rig, client: Client, model: str, is_cached: bool
) -> None:
    assert bool(lifetimes(sent(gateway, client, model, chat("Rain?")))) is is_cached


def test_every_request_of_an_openai_client_reads_the_one_before(gateway: Rig, client: Client) -> None:
    doctor = CacheDoctor(is_one_conversation=True)
    messages: list[Any] = [{"role": "system", "content": RULES}, {"role": "user", "content": "Is it raining?"}]
    before, verdicts = None, []
    for turn in range(12):
        outline = outline_prompt(sent(gateway, client, "auto", {"messages": messages, "tools": [TOOL]}), "anthropic")
        report = doctor.examine(outline, at=float(turn))
        verdicts.append(report.verdict)
        assert before is None or report.predicted_tokens == before.tokens
        before = outline
        calls = [
            {"id": f"call_{turn}_{n}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            for n in range(turn)
        ]
        answer = {"role": "assistant", "content": f"Answer {turn}.", **({"tool_calls": calls} if calls else {})}
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in calls]
        messages += [answer, *results, *([] if results else [{"role": "user", "content": "And now?"}])]
    assert verdicts == ["first", *["hit"] * 11]


def test_breakpoints_of_a_chat_client_stay_as_they_are(gateway: Rig, client: Client) -> None:
    marked = {"type": "text", "text": "Rain?", "cache_control": {"type": "ephemeral"}}
    body = {"messages": [{"role": "user", "content": [marked]}], "tools": [TOOL]}
    assert str(sent(gateway, client, "hour", body)).count("cache_control") == 1


@pytest.mark.parametrize("model", ["auto", "hour", "route-on"])
def test_a_body_in_claudes_own_format_is_not_changed(gateway: Rig, client: Client, model: str) -> None:
    tool = {"name": "weather", "input_schema": {"type": "object"}}
    texts = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(("a", "b", "c"))]
    body = {"max_tokens": 9, "system": RULES, "tools": [tool], "messages": texts}
    assert sent(gateway, client, model, body, "anthropic") == {**body, "model": MODEL, "stream": False}
    orphan = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]}
    repaired = client.ask("anthropic", model, {**body, "messages": [orphan]}, streams=False)
    assert repaired.status == 200
    assert repaired.headers["x-antiphon-repairs"]
    assert "cache_control" not in str(gateway.upstreams["anthropic"].bodies[-1])


def test_a_host_without_a_prompt_cache_is_asked_again(gateway: Rig, client: Client) -> None:
    upstream = gateway.upstreams["anthropic"]
    refusal = "messages.0.content.0.text.cache_control: Extra inputs are not permitted"
    upstream.faults.append(upstream.error(400, "invalid_request", refusal))
    assert client.ask("openai-chat", "auto", chat("Rain?", "Yes.", "Sure?"), streams=False).status == 200
    assert [bool(lifetimes(body)) for body in upstream.bodies] == [True, False]


@pytest.mark.parametrize("streams", [False, True])
def test_tokens_read_and_written_are_recorded_and_priced(tmp_path: Path, streams: bool) -> None:
    ledger = tmp_path / "ledger.db"
    with rig(ledger=LedgerSettings(address=str(ledger))) as gateway, gateway.client() as client:
        gateway.upstreams["anthropic"].answer = lambda request: structs.replace(echo(request), usage=USAGE)
        body = chat("Rain?", "Yes.", "Sure?", **({"stream_options": {"include_usage": True}} if streams else {}))
        got = client.ask("openai-chat", "to-anthropic", body, streams=streams)
        assert b'"cached_tokens":3000' in got.body
        assert lifetimes(gateway.upstreams["anthropic"].bodies[0]) == ["5m", "5m"]
    database = open_operator_database(str(ledger), create=False, read_only=True)
    try:
        (row,) = spend(database, ("model",))
    finally:
        database.close()
    assert (row.usage.prompt_tokens, row.usage.cached_tokens, row.usage.cache_write_tokens) == (4_000, 3_000, 900)
    priced = cost_of(USAGE, MODEL, "anthropic")
    assert priced is not None
    assert row.cost == priced.total
    assert priced.by_kind.keys() >= {"cache_read", "cache_write"}
