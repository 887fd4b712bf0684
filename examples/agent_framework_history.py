"""Microsoft Agent Framework over Antiphon: the framework runs the agent, Antiphon keeps the history and calls the models.

    pip install agent-framework-core antiphon
    python examples/agent_framework_history.py

`AntiphonHistory` is a `HistoryProvider`: what an agent reads and writes is a stored `AgentHistory`. `AntiphonChatClient` is a
chat client: requests go to any model that Antiphon knows. Here a scripted model answers, so that no key is needed.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    HistoryProvider,
    Message,
)

import antiphon as ap


def to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of the framework as messages of OpenAI Chat, which a history imports."""
    written: list[dict[str, Any]] = []
    for message in messages:
        calls = [part for part in message.contents if part.type == "function_call"]
        results = [part for part in message.contents if part.type == "function_result"]
        text = "".join(part.text or "" for part in message.contents if part.type == "text")
        if text or calls:
            body: dict[str, Any] = {"role": message.role, "content": text}
            if calls:
                body["tool_calls"] = [
                    {
                        "id": part.call_id,
                        "type": "function",
                        "function": {"name": part.name, "arguments": _json(part.arguments)},
                    }
                    for part in calls
                ]
            written.append(body)
        written += ({"role": "tool", "tool_call_id": part.call_id, "content": _text(part.result)} for part in results)
    return written


def from_openai(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The reverse."""
    read: list[Message] = []
    for message in messages:
        contents: list[Content] = [Content.from_text(message["content"])] if message.get("content") else []
        if message["role"] == "tool":
            contents = [Content.from_function_result(message["tool_call_id"], result=message["content"])]
        for call in message.get("tool_calls") or ():
            function = call["function"]
            contents.append(Content.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
        read.append(Message(message["role"], contents))
    return read


def _json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {})


def _text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


class AntiphonHistory(HistoryProvider):
    """The conversation of each session, in a store of Antiphon."""

    def __init__(self, store: ap.HistoryStore) -> None:
        super().__init__("antiphon")
        self._store = store
        self._ids: dict[str, str] = {}

    def history(self, session_id: str | None) -> ap.AgentHistory:
        """The history of a session."""
        name = session_id or ""
        if name not in self._ids:
            self._ids[name] = self._store.create(tags=[f"session:{name}"]).id
        return self._store.open(self._ids[name])

    async def get_messages(self, session_id: str | None, **_: Any) -> list[Message]:
        """What the agent reads: legal for every API, whatever was written."""
        return from_openai(self.history(session_id).to_messages())

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **_: Any) -> None:
        """What the agent wrote, as typed entries."""
        chat = ap.Conversation(history=self.history(session_id))
        for message in to_openai(messages):
            chat.add(message)


class AntiphonChatClient(FunctionInvocationLayer, BaseChatClient):
    """A chat client of the framework over any provider of Antiphon."""

    def __init__(self, model: str | ap.ProviderClient) -> None:
        super().__init__()
        self._model = model

    async def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, **_: Any) -> ChatResponse:
        if stream:
            raise NotImplementedError("this example answers whole responses only")
        history = ap.AgentHistory.from_messages(to_openai(messages))
        output = await ap.Conversation(self._model, history=history).call_model()
        contents: list[Content] = [Content.from_text(output.response_markdown)] if output.response_markdown else []
        contents += (
            Content.from_function_call(call.tool_call_id, call.tool_name, arguments=call.arguments)
            for call in output.tool_calls
        )
        return ChatResponse(messages=[Message("assistant", contents)])


def weather(city: str) -> str:
    """Current weather in a city."""
    return f"Rain in {city}, 7 °C"


async def main() -> None:
    model = ap.ScriptedModel(
        ap.ToolCallRequest("weather", "c1", '{"city": "Oslo"}'), "It rains in Oslo.", "Still raining."
    )
    with tempfile.TemporaryDirectory() as folder, ap.SqliteStore(Path(folder) / "chats.db") as store:
        kept = AntiphonHistory(store)
        agent = Agent(AntiphonChatClient(model), "Be brief.", tools=[weather], context_providers=[kept])
        session = agent.create_session()
        print((await agent.run("Is it raining in Oslo?", session=session)).text)
        print((await agent.run("And now?", session=session)).text)
        history = kept.history(session.session_id)
        print([entry.kind for entry in history.entries])
        print(len(history.to_messages("anthropic")), "messages for Anthropic")


if __name__ == "__main__":
    asyncio.run(main())
