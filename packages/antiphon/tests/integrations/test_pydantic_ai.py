"""`repair_history` in an agent of pydantic-ai itself (`make integrations` installs it)."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pydantic_ai", reason="make integrations installs pydantic-ai")

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from antiphon.integrations.pydantic_ai import repair_history

CALL = ToolCallPart("weather", {"city": "Oslo"}, "c1")
OTHER = ToolCallPart("weather", {"city": "Bergen"}, "c2")


def kinds(messages: list[ModelMessage]) -> list[list[str]]:
    return [[part.part_kind for part in message.parts] for message in messages]


def test_a_legal_history_is_returned_as_the_same_list() -> None:
    legal: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Rain?")]),
        ModelResponse(parts=[TextPart("Let me look."), CALL]),
        ModelRequest(parts=[ToolReturnPart("weather", "rain", "c1"), UserPromptPart("And tomorrow?")]),
    ]
    assert repair_history(legal) is legal


def test_calls_get_results_and_every_word_stays() -> None:
    response = ModelResponse(parts=[CALL, OTHER])
    broken: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Rain?")]),
        response,
        ModelRequest(parts=[UserPromptPart("Wait."), ToolReturnPart("weather", "sun", "c2")]),
    ]
    fixed = repair_history(broken)
    assert kinds(fixed) == [["user-prompt"], ["tool-call"] * 2, ["tool-return", "tool-return", "user-prompt"]]
    assert fixed[0] is broken[0]
    assert fixed[1] is response
    missing, known, words = fixed[2].parts
    assert isinstance(missing, ToolReturnPart)
    assert (missing.tool_call_id, missing.outcome) == ("c1", "interrupted")
    assert known is broken[2].parts[1]
    assert words is broken[2].parts[0]
    lost = repair_history([ModelRequest(parts=[ToolReturnPart("weather", "lost words", "c9")])])
    assert "lost words" in str(lost[0].parts[0].content)


def test_calls_of_one_id_get_ids_of_their_own() -> None:
    fixed = repair_history(
        [
            ModelRequest(parts=[UserPromptPart("Rain?")]),
            ModelResponse(parts=[CALL, CALL]),
            ModelRequest(parts=[ToolReturnPart("weather", "rain", "c1")]),
        ]
    )
    assert [part.tool_call_id for part in fixed[1].parts if isinstance(part, ToolCallPart)] == ["c1", "c1_2"]
    assert [part.tool_call_id for part in fixed[2].parts if isinstance(part, ToolReturnPart)] == ["c1", "c1_2"]


def test_an_agent_uses_it_as_a_history_processor() -> None:
    seen: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.append(messages)
        return ModelResponse(parts=[TextPart("It rains.")])

    agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(repair_history)])
    cut: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Rain?")]),
        ModelResponse(parts=[CALL]),
        ModelRequest(parts=[UserPromptPart("Never mind.")]),
    ]
    assert asyncio.run(agent.run("And now?", message_history=cut)).output == "It rains."
    results = [part for message in seen[0] for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in results] == ["c1"]
