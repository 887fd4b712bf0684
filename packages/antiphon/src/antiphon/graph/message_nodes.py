"""Nodes for graphs whose state holds LangChain messages, so that an existing graph can be moved over one node at a time.

`MessagesLLMNode` and `MessagesToolNode` read the messages of the state, do the work of an `LLMNode` or `ToolNode` on a history
made from them, and return the new messages. Turn limits apply. There is no stored log, so the state grows with every message,
and a crash in the middle of a tool is not detected afterwards. Pass a `provider` to share its connections among all steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Unpack

from antiphon.conversation import Conversation, RunLimits
from antiphon.conversation.model_settings import check_model
from antiphon.conversation.turn_runner import TurnRunner
from antiphon.errors import GraphError
from antiphon.graph.conversations import ConversationOptions
from antiphon.graph.nodes import NodeParticipants, RunnableNode
from antiphon.graph.step import StreamForwarder, current_task
from antiphon.history import AgentHistory, ModelOutputEntry, ToolCallResultsEntry
from antiphon.integrations.langchain_messages import from_langchain, to_langchain
from antiphon.providers.client import ProviderClient
from antiphon.providers.router import ProviderRouter
from antiphon.tools.registry import ToolLike, ToolRegistry


class MessageNodeOptions(ConversationOptions, total=False):
    """Arguments of `Conversation` that these nodes pass on."""

    system: str | None
    provider: ProviderClient | None


class _MessagesNode(RunnableNode):
    def __init__(
        self,
        model: str | ProviderClient | None,
        tools: Iterable[ToolLike] | ToolRegistry,
        key: str,
        limits: RunLimits | None,
        options: Mapping[str, Any],
    ) -> None:
        self._model = check_model(model)
        self._registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._key = key
        self._limits = limits or RunLimits()
        self._options = dict(options)

    async def execute(self, state: Any, config: Any, **_: Any) -> dict[str, Any]:
        messages = state[self._key] if isinstance(state, Mapping) else getattr(state, self._key)
        history = AgentHistory()
        for entry in from_langchain(messages):
            history.append(entry)
        version = history.version
        stream = StreamForwarder(current_task(config).write, config.get("callbacks"))
        async with AsyncExitStack() as opened:
            options = dict(self._options)
            if options.get("provider") is None and not isinstance(self._model, ProviderClient):
                # Of this step alone: a node is never closed, and the next step may run in another event loop.
                options["provider"] = await opened.enter_async_context(ProviderRouter.from_environment())
            chat = Conversation(self._model, tools=self._registry, history=history, **options)
            runner = TurnRunner(NodeParticipants(chat, ""), self._limits, stream.forward, steps=1)
            message_id = await self.work(chat, runner, stream)
        new = [e for e in history.entries.since(version) if isinstance(e, ModelOutputEntry | ToolCallResultsEntry)]
        added = to_langchain(new)
        if added and message_id:
            added[0].id = message_id
        return {self._key: list(added)}

    async def work(self, chat: Conversation, runner: TurnRunner, stream: StreamForwarder) -> str:
        """Do the node's work; return the message id its answer was streamed with, if it was."""
        raise NotImplementedError


class MessagesLLMNode(_MessagesNode):
    """Calls `model` once with the messages of the state, and returns its answer as a message.

    `options` are passed to `Conversation`: `system`, `provider`, `settings`, ….
    """

    def __init__(
        self,
        model: str | ProviderClient | None = None,
        *,
        tools: Iterable[ToolLike] | ToolRegistry = (),
        key: str = "messages",
        limits: RunLimits | None = None,
        **options: Unpack[MessageNodeOptions],
    ) -> None:
        super().__init__(model, tools, key, limits, options)

    async def work(self, chat: Conversation, runner: TurnRunner, stream: StreamForwarder) -> str:
        try:
            if chat.turn.needs_model:
                await runner.run()
            else:  # the graph asks for another answer to the same messages
                await chat.call_model()
        except BaseException as error:
            stream.fail(error)
            raise
        return stream.finish(chat.turn.output)


class MessagesToolNode(_MessagesNode):
    """Runs the calls of the last message of the state, and returns their results as messages."""

    def __init__(
        self,
        tools: Iterable[ToolLike] | ToolRegistry,
        *,
        key: str = "messages",
        limits: RunLimits | None = None,
        **options: Unpack[MessageNodeOptions],
    ) -> None:
        super().__init__(None, tools, key, limits, options)

    async def work(self, chat: Conversation, runner: TurnRunner, _: StreamForwarder) -> str:
        await chat.registry.open()
        calls = {state.call.tool_call_id: state.call for state in chat.turn.open_calls.values()}
        if waiting := chat.executor.calls_for_approval(calls.values()):  # messages bring no requests for approval
            names = ", ".join(calls[call_id].tool_name for call_id in waiting)
            raise GraphError(
                f"{names} needs approval, which messages cannot express; use Conversations with LLMNode, ToolNode and HumanNode"
            )
        if chat.turn.open_calls:
            await runner.run()
        return ""
