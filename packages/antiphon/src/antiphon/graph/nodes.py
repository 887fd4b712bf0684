"""The nodes of a graph, and the state they share.

The state holds the id of a conversation and the version of its log that the graph has seen, so a checkpoint has the same size
after a thousand steps. LangGraph may run a node again after a crash: a node calls `step.mark()` before it writes, and finds in
`step.earlier_entries` what it wrote the last time.

Nodes are LangChain runnables, because LangGraph then calls them the way the graph was called: awaited or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

from msgspec import structs

from antiphon.closing import run_sync
from antiphon.conversation import Conversation, Decision, ToolLoop
from antiphon.conversation.events import LIMIT_REASONS
from antiphon.conversation.message import make_entry
from antiphon.conversation.turn import AGENT_CHANNEL, AGENT_PREFIX, CONTINUE_PROMPT, Turn
from antiphon.conversation.turn_runner import Participants, Speaker
from antiphon.errors import ConversationError, GraphError, TurnLimitReached
from antiphon.graph.step import MISSING_EXTRA, GraphStep
from antiphon.history import EntryMetadata, HumanDecisionEntry, ModelInputEntry, SetSystemInstructionEntry
from antiphon.parts import ToolCallRequest
from antiphon.providers.call import ProviderClient
from antiphon.wire.request import ToolDefinition

if TYPE_CHECKING:
    from antiphon.graph.conversations import Conversations

TextSource: TypeAlias = str | Callable[[Mapping[str, Any]], str]
"""A text, or a function that makes it from the graph's state."""


class ConversationState(TypedDict, total=False):
    """The id of the conversation, and the version of its log that the graph has seen. Subclass it to add your own keys."""

    conversation: str
    version: int


class RunnableNode:
    """A node that LangGraph can call with and without `await`. Subclasses implement `execute`."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        kind: Any = cls
        node: Self = object.__new__(_as_runnable(kind))
        return node

    async def execute(self, state: Any, config: Any, *, is_async: bool) -> dict[str, Any]:
        """Return the state's new values. `is_async` tells whether the graph awaits its nodes."""
        raise NotImplementedError

    def __call__(self, state: Any, config: Any = None) -> dict[str, Any]:
        return self.invoke(state, config)

    def invoke(self, state: Any, config: Any = None, **_: Any) -> dict[str, Any]:
        """Run the node and return the state's new values."""
        return run_sync(self.execute(state, config or _current_config(), is_async=False))

    async def ainvoke(self, state: Any, config: Any = None, **_: Any) -> dict[str, Any]:
        """`invoke` for code that awaits."""
        return await self.execute(state, config or _current_config(), is_async=True)


class ConversationNode(RunnableNode):
    """A node that works on the conversation named in the graph's state. Subclasses implement `work`."""

    fork = False
    """Whether the node works on a fork of that conversation."""

    def __init__(self, chats: Conversations) -> None:
        self.chats = chats

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        """Do the node's work on `step.chat`; return more keys for the state, if any. The id and the version are added."""
        raise NotImplementedError

    async def execute(self, state: Any, config: Any, *, is_async: bool) -> dict[str, Any]:
        values = state if isinstance(state, Mapping) else dict(vars(state))  # a Pydantic or dataclass state
        async with self.chats.step(values, config, fork=self.fork, is_async=is_async) as step:
            update = await self.work(step)
            return {"conversation": step.chat.id, "version": step.chat.history.version, **(update or {})}


class NodeParticipants(Participants):
    """The conversation's own model and tools, unless the node overrides them."""

    def __init__(
        self,
        chat: Conversation,
        name: str,
        model: str | ProviderClient | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> None:
        super().__init__(chat)
        self._name = name
        self._model = model
        self._system = system
        self._tool_names = tools

    @property
    def source(self) -> str:
        """A node with its own instructions is recorded as an agent with the node's name."""
        return f"{AGENT_PREFIX}{self._name}" if self._system is not None and self._name else ""

    @property
    def speaker(self) -> Speaker:
        speaker = super().speaker
        return structs.replace(speaker, source=self.source, model=self._model, tools=self._offered(speaker.tools))

    @property
    def models(self) -> Sequence[str | ProviderClient | None]:
        return (self._model,)

    def _offered(self, definitions: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        if self._tool_names is None:
            return definitions
        known = {definition.name: definition for definition in definitions}
        if unknown := [name for name in self._tool_names if name not in known]:
            raise GraphError(
                f"node {self._name or '(none)'} offers unknown tools {', '.join(unknown)}; Conversations(tools=…) has "
                f"{', '.join(known) or 'none'}"
            )
        return tuple(known[name] for name in self._tool_names)

    @property
    def needs_no_setup(self) -> bool:
        return False

    async def enter(self) -> tuple[str, str] | None:
        await self.open()
        history = self.chat.history
        if self._system is not None and self._system != history.system_instruction:
            metadata = EntryMetadata(source=self.source)
            history.append(SetSystemInstructionEntry(self._system, metadata=metadata))
        return None


class LLMNode(ConversationNode):
    """Calls `model` (default: the conversation's) once, offering the `tools` with these names (default: all).

    `system` are instructions for this node. If the turn is already over, the node starts another one with `prompt`, at most
    `max_hand_offs` times before a person writes again. `answer` is the state key that gets the text of the answer, if set.
    After a turn limit the model is called once without tools; another call raises `TurnLimitReached`.
    """

    def __init__(
        self,
        chats: Conversations,
        model: str | ProviderClient | None = None,
        *,
        system: str | None = None,
        prompt: TextSource | None = None,
        tools: Sequence[str] | None = None,
        answer: str = "",
    ) -> None:
        super().__init__(chats)
        self._model = model
        self._system = system
        self._prompt = prompt
        self._tools = tools
        self._answer = answer

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        participants = NodeParticipants(step.chat, step.task.node, self._model, self._system, self._tools)
        step.discard_interrupted()
        if not step.has_unseen_work:
            self._check(step.chat.turn)
        if self._needs_model(step, participants):
            step.mark()
            with step.streaming():
                await step.runner(participants).run()
        return {self._answer: step.chat.turn.answer} if self._answer else None

    def _check(self, turn: Turn) -> None:
        """Raise if the model cannot be called in this state."""
        if turn.open_calls and not turn.has_failed:
            names = ", ".join(state.call.tool_name for state in turn.open_calls.values())
            raise GraphError(
                f"tool calls have no results yet ({names}); route to a ToolNode first (Conversations.has_calls), or to a "
                "HumanNode if they need approval (Conversations.needs_person)"
            )
        if self._prompt is None and (turn.ended in LIMIT_REASONS or turn.ended == "max_hand_offs"):
            raise TurnLimitReached(
                f"the turn reached a limit ({turn.ended}) and the model gave its last answer; route to END when "
                "Conversations.has_calls is false, or to a HumanNode"
            )

    def _needs_model(self, step: GraphStep, participants: NodeParticipants) -> bool:
        """Whether to call the model; starts another turn if the last one is over."""
        turn = step.chat.turn
        if turn.needs_model or turn.has_failed:
            return True
        if step.has_unseen_work:
            return False
        if turn.input is None and self._prompt is None:
            raise GraphError(
                "the conversation has no message yet; start with Conversations.ask, an AskNode or a HumanNode"
            )
        text = self._prompt(step.state) if callable(self._prompt) else self._prompt or CONTINUE_PROMPT
        step.mark()
        step.start_agent_turn(participants, ModelInputEntry.of(text, channel=AGENT_CHANNEL))
        return True


class ToolNode(ConversationNode):
    """Runs the calls of the last output, like the loop: finished calls are not repeated, and calls that need approval wait."""

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        turn = step.chat.turn
        if turn.open_calls and not turn.has_failed:
            step.mark()
            await step.runner(NodeParticipants(step.chat, step.task.node)).run()
        return None


class AskNode(ConversationNode):
    """Adds `question` as a message: a text, a function of the state, or by default the state's `question`.

    With `fork` the message goes into a fork of the conversation, and the state then names the fork. `by` is the channel: `user`,
    or `agent` for a question the graph made up, which counts against `max_hand_offs`.
    """

    def __init__(
        self, chats: Conversations, question: TextSource | None = None, *, fork: bool = False, by: str = "user"
    ) -> None:
        super().__init__(chats)
        self._question = question
        self.fork = fork
        self._by = by

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        if any(isinstance(entry, ModelInputEntry) for entry in step.earlier_entries):
            return None
        source = self._question if self._question is not None else step.state.get("question")
        text = source(step.state) if callable(source) else source
        if not isinstance(text, str) or not text:
            raise GraphError(
                f"node {step.task.node} has no question: the state's `question` is {text!r}; set it to a text, or pass a "
                "question to AskNode"
            )
        step.mark()
        participants = NodeParticipants(step.chat, step.task.node)
        entry = ModelInputEntry.of(text, channel=self._by)
        if self._by == AGENT_CHANNEL:
            step.start_agent_turn(participants, entry)
        else:
            step.runner(participants).start(entry)
        return None


class HumanNode(ConversationNode):
    """Stops the graph with LangGraph's `interrupt` until a person has decided or written. `ask` is part of the interrupt.

    If calls need approval, the interrupt is `{"kind": "approval", "calls": […]}`. Resume with one of:

        "approve"  "deny"                                     for all pending calls
        {"call_1": "approve", "call_2": "deny"}               for each call by id; the others stay pending
        {"decision": "deny", "reason": "too expensive"}       the long form, for all or for each
        {"decision": "edit", "arguments": {"to": "Oslo"}}     approve one call with other arguments
        {"say": "Never mind, tell me about Bergen."}          close the calls and continue with this message

    Otherwise it is `{"kind": "input"}`; resume with the person's message: text, parts, or a list of both. An invalid answer
    interrupts again, with the reason in `problem`.
    """

    def __init__(self, chats: Conversations, ask: str = "") -> None:
        super().__init__(chats)
        self._ask = ask

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        from langgraph.types import interrupt

        loop = ToolLoop(step.chat)
        # A decision recorded before a crash must not be read as a message when the node runs again.
        awaiting_approval = bool(loop.pending) or any(
            isinstance(entry, HumanDecisionEntry) for entry in step.earlier_entries
        )
        problem = ""
        while True:
            answer = interrupt(self._question(step, loop.pending if awaiting_approval else None, problem))
            try:
                if awaiting_approval and not _is_message(answer):
                    decisions = decisions_from(answer, loop.pending, step)
                    step.mark()
                    loop.decide(*decisions)
                else:
                    self._add_message(step, answer)
            except (ConversationError, GraphError) as error:
                problem = str(error)
            else:
                return None

    def _question(self, step: GraphStep, pending: Sequence[ToolCallRequest] | None, problem: str) -> dict[str, Any]:
        question: dict[str, Any] = {
            "kind": "input" if pending is None else "approval",
            "conversation": step.chat.id,
            "said": step.chat.turn.answer,
        }
        if pending is not None:
            question["calls"] = [
                {"id": call.tool_call_id, "tool": call.tool_name, "arguments": call.arguments} for call in pending
            ]
        if self._ask:
            question["ask"] = self._ask
        if problem:
            question["problem"] = problem
        return question

    def _add_message(self, step: GraphStep, answer: Any) -> None:
        if any(isinstance(entry, ModelInputEntry) for entry in step.earlier_entries):
            return
        content = answer["say"] if _is_message(answer) else answer
        entry = make_entry("user", content if isinstance(content, list | tuple) else (content,))
        if not isinstance(entry, ModelInputEntry):
            raise GraphError(f"expected text or parts from the person, got {type(entry).__name__}")
        step.mark()
        step.runner(NodeParticipants(step.chat, step.task.node)).start(entry)


def _is_message(answer: Any) -> bool:
    return isinstance(answer, Mapping) and set(answer) == {"say"}


def decisions_from(answer: Any, pending: Sequence[ToolCallRequest], step: GraphStep) -> list[Decision]:
    """The decision for each call in an answer to an approval interrupt."""
    if isinstance(answer, str) or (isinstance(answer, Mapping) and "decision" in answer):
        if len(pending) > 1 and isinstance(answer, Mapping) and "arguments" in answer:
            raise GraphError("several calls are pending; give the new arguments by call id")
        answer = {call.tool_call_id: answer for call in pending}
    if not isinstance(answer, Mapping):
        raise GraphError(f"expected 'approve', 'deny' or a mapping from call ids to decisions, got {answer!r}")
    decided = {entry.tool_call_id for entry in step.earlier_entries if isinstance(entry, HumanDecisionEntry)}
    known = {call.tool_call_id for call in pending}
    decisions: list[Decision] = []
    for call_id, given in answer.items():
        full = given if isinstance(given, Mapping) else {"decision": given}
        if call_id in decided:
            continue
        if call_id not in known:
            raise GraphError(f"call {call_id!r} is not pending approval; pending calls: {', '.join(known) or 'none'}")
        decisions.append(
            Decision(
                tool_call_id=call_id,
                decision=full.get("decision"),  # type: ignore[arg-type]  # `decide` checks it
                reason=str(full.get("reason", "")),
                arguments=full.get("arguments"),
            )
        )
    return decisions


def _current_config() -> Any:
    """The config of the node that calls this one, if there is one."""
    from langchain_core.runnables.config import ensure_config

    return ensure_config()


@cache
def _as_runnable(node: Any) -> Any:
    """The class with LangChain's `Runnable` mixed in. Done late, so that importing this module does not load LangChain."""
    try:
        from langchain_core.runnables import Runnable
    except ImportError as error:
        raise GraphError(MISSING_EXTRA) from error
    if issubclass(node, Runnable):
        return node
    return new_class(node.__name__, (node, Runnable), exec_body=lambda body: body.update(__module__=node.__module__))
