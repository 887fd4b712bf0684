"""`RepairMiddleware` in an agent of LangChain itself (`make integrations` installs it)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langchain", reason="make integrations installs LangChain")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import Field

from antiphon.integrations.langchain import RepairMiddleware


@tool
def weather(city: str) -> str:
    """Current weather."""
    return f"rain in {city}"


class Strict(GenericFakeChatModel):
    """Refuses what OpenAI refuses: a call whose result does not follow."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> Any:
        open_calls: set[str] = set()
        for message in messages:
            if isinstance(message, ToolMessage):
                open_calls.discard(message.tool_call_id)
                continue
            if open_calls:
                raise ValueError(f"400: calls without results: {open_calls}")
            open_calls = {str(one["id"]) for one in getattr(message, "tool_calls", ())}
        if open_calls:
            raise ValueError(f"400: calls without results: {open_calls}")
        self.seen.append(messages)
        return super()._generate(messages, *args, **more)


BROKEN: list[BaseMessage] = [
    HumanMessage("Is it raining?"),
    AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}]),
    HumanMessage("Never mind."),
]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_with_the_middleware_is_accepted(is_async: bool) -> None:
    with pytest.raises(ValueError, match="400"):
        create_agent(Strict(messages=iter([AIMessage("ok")])), [weather]).invoke({"messages": BROKEN})
    model = Strict(messages=iter([AIMessage("ok")]))
    middleware = RepairMiddleware()
    assert isinstance(middleware, AgentMiddleware)
    agent = create_agent(model, [weather], middleware=[middleware])
    state: Any = {"messages": BROKEN}
    result = asyncio.run(agent.ainvoke(state)) if is_async else agent.invoke(state)
    assert result["messages"][-1].text == "ok"
    assert [message.type for message in model.seen[-1]] == ["human", "ai", "tool", "human"]
    assert len(result["messages"]) == 4  # the state of the graph stays the caller's
