"""`Agent`: a name, instructions, a model and tools. It runs by itself, or several of them share one history.

    result = Agent("clerk", "You look after invoices.", tools=[find]).run_sync("Which invoice is open?")
    result = agent.run_sync("And the next?", chat=result.chat)

The active agent follows from the log: taking over appends the agent's instructions as the system instruction (the
conversation's own if the agent has none), with `agent:<name>` as its source, and the last such entry names the active agent. So a
resumed turn continues with the right one. The entry also says from whom it took over and why (`hand_offs`).
The calls of an agent run under the settings of the conversation's executor.

Three ways from one agent to another, all of them in the log:

- hand-off: an agent with `hand_offs` is offered a tool for each, and calls it when another is better suited;
- a route: a plain function that returns, after an answer, the next agent and its input;
- an agent as a tool (`as_tool`): it works on a request in a thread of its own, and its answer is the result of the call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, Unpack, overload

from msgspec import Struct

from antiphon.closing import run_sync
from antiphon.context.model_usage import model_calls_of, with_model_calls
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import LoopEvent
from antiphon.conversation.model_settings import SettingsLike, check_model
from antiphon.conversation.run import TOOL_CALLS, LimitOptions, RunLimits, RunResult, T
from antiphon.conversation.run_meter import RunMeter, current_meter
from antiphon.conversation.turn import AGENT_PREFIX, CONTINUE_PROMPT, last_own_instruction
from antiphon.conversation.turn_runner import Participants, Speaker
from antiphon.errors import ConversationError, LeaseLost, ToolError
from antiphon.history import AgentHistory, DebugLogEntry, EntryMetadata, HistoryEntry, SetSystemInstructionEntry
from antiphon.history.entries import HAND_OFF
from antiphon.parts import InputPart
from antiphon.providers.call import ProviderClient
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.registry import ToolLike, ToolRegistry
from antiphon.tools.tool import Tool, tool

if TYPE_CHECKING:
    from antiphon.conversation.loop import RunOptions, ToolLoop, TurnOptions

RouteFunction: TypeAlias = Callable[["Agent[Any]", str], "str | tuple[str, str] | None"]
"""Chooses the next agent from the agent that answered and its answer: a name, a name and a message, or None to end the turn."""


class HandOff(Struct, frozen=True):
    """One agent took over from another. `sequence_number` is that of the entry that says so."""

    before: str
    after: str
    reason: str
    sequence_number: int


def hand_offs(history: AgentHistory) -> list[HandOff]:
    """Every hand-off in the effective history, in order."""
    found: list[HandOff] = []
    for entry in history.effective:
        if isinstance(entry, SetSystemInstructionEntry) and (about := entry.hand_off) is not None:
            assert entry.metadata is not None, "it has the hand-off"
            after = entry.metadata.source.removeprefix(AGENT_PREFIX)
            found.append(HandOff(about["from"], after, about.get("reason", ""), entry.sequence_number))
    return found


class AgentOptions(LimitOptions, total=False):
    """What an `Agent` takes besides its name, its instructions and `output`."""

    model: str | ProviderClient | None
    tools: Iterable[ToolLike]
    description: str
    hand_offs: Sequence[str | Agent[Any]]
    settings: SettingsLike | None
    limits: RunLimits | None


class Agent(Generic[T]):
    """Runs a conversation, alone or with others.

    `model` is a name or a `ProviderClient`; without one, the conversation's own is used. `output` is the type of its answers.
    `hand_offs` are the agents it may hand off to: objects, which then take part too, or names of agents that do. `settings` are
    those of its requests. `limits`, or its fields (`max_rounds=10`, `max_cost=0.50`), limit its runs.
    """

    @overload
    def __init__(self: Agent[str], name: str, instructions: str = "", **options: Unpack[AgentOptions]) -> None: ...

    @overload
    def __init__(
        self, name: str, instructions: str = "", *, output: type[T], **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[Any], name: str, instructions: str = "", *, output: Any, **options: Unpack[AgentOptions]
    ) -> None: ...

    def __init__(
        self,
        name: str,
        instructions: str = "",
        *,
        model: str | ProviderClient | None = None,
        tools: Iterable[ToolLike] = (),
        output: Any = None,
        description: str = "",
        hand_offs: Sequence[str | Agent[Any]] = (),
        settings: SettingsLike | None = None,
        limits: RunLimits | None = None,
        **limit_options: Unpack[LimitOptions],
    ) -> None:
        if not name or not name.replace("_", "").replace("-", "").isalnum():
            raise ConversationError(f"invalid agent name {name!r}: use letters, digits, _ and -")
        self.name = name
        self.instructions = instructions
        self.model = None if model is None else check_model(model)
        self.tools = tuple(tools)
        self.output = None if output is str else output  # any answer is text
        self.description = description
        self.settings = settings
        self.limits = RunLimits.of(limits, limit_options)
        if isinstance(hand_offs, str) or not all(isinstance(each, str | Agent) for each in hand_offs):
            raise ConversationError(f"hand_offs={hand_offs!r}: expected a list of agents or of their names")
        self.hand_offs = tuple(each if isinstance(each, str) else each.name for each in hand_offs)
        self.partners = tuple(each for each in hand_offs if isinstance(each, Agent))
        """The agents among `hand_offs` that were given as objects."""

    def loop(self, chat: Conversation) -> ToolLoop:
        """The loop that runs this agent in `chat`: to approve calls, to interrupt, or to run it there more than once."""
        from antiphon.conversation.loop import ToolLoop

        return ToolLoop(chat, agents=[self], limits=self.limits, settings=self.settings, name=self.name)

    async def run(
        self, *content: InputPart | str, chat: Conversation | None = None, **options: Unpack[RunOptions]
    ) -> RunResult[T]:
        """Send a message, run to the end and return the result, as `ToolLoop.run` does. Without content, continue the run.

        `chat` is the conversation to go on with, that of an earlier result or your own (with a store, `state`, hooks); without
        one, a new one in memory, in which nothing stays open between two runs.
        """
        chat = self._new_chat() if chat is None else chat
        loop = self.loop(chat)
        try:
            result: RunResult[T] = await loop.run(*content, output=self.output, **options)
            return result
        finally:
            if chat.closes_after_runs:
                await chat.aclose()

    def run_sync(
        self, *content: InputPart | str, chat: Conversation | None = None, **options: Unpack[RunOptions]
    ) -> RunResult[T]:
        """`run` from code that does not await."""
        return run_sync(self.run(*content, chat=chat, **options))

    async def stream(
        self, *content: InputPart | str, chat: Conversation | None = None, **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[LoopEvent, None]:
        """`run` as a stream of events, up to one `LoopFinished`."""
        chat = self._new_chat() if chat is None else chat
        loop = self.loop(chat)
        try:
            async with aclosing(loop.stream(*content, output=self.output, **options)) as events:
                async for event in events:
                    yield event
        finally:
            if chat.closes_after_runs:
                await chat.aclose()

    def _new_chat(self) -> Conversation:
        chat = Conversation(self.model, compaction="auto")
        chat.closes_after_runs = True
        return chat

    def as_tool(
        self,
        name: str = "",
        *,
        provider: ProviderClient | None = None,
        limits: RunLimits | None = None,
        **limit_options: Unpack[LimitOptions],
    ) -> Tool:
        """A tool that gives a request to this agent and returns its answer, within `limits` or the single ones (`max_rounds=…`).

        What it uses counts for the limits of its caller, too: it ends when those are reached. An agent without a model uses that
        of the conversation in which the tool is called; `provider` defaults to its provider.
        """
        own_limits = RunLimits.of(limits, limit_options) if limits or limit_options else self.limits

        async def ask(request: Annotated[str, "Everything it needs to know."], context: ToolContext) -> Any:
            from antiphon.conversation.loop import ToolLoop

            registry, caller = ToolRegistry(self.tools), current_meter.get()
            chat = Conversation(
                context.model if self.model is None else self.model,
                tools=registry,
                system=self.instructions or None,
                provider=context.provider if provider is None else provider,
                executor=context.executor.with_registry(registry) if context.executor is not None else None,
                state=context.state if context.executor is None else None,
                prices=caller.prices if caller is not None else None,
                compaction="auto",
            )
            async with chat:
                context.progress(f"{self.name} is working")
                loop = ToolLoop(chat, limits=own_limits, settings=self.settings, name=self.name)
                with RunMeter(own_limits, lambda: chat.totals, caller) as loop.meter:
                    try:
                        result = await loop.run(request, output=self.output)
                    finally:
                        self._record_usage(chat, context.log)
                if result.pending:
                    names = ", ".join(call.tool_name for call in result.pending)
                    raise ToolError(
                        f"{self.name} stopped: {names} needs a person's approval, which cannot be given here"
                    )
                if result.reason == "waiting":
                    raise ToolError(f"{self.name} stopped: it waits for a result from outside, which cannot come here")
                is_explained = self.output is None and result.text and not chat.turn.answer
                if is_explained or result.reason == "refused":
                    raise ToolError(f"{self.name} stopped: {result.text}", retry=False)
                return result.output

        return tool(
            name=name or f"ask_{self.name}",
            description=self.description or f"Give a request to {self.name} and get its answer.",
            timeout=None,
        )(ask)

    def _record_usage(self, chat: Conversation, caller: AgentHistory | None) -> None:
        """Note in the caller's log what the agent used, so that it counts for its limits and costs."""
        calls = [call for entry in chat.history.entries for call in model_calls_of(entry)]
        if not calls or caller is None:
            return
        extra = {TOOL_CALLS: chat.totals.calls} if chat.totals.calls else None
        metadata = with_model_calls(EntryMetadata(source=AGENT_PREFIX + self.name, extra=extra), calls)
        text = f"{self.name} called a model {len(calls)} times." if len(calls) > 1 else f"{self.name} called a model."
        with suppress(LeaseLost):  # the turn was handed to another process in the meantime
            caller.append(DebugLogEntry("agent", text, metadata=metadata))

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"


class AgentTeam(Participants):
    """Agents that share one conversation, with those they hand off to; one is active at a time."""

    def __init__(self, chat: Conversation, agents: Sequence[Agent[Any]]) -> None:
        super().__init__(chat)
        for agent in agents:
            if not isinstance(agent, Agent):
                raise ConversationError(f"agents={agent!r}: expected a list of Agent objects")
        agents = _with_partners(agents)
        self._agents = {agent.name: agent for agent in agents}
        if len(self._agents) < len(agents):
            raise ConversationError("two agents have the same name; names must be unique")
        for agent in agents:
            if unknown := set(agent.hand_offs) - set(self._agents):
                names = ", ".join(sorted(unknown))
                raise ConversationError(f"agent {agent.name} may hand off to {names}, which is not among the agents")
        self._first = agents[0].name
        self._registries = {agent.name: self._registry_of(agent) for agent in agents}
        for registry in self._registries.values():
            for source in registry.sources:
                chat.close_with(source)
        self._last_speaker = ""
        self._seen = chat.history.snapshot()
        self._active_name = _last_agent(self._seen.effective)

    @property
    def descriptions(self) -> dict[str, str]:
        """The descriptions of the agents by name."""
        return {agent.name: agent.description for agent in self._agents.values()}

    @property
    def active(self) -> Agent[Any]:
        """The current agent, according to the log."""
        snapshot = self.chat.history.snapshot()
        new = snapshot.effective_since(self._seen)
        self._active_name = _last_agent(snapshot.effective) if new is None else _last_agent(new) or self._active_name
        self._seen = snapshot
        return self._agents.get(self._active_name) or self._agents[self._first]

    @property
    def source(self) -> str:
        return AGENT_PREFIX + self.active.name

    @property
    def speaker(self) -> Speaker:
        agent = self.active
        executor = self.chat.executor.with_registry(self._registries[agent.name])
        return Speaker(AGENT_PREFIX + agent.name, agent.model, executor.registry.definitions, executor)

    @property
    def models(self) -> Sequence[str | ProviderClient | None]:
        return [agent.model for agent in self._agents.values()]

    @property
    def executor(self) -> ToolExecutor:
        # The agent that made the calls has their tools, even if another one is active now.
        return self.chat.executor.with_registry(self._registries[self._author or self.active.name])

    @property
    def has_tools(self) -> bool:
        return any(registry.sources or len(registry) for registry in self._registries.values())

    @property
    def needs_no_setup(self) -> bool:
        return False

    async def enter(self) -> tuple[str, str] | None:
        agent = self.active
        await self._open(self._registries[agent.name])
        if self._active_name != agent.name:
            self.activate(agent)
        spoke, self._last_speaker = self._author or self._last_speaker, agent.name
        return (spoke, agent.name) if spoke and spoke != agent.name else None

    async def open(self) -> None:
        await self._open(self._registries[self._author or self.active.name])

    async def _open(self, registry: ToolRegistry) -> None:
        """Open the tools of an agent and of the conversation."""
        await self.chat.registry.open()
        for offered in self.chat.registry:
            if offered.name not in registry:
                registry.add(offered)
        await registry.open()

    @property
    def _author(self) -> str:
        """The agent that wrote the last output of the turn; empty if none did."""
        output = self.chat.turn.output
        name = output.metadata.source.removeprefix(AGENT_PREFIX) if output and output.metadata else ""
        return name if name in self._agents else ""

    def route_next(self, route: RouteFunction) -> tuple[Agent[Any], str] | None:
        """The next agent and the message for it, as `route` decides; None if the turn is over."""
        chosen = route(self._agents[self._author or self.active.name], self.chat.turn.answer)
        if chosen is None:
            return None
        name, message = chosen if isinstance(chosen, tuple) else (chosen, "")
        if name not in self._agents:
            raise ConversationError(f"the route returned {name!r}; the agents are {', '.join(self._agents)}")
        return self._agents[name], message or CONTINUE_PROMPT

    def activate(self, agent: Agent[Any], reason: str = "", call: str = "") -> None:
        """Make `agent` the active one, with its instructions, or the conversation's if it has none.

        `call` is the id of the tool call that hands off, if one does.
        """
        before = self.active.name if self._active_name else ""
        own = None if agent.instructions else last_own_instruction(self.chat.history)
        text = own.text if own is not None else agent.instructions
        hand_off = {"from": before, **({"reason": reason} if reason else {}), **({"call": call} if call else {})}
        extra = {HAND_OFF: hand_off} if before and before != agent.name else None
        metadata = EntryMetadata(source=AGENT_PREFIX + agent.name, extra=extra)
        self.chat.history.append(SetSystemInstructionEntry(text, metadata=metadata))

    def _registry_of(self, agent: Agent[Any]) -> ToolRegistry:
        hand_offs = [self._hand_off_to(self._agents[name]) for name in agent.hand_offs]
        registry = ToolRegistry([*self.chat.registry, *agent.tools, *hand_offs])
        self.chat.prepare_tools(registry)
        return registry

    def _hand_off_to(self, agent: Agent[Any]) -> Tool:
        async def hand_off(context: ToolContext, reason: Annotated[str, "Why, in a few words."] = "") -> str:
            meter = current_meter.get()
            if meter is not None and not meter.has_hand_off_left:
                raise ToolError(
                    "No other agent can take over any more in this run: answer with what you have.", retry=False
                )
            self.activate(agent, reason, context.tool_call_id)
            if context.language(reason) == "zh":
                return f"由 {agent.name} 接手。" + (f"原因：{reason}" if reason else "")
            return f"{agent.name} takes over." + (f" Reason: {reason}" if reason else "")

        return tool(
            name=f"hand_off_to_{agent.name}",
            description=f"Hand the conversation off to {agent.name}. {agent.description}".strip(),
            effect="read",  # outside of the conversation it changes nothing
        )(hand_off)


def _with_partners(agents: Sequence[Agent[Any]]) -> list[Agent[Any]]:
    """The agents and all that they can hand off to, each once."""
    found = list(agents)
    for agent in found:
        found += [each for each in agent.partners if each not in found]
    return found


def _last_agent(entries: Sequence[HistoryEntry]) -> str:
    """The last agent that became active in `entries`."""
    for entry in reversed(entries):
        if (
            isinstance(entry, SetSystemInstructionEntry)
            and entry.metadata
            and entry.metadata.source.startswith(AGENT_PREFIX)
        ):
            return entry.metadata.source.removeprefix(AGENT_PREFIX)
    return ""
