"""The tool loops of other frameworks, each with a scripted model in memory, made as its documentation shows.

Run by the interpreter of `.venv-loop-peers`: `python -m bench.library.loop_peers NAME ROUNDS` prints the CPU time at each call of
the model, as JSON. A framework that is missing or does not run ends with exit code 1 and its reason on standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

Timetimestamps = list[float]


def weather(city: str) -> str:
    """Current weather in a city."""
    return f"Rain in {city}, 7 degrees"


async def weather_async(city: str) -> str:
    """Current weather in a city."""
    return f"Rain in {city}, 7 degrees"


def pydantic_ai(rounds: int) -> Timetimestamps:
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    timestamps: Timetimestamps = []

    def model(messages: Any, info: Any) -> ModelResponse:
        timestamps.append(time.process_time())
        if len(timestamps) > rounds:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("weather_async", {"city": f"Town {len(timestamps)}"})])

    agent = Agent(FunctionModel(model), tools=[weather_async])
    assert asyncio.run(agent.run("Rain?", usage_limits=UsageLimits(request_limit=None))).output == "done"
    return timestamps


def openai_agents(rounds: int) -> Timetimestamps:
    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    timestamps: Timetimestamps = []

    class Scripted(Model):
        async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
            timestamps.append(time.process_time())
            number = len(timestamps)
            if number > rounds:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                item: Any = ResponseOutputMessage(
                    id="m", role="assistant", status="completed", type="message", content=[text]
                )
            else:
                item = ResponseFunctionToolCall(
                    call_id=f"call_{number}",
                    name="weather_async",
                    arguments=json.dumps({"city": f"Town {number}"}),
                    type="function_call",
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="a", model=Scripted(), tools=[function_tool(weather_async)])
    assert asyncio.run(Runner.run(agent, "Rain?", max_turns=rounds + 5)).final_output == "done"
    return timestamps


def langgraph(rounds: int) -> Timetimestamps:
    import warnings

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.prebuilt import create_react_agent

    timestamps: Timetimestamps = []

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            timestamps.append(time.process_time())
            number = len(timestamps)
            calls = [{"name": "weather_async", "args": {"city": f"Town {number}"}, "id": f"call_{number}"}]
            message = AIMessage("done") if number > rounds else AIMessage("", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, *_: Any, **__: Any) -> ChatResult:
            return self._generate()

    warnings.simplefilter("ignore")
    graph = create_react_agent(Scripted(), [tool(weather_async)])
    state = asyncio.run(graph.ainvoke({"messages": [("user", "Rain?")]}, {"recursion_limit": rounds * 3 + 10}))
    assert state["messages"][-1].content == "done"
    return timestamps


def llm(rounds: int) -> Timetimestamps:
    import llm as package

    timestamps: Timetimestamps = []

    class Scripted(package.Model):
        model_id = "scripted"
        supports_tools = True
        can_stream = False

        def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
            timestamps.append(time.process_time())
            number = len(timestamps)
            if number > rounds:
                yield "done"
                return
            response.add_tool_call(
                package.ToolCall(name="weather", arguments={"city": f"Town {number}"}, tool_call_id=f"call_{number}")
            )
            yield ""

    conversation = Scripted().conversation(tools=[weather])
    assert conversation.chain("Rain?", chain_limit=rounds + 5).text() == "done"
    return timestamps


def llm_async(rounds: int) -> Timetimestamps:
    import llm as package

    timestamps: Timetimestamps = []

    class Scripted(package.AsyncModel):
        model_id = "scripted"
        supports_tools = True
        can_stream = False

        async def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
            timestamps.append(time.process_time())
            number = len(timestamps)
            if number > rounds:
                yield "done"
                return
            response.add_tool_call(
                package.ToolCall(
                    name="weather_async", arguments={"city": f"Town {number}"}, tool_call_id=f"call_{number}"
                )
            )
            yield ""

    async def talk() -> None:
        conversation = Scripted().conversation(tools=[weather_async])
        assert await conversation.chain("Rain?", chain_limit=rounds + 5).text() == "done"

    asyncio.run(talk())
    return timestamps


def agno(rounds: int) -> Timetimestamps:
    from dataclasses import dataclass

    from agno.agent import Agent
    from agno.models.base import Model
    from agno.models.response import ModelResponse

    timestamps: Timetimestamps = []

    @dataclass
    class Scripted(Model):
        id: str = "scripted"

        def invoke(self, *_: Any, **__: Any) -> ModelResponse:
            timestamps.append(time.process_time())
            number = len(timestamps)
            if number > rounds:
                return ModelResponse(role="assistant", content="done")
            function = {"name": "weather", "arguments": json.dumps({"city": f"Town {number}"})}
            return ModelResponse(
                role="assistant", tool_calls=[{"id": f"call_{number}", "type": "function", "function": function}]
            )

        async def ainvoke(self, *_: Any, **__: Any) -> ModelResponse:
            return self.invoke()

        def invoke_stream(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        def ainvoke_stream(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
            return ModelResponse()

        def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
            return ModelResponse()

    assert Agent(model=Scripted(), tools=[weather], telemetry=False).run("Rain?").content == "done"
    return timestamps


PEERS: dict[str, Callable[[int], Timetimestamps]] = {
    "pydantic-ai": pydantic_ai,
    "openai-agents": openai_agents,
    "langgraph": langgraph,
    "llm": llm,
    "llm-async": llm_async,
    "agno": agno,
}

if __name__ == "__main__":
    try:
        rounds = int(sys.argv[2])
        # Ours is measured in a process that has played before; so is everybody, where that does not take minutes.
        played = [PEERS[sys.argv[1]](rounds) for _ in range(3 if rounds <= 50 else 1)]
        print(json.dumps(min(played, key=lambda timestamps: timestamps[-1] - timestamps[0])))
    except Exception as error:  # shown in the report: a peer is never left out in silence
        print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr)
        sys.exit(1)
