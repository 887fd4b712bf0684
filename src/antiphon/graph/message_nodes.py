"""Nodes for graphs whose state holds LangChain messages, so that an existing graph can take over one node at a time.

`MessagesLLMNode` and `MessagesToolNode` read the messages of the state, do what an `LLMNode` or `ToolNode` does with a history
made of them, and return the new messages. Any model of ours answers, and the bounds of a turn hold. What only a stored log can
give is not there: the state grows with every message, and a crash in mid-tool is not known afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.conversation import Bounds, Conversation, ToolLoop
from antiphon.conversation.turn_runner import TurnRunner
from antiphon.errors import GraphError
from antiphon.graph.from_langchain import from_langchain
from antiphon.graph.place import place_in
from antiphon.graph.runnable import RunnableNode
from antiphon.graph.stage import NodeStage
from antiphon.graph.telling import Telling
from antiphon.graph.to_langchain import to_langchain
from antiphon.history import AgentHistory, ModelOutputEntry, ToolCallResultsEntry
from antiphon.providers.client import ProviderClient
from antiphon.providers.router import ProviderRouter
from antiphon.tools.registry import ToolRegistry


class _MessagesNode(RunnableNode):
    def __init__(
        self,
        model: str | ProviderClient | None,
        tools: Iterable[Any] | ToolRegistry,
        key: str,
        bounds: Bounds | None,
        options: Mapping[str, Any],
    ) -> None:
        self._model = model
        self._registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._key = key
        self._bounds = bounds or Bounds()
        self._options = dict(options)

    async def made(self, state: Any, config: Any, **_: Any) -> dict[str, Any]:
        messages = state[self._key] if isinstance(state, Mapping) else getattr(state, self._key)
        history = AgentHistory()
        for entry in from_langchain(messages):
            history.append(entry)
        if "provider" not in self._options:  # one for all steps, with its connections
            self._options["provider"] = ProviderRouter.from_environment()
        chat = Conversation(self._model, tools=self._registry, history=history, **self._options)
        known = history.version
        telling = Telling(place_in(config).write, config.get("callbacks"))
        answer = await self.work(chat, TurnRunner(NodeStage(chat, ""), self._bounds, telling.tell, steps=1), telling)
        new = [e for e in history.entries.since(known) if isinstance(e, ModelOutputEntry | ToolCallResultsEntry)]
        added = to_langchain(new)
        if added and answer:
            added[0].id = answer
        return {self._key: list(added)}

    async def work(self, chat: Conversation, runner: TurnRunner, telling: Telling) -> str:
        """Do what the node is there for; the id under which its answer was streamed, if it was."""
        raise NotImplementedError


class MessagesLLMNode(_MessagesNode):
    """Asks `model` once about the messages of the state, and returns its answer as a message.

    `options` are those of a `Conversation`: `system`, `provider`, `settings`, ….
    """

    def __init__(
        self,
        model: str | ProviderClient | None = None,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        key: str = "messages",
        bounds: Bounds | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, tools, key, bounds, options)

    async def work(self, chat: Conversation, runner: TurnRunner, telling: Telling) -> str:
        try:
            if chat.turn.needs_model:
                await runner.run()
            else:  # the graph wants another answer to the same messages
                await chat.call_model()
        except BaseException as error:
            telling.failed(error)
            raise
        return telling.answered(chat.turn.output)


class MessagesToolNode(_MessagesNode):
    """Runs the calls of the last message of the state, and returns their results as messages."""

    def __init__(
        self,
        tools: Iterable[Any] | ToolRegistry,
        *,
        key: str = "messages",
        bounds: Bounds | None = None,
        **options: Any,
    ) -> None:
        super().__init__(None, tools, key, bounds, options)

    async def work(self, chat: Conversation, runner: TurnRunner, _: Telling) -> str:
        await chat.registry.open()
        if waiting := ToolLoop(chat).pending:
            names = ", ".join(call.tool_name for call in waiting)
            raise GraphError(
                f"{names} needs a person's approval, which has no place among messages; use LLMNode, ToolNode and HumanNode with "
                "Conversations for it"
            )
        if chat.turn.open_calls:
            await runner.run()
        return ""
