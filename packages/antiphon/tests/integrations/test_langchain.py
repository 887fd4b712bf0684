"""LangChain's tools and chat models work wherever ours do; its agents are sent no broken sequence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, InjectedToolArg, ToolException
from langchain_core.tools import tool as langchain_tool
from pydantic import Field

from antiphon.conversation import Conversation, TextDelta, ToolLoop
from antiphon.errors import InvalidTool
from antiphon.history import ModelOutputEntry, ToolCallResultsEntry
from antiphon.integrations.langchain import LangChainModel, LangChainTool, repair_messages
from antiphon.parts import Image, Text, ToolExecutionStatus
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.testing import assert_offered
from antiphon.tools import ToolExecutor, ToolRegistry


@langchain_tool
def weather(city: str, days: int = 1) -> str:
    """Current weather in a city."""
    return f"rain in {city} for {days}"


@langchain_tool(response_format="content_and_artifact")
async def picture(name: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """A picture."""
    blocks = [{"type": "text", "text": name}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
    return blocks, {"raw": 1}


@langchain_tool
def whoami(question: str, user: Annotated[str, InjectedToolArg]) -> str:
    """Who asks."""
    return f"{user}: {question}"


@langchain_tool
def broken(question: str) -> str:
    """Fails."""
    raise ToolException("no such thing")


class Whole(BaseChatModel):
    """A chat model of LangChain that cannot stream: it gives one whole message instead of chunks."""

    @property
    def _llm_type(self) -> str:
        return "whole"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = AIMessage("Rain.")
        if not isinstance(messages[-1], ToolMessage):
            answer = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def test_a_model_that_cannot_stream_may_call_tools() -> None:
    chat = Conversation(LangChainModel(Whole()), tools=[weather])
    assert ToolLoop(chat).run_sync("Is it raining?").text == "Rain."
    (call_made,) = next(entry for entry in chat.history.entries if isinstance(entry, ModelOutputEntry)).tool_calls
    assert call_made.arguments == '{"city":"Oslo"}'


class Recorded(BaseChatModel):
    """A chat model of LangChain that plays answers, in pieces, and records what it was sent."""

    answers: list[list[AIMessageChunk] | Exception]
    sent: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "recorded"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        self.bound.append({"tools": [one["function"]["name"] for one in tools], **more})
        return self

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        self.sent.append(messages)
        answer = self.answers[len(self.sent) - 1]
        if isinstance(answer, Exception):
            raise answer
        for chunk in answer:
            yield ChatGenerationChunk(message=chunk)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        whole = next(self._stream(messages)).message
        return ChatResult(generations=[ChatGeneration(message=AIMessage(whole.content))])


def run(tool: BaseTool, arguments: str, **options: Any) -> Any:
    registry = ToolRegistry([tool])
    request = call(tool.name)
    request = type(request)(tool.name, "c1", arguments)
    return asyncio.run(ToolExecutor(registry, **options).execute([request]))[0]


def test_a_tool_runs_with_its_schema_and_its_errors_are_worded() -> None:
    registry = ToolRegistry([weather])
    (definition,) = registry.definitions
    assert definition.name == "weather"
    assert definition.description == "Current weather in a city."
    assert definition.parameters is not None
    assert definition.parameters["required"] == ["city"]
    assert run(weather, '{"city": "Oslo"}').result_markdown == "rain in Oslo for 1"
    refused = run(weather, '{"town": "Oslo"}')
    assert refused.status is ToolExecutionStatus.FAILED
    assert "city: missing, and it is required (string)" in refused.result_markdown
    failed = run(broken, '{"question": "?"}')
    assert failed.status is ToolExecutionStatus.FAILED
    assert failed.result_markdown == "no such thing"


def test_a_tool_returns_blocks_and_takes_injected_arguments_from_the_state() -> None:
    assert run(picture, '{"name": "a"}').content == (Text("a"), Image("image/png", "aGk="))
    assert run(whoami, '{"question": "?"}', state={"user": "Ada"}).result_markdown == "Ada: ?"
    assert "user" not in (ToolRegistry([whoami]).definitions[0].parameters or {})["properties"]


def test_a_tool_has_the_settings_it_is_given() -> None:
    made = LangChainTool(weather, effect="read", timeout=5.0)
    assert (made.effect, made.timeout) == ("read", 5.0)
    with pytest.raises(InvalidTool, match="got object"):
        ToolRegistry([object()])  # type: ignore[list-item]


def test_a_turn_uses_a_langchain_tool() -> None:
    model = ScriptedModel(call("weather", city="Oslo"), "It rains.")
    chat = Conversation(model, tools=[weather])
    assert ToolLoop(chat).run_sync("Is it raining?").text == "It rains."
    assert_offered(model, "weather")
    results = next(entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry))
    assert results.results[0].result_markdown == "rain in Oslo for 1"


def chunk(text: Any = "", **fields: Any) -> AIMessageChunk:
    return AIMessageChunk(content=text, **fields)


def test_a_chat_model_streams_calls_and_is_billed() -> None:
    calls = [{"name": "weather", "args": '{"city": "Os', "id": "c1", "index": 0, "type": "tool_call_chunk"}]
    more = [{"name": None, "args": 'lo"}', "id": None, "index": 0, "type": "tool_call_chunk"}]
    usage: Any = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
    thinking = [{"type": "reasoning", "reasoning": "Hm.", "index": 0}]
    model = Recorded(
        answers=[
            [
                chunk(thinking),
                chunk("Let me "),
                chunk("look."),
                chunk(tool_call_chunks=calls),
                chunk(tool_call_chunks=more),
            ],
            [chunk("It "), chunk("rains."), chunk(usage_metadata=usage, response_metadata={"finish_reason": "stop"})],
        ]
    )
    chat = Conversation(model, tools=[weather], settings={"max_output_tokens": 50, "seed": 1})  # type: ignore[arg-type]

    async def stream() -> list[str]:
        return [event.text async for event in ToolLoop(chat).stream("Rain?") if isinstance(event, TextDelta)]

    texts = asyncio.run(stream())
    assert len(texts) >= 4
    assert "".join(texts) == "Let me look.It rains."
    outputs = [entry for entry in chat.history.entries if isinstance(entry, ModelOutputEntry)]
    assert [call.arguments for call in outputs[0].tool_calls] == ['{"city": "Oslo"}']
    assert outputs[0].stop_reason == "tool_calls"
    assert outputs[1].response_markdown == "It rains."
    assert outputs[1].origin is not None
    assert outputs[1].origin.provider == "langchain"
    assert chat.usage.total == 13
    assert model.bound[0]["tools"] == ["weather"]
    assert isinstance(model.sent[1][-1], ToolMessage)
    assert [loss.path for loss in chat.report.losses if loss.path.startswith("settings")] == ["settings.seed"]


def test_a_chat_model_that_fails_is_a_failed_call() -> None:
    class RateLimitError(Exception):
        status_code = 429

    client = LangChainModel(Recorded(answers=[RateLimitError("slow down")]))

    async def deltas() -> list[Any]:
        stream: AsyncIterator[Any] = client.call_model([], ProviderCallOptions())
        return [delta async for delta in stream]

    (failed,) = asyncio.run(deltas())
    assert (failed.error.kind, failed.error.status) == ("rate_limit", 429)
    assert failed.error.message == "RateLimitError: slow down"


def test_repair_keeps_what_is_legal_and_every_word() -> None:
    made = AIMessage(
        "", tool_calls=[{"name": "weather", "args": {}, "id": "c1"}, {"name": "weather", "args": {}, "id": "c2"}]
    )
    result = ToolMessage("rain", tool_call_id="c1")
    legal: list[BaseMessage] = [HumanMessage("Hi"), made, result, ToolMessage("sun", tool_call_id="c2")]
    assert repair_messages(legal) is legal
    interrupted: list[BaseMessage] = [HumanMessage("Hi"), made, HumanMessage("Wait!"), result]
    fixed = repair_messages(interrupted)
    assert [message.type for message in fixed] == ["human", "ai", "tool", "tool", "human"]
    assert fixed[1] is made
    assert fixed[2] is result
    assert isinstance(fixed[3], ToolMessage)
    assert (fixed[3].tool_call_id, fixed[3].status) == ("c2", "error")
    assert fixed[4].text == "Wait!"
    orphan = repair_messages([HumanMessage("Hi"), ToolMessage("lost", tool_call_id="c9")])
    assert [message.type for message in orphan] == ["human", "human"]
    assert "lost" in orphan[1].text


def test_repair_gives_calls_of_one_id_ids_of_their_own() -> None:
    twice = AIMessage(
        [{"type": "text", "text": "Both."}, {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}],
        tool_calls=[{"name": "weather", "args": {}, "id": "c1"}, {"name": "weather", "args": {}, "id": "c1"}],
    )
    fixed = repair_messages([HumanMessage("Hi"), twice, ToolMessage("rain", tool_call_id="c1")])
    made: Any = fixed[1]
    assert [one["id"] for one in made.tool_calls] == ["c1", "c1_2"]
    assert made.text == "Both."
    assert [message.tool_call_id for message in fixed if isinstance(message, ToolMessage)] == ["c1", "c1_2"]
