"""`AntiphonSession` under a runner of the OpenAI Agents SDK itself (`make integrations` installs it)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="make integrations installs the OpenAI Agents SDK")

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.memory import Session
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ModelOutputEntry, RollbackEntry, SqliteStore
from antiphon.integrations.openai_agents import AntiphonSession
from antiphon.providers.scripted import ScriptedModel
from antiphon.testing import assert_accepted, assert_sent

set_tracing_disabled(True)  # it would send what is said here to OpenAI


def _weather(city: str) -> str:
    """Current weather."""
    return f"rain in {city}"


weather = function_tool(_weather, name_override="weather")


class Script(Model):  # type: ignore[misc]  # not installed where types are checked
    """A model of the SDK that plays answers and records what it was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        self.sent.append(input)
        return ModelResponse(output=[self.answers.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def answer(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="msg_1", content=[content], role="assistant", status="completed", type="message")


CALL = ResponseFunctionToolCall(
    call_id="c1", name="weather", arguments='{"city": "Oslo"}', type="function_call", id="fc_1"
)


def test_a_session_survives_the_process_and_is_a_conversation(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    model = Script(CALL, answer("It rains."), answer("Sunny."))
    agent = Agent("guide", model=model, tools=[weather])

    async def first() -> list[Any]:
        session = AntiphonSession("user-7", path)
        assert isinstance(session, Session)
        result = await Runner.run(agent, "Is it raining in Oslo?", session=session)
        assert result.final_output == "It rains."
        items: list[Any] = await session.get_items()
        session.close()
        return items

    async def second(before: list[Any]) -> None:
        session = AntiphonSession("user-7", path)
        assert await session.get_items() == before
        assert await session.get_items(2) == before[-2:]
        await Runner.run(agent, "And tomorrow?", session=session)
        assert model.sent[-1][: len(before)] == before
        session.close()

    items = asyncio.run(first())
    assert [item.get("type") or item["role"] for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]
    asyncio.run(second(items))
    with SqliteStore(path) as store:
        (info,) = store.list()
        chat = Conversation(answerer := ScriptedModel("Bring a coat."), history=store.open(info.id))
        assert ToolLoop(chat).run_sync("What to wear?").text == "Bring a coat."
        assert_sent(answerer, "rain in Oslo", "It rains.", "Sunny.")
        assert_accepted(chat)


def test_pop_item_is_a_rollback() -> None:
    async def run() -> AntiphonSession:
        session = AntiphonSession("one")
        reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "abc"}
        items: list[Any] = [
            {"role": "user", "content": "Hi"},
            reasoning,
            CALL.model_dump(exclude_unset=True),
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ]
        await session.add_items(items)
        assert await session.get_items() == items
        assert sum(isinstance(entry, ModelOutputEntry) for entry in session.history.entries) == 1
        for item in reversed(items[1:]):
            assert await session.pop_item() == item
        assert await session.get_items() == items[:1]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        return session

    session = asyncio.run(run())
    assert sum(isinstance(entry, RollbackEntry) for entry in session.history.entries) == 4
    session.close()
