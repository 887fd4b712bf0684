"""A provider that compacts a conversation itself: asked for it, read into the log, sent back to it, and readable elsewhere."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import antiphon as ap
from antiphon.context.model_usage import model_calls_of
from antiphon.history import CompactionEntry
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.router import ProviderRouter
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from gateway.strict_upstream import StrictUpstream

BLOCKS = {
    "anthropic": {"type": "compaction", "content": "They asked for depot 17, whose code is A-4711."},
    "openai-responses": {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FBQUFB"},
}
MODELS = {"anthropic": "claude-opus-4-6", "openai-responses": "gpt-5.2"}


@ap.tool(effect="read")
def look(number: int) -> str:
    """Look at a depot."""
    return f"Depot {number} has the code A-{4694 + number}."


@pytest.fixture(params=sorted(BLOCKS))
def upstream(request: pytest.FixtureRequest) -> Iterator[StrictUpstream]:
    with StrictUpstream(request.param, ["sk-test"]) as one:
        yield one


def client_of(upstream: StrictUpstream) -> HttpProviderClient:
    preset = "openai" if upstream.format == "openai-chat" else upstream.format
    return HttpProviderClient(preset, base_url=upstream.base_url, keys=["sk-test"])


def compacting(upstream: StrictUpstream, in_round: int) -> Any:
    """Four rounds of calls and an answer; the provider compacts in one of the rounds."""
    rounds = itertools.count()

    def answer(request: ModelRequest) -> ModelOutput:
        number = next(rounds)
        usage = ap.TokenUsage(prompt_tokens=100, completion_tokens=9)
        parts: list[Any] = [ap.Native(upstream.format, BLOCKS[upstream.format])] if number == in_round else []
        if number == 4:
            parts.append(ap.Text("All seen."))
        else:
            parts += [ap.Text("I look."), ap.ToolCallRequest("look", f"call_{number}", f'{{"number":{number}}}')]
        return ModelOutput(
            parts=tuple(parts),
            stop_reason="end" if number == 4 else "tool_calls",
            id=f"msg_{number}",
            model="m",
            usage=usage,
        )

    return answer


def start(upstream: StrictUpstream, **options: Any) -> ap.Conversation:
    upstream.answer = compacting(upstream, in_round=2)
    settings: dict[str, Any] = {"token_limit": 60_000, "compaction": "native", **options}
    chat = ap.Conversation(
        MODELS[upstream.format], provider=client_of(upstream), tools=[look], system="Be thorough.", **settings
    )
    assert ap.ToolLoop(chat, max_rounds=9).run_sync("Visit all depots.").text == "All seen."
    assert upstream.refused == []
    return chat


def messages_of(body: dict[str, Any]) -> list[Any]:
    found: list[Any] = body.get("messages") or body["input"]
    return found


def test_it_is_asked_for_recorded_and_sent_back(upstream: StrictUpstream) -> None:
    chat = start(upstream)
    for body, received in zip(upstream.bodies, upstream.received, strict=True):
        if upstream.format == "anthropic":
            trigger = {"type": "input_tokens", "value": 60_000}
            assert body["context_management"] == {"edits": [{"type": "compact_20260112", "trigger": trigger}]}
            assert received.headers["anthropic-beta"] == "compact-2026-01-12"
        else:
            assert body["context_management"] == [{"type": "compaction", "compact_threshold": 60_000}]
    (entry,) = [entry for entry in chat.history.entries if isinstance(entry, CompactionEntry)]
    assert entry.native == ap.Native(upstream.format, BLOCKS[upstream.format])
    assert entry.summary == BLOCKS[upstream.format].get("content", "")
    before, after = upstream.bodies[2], upstream.bodies[3]
    block = {**BLOCKS[upstream.format]}
    first = messages_of(after)[0] if upstream.format == "anthropic" else None
    sent = first["content"][0] if first else next(item for item in messages_of(after) if "encrypted_content" in item)
    assert {name: sent[name] for name in ("type", *list(block)[-1:])} == {
        name: block[name] for name in ("type", *list(block)[-1:])
    }
    text = str(messages_of(after))
    assert text.count("'compaction'") == 1, "once"
    assert "I look" in text
    assert "code A-4694" not in text, "what the block replaces is not sent again"
    assert "Visit all depots" in text, "the message of the person stays"
    assert len(messages_of(after)) < len(messages_of(before))
    assert "code A-4696" in text, "what came after it is"


def test_another_model_gets_the_text_or_the_originals(upstream: StrictUpstream) -> None:
    chat = start(upstream)
    with StrictUpstream("openai-chat", ["sk-test"]) as other:
        router = ProviderRouter({"first": client_of(upstream), "second": client_of(other)})
        again = ap.Conversation("second/gpt-4o", provider=router, history=chat.history, tools=[look])
        again.history.append(ap.ModelInputEntry.of("What is the code of depot 0?"))
        asyncio.run(again.call_model())
        assert other.refused == []
        text = str(other.bodies[-1])
        if upstream.format == "anthropic":
            assert "whose code is A-4711" in text
            assert "code A-4694" not in text
        else:
            assert "code A-4694" in text
            assert "as the provider compacted" not in text
        assert again.tokens > 0
        asyncio.run(again.aclose())


def test_the_tokens_of_the_compaction_are_counted() -> None:
    """Anthropic lists them beside those of the answer; the Responses API does not report them."""

    def answer(request: ModelRequest) -> ModelOutput:
        raw = {
            "input_tokens": 1_000,
            "output_tokens": 50,
            "iterations": [
                {"type": "compaction", "input_tokens": 60_000, "output_tokens": 900},
                {"type": "message", "input_tokens": 1_000, "output_tokens": 50},
            ],
        }
        usage = ap.TokenUsage(1_000, 50, raw=raw, format="anthropic")
        parts = (ap.Native("anthropic", BLOCKS["anthropic"]), ap.Text("Done."))
        return ModelOutput(parts=parts, stop_reason="end", id="msg_1", model="m", usage=usage)

    with StrictUpstream("anthropic", ["sk-test"]) as upstream:
        upstream.answer = answer
        chat = ap.Conversation(
            "claude-opus-4-6", provider=client_of(upstream), token_limit=60_000, compaction="native", system="Be brief."
        )
        ap.ToolLoop(chat).run_sync("Go on.")
    entry = chat.history.entries[-1]
    assert [call.usage and call.usage.prompt_tokens for call in model_calls_of(entry)] == [60_000]
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (61_000, 950)
    assert chat.tokens < 2_000


@pytest.mark.parametrize(
    ("wire_format", "model", "limit"),
    [
        ("anthropic", "claude-sonnet-4-5", 60_000),
        ("anthropic", "claude-opus-4-6", 20_000),
        ("openai-chat", "gpt-5", 60_000),
    ],
)
def test_elsewhere_it_is_done_here(wire_format: str, model: str, limit: int) -> None:
    """A model without it, a limit that the API does not take, an API without it: never both for one request."""
    with StrictUpstream(wire_format, ["sk-test"]) as upstream:
        chat = ap.Conversation(model, provider=client_of(upstream), token_limit=limit, compaction="native")
        assert not chat.compacts_itself(None, limit)
        ap.ToolLoop(chat).run_sync("Hello.")
        assert "context_management" not in upstream.bodies[-1]
        chat.history.append(ap.ModelInputEntry.of("word " * limit))
        with pytest.raises(ap.AntiphonError, match="largest piece is entry"):
            asyncio.run(chat.call_model())


def test_a_later_compaction_here_takes_its_place(upstream: StrictUpstream) -> None:
    chat = start(upstream)
    upstream.answer = lambda _: ModelOutput(
        parts=(ap.Text("A summary of all."),), stop_reason="end", id="msg", model="m", usage=ap.TokenUsage(10, 5)
    )
    chat.history.append(ap.ModelInputEntry.of("And now?"))
    version = chat.history.version
    chat.history.compact("Nothing of it matters.", version - 1)
    asyncio.run(chat.call_model())
    assert upstream.refused == []
    assert "'compaction'" not in str(messages_of(upstream.bodies[-1]))
    chat.history.rollback(version)
    asyncio.run(chat.call_model())
    assert "'compaction'" in str(messages_of(upstream.bodies[-1])), "a rollback brings the block back"
