"""The surroundings of the random conversations of law L12: tools that record what they do, agents, and models with a script.

Nothing here trusts the library. Every tool writes into a ledger of its own when it begins and ends, and looks at that moment
into the observed log whether it may run at all. What breaks a law becomes a line in `World.faults`: raised in a tool or a model,
it would only become a failed call.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.conversation import Agent, Conversation
from antiphon.errors import CallRefused
from antiphon.history import (
    AgentHistory,
    ContextEntry,
    ContextEntryRole,
    DecoratedContextEntry,
    HistoryEntry,
    ModelOutputEntry,
    Origin,
    ToolCallResultsEntry,
)
from antiphon.parts import OutputPart, Text, TokenUsage, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.rendering import render_call
from antiphon.providers.scripted import FunctionModel, Item
from antiphon.tools import Hook, HookedModelCall, Tool, ToolContext, ToolError, ToolExecutor, ToolRegistry, tool
from antiphon.tools.hooks import CallOutcome
from antiphon.tools.tool import Effect
from antiphon.wire import FORMATS, formats
from antiphon.wire.delta import Failed, Finished, Started, UsageReported, deltas_from_part
from antiphon.wire.output import ProviderError, StopReason
from antiphon.wire.request import PromptCaching
from laws.conversation_simulation.log import CallFacts, ObservedLog
from support.planned_turns import MODELS

RESULT_CHARACTERS = 300
LONG_TEXT = "long " * 1_000
HELPER = "You are the helper."
HELPED = "The helper has looked."
NOTE = "(a note of the hook)"
MASKED = "(masked by the hook)"
MESSAGES = {name: formats[name].spec.messages_key for name in FORMATS}


HOOKS = (
    "none",
    "watches",
    "refuses look",
    "fails on put",
    "masks look",
    "adds a note",
    "refuses the second model call",
)


class Surface(Struct, frozen=True):
    """A configuration that plays turns: whether its tools are marked as needing approval, whether it has agents, and what its
    hook does (one of HOOKS)."""

    is_strict: bool = True
    has_agents: bool = False
    hook: str = HOOKS[0]


class WorldHook(Hook):
    """A hook that does what its surface says, and writes down which calls it was asked about."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def before_model(self, call: HookedModelCall) -> None:
        if self._kind == "refuses the second model call" and HERE.world.model_calls == 1:
            raise CallRefused("one call is enough")

    async def after_model(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...] | None:
        await asyncio.sleep(0)
        return (*parts, Text(NOTE)) if self._kind == "adds a note" else None

    def before_tool(self, call: ToolCallRequest, tool: Tool | None) -> None:
        HERE.world.hooked_calls.add(call.tool_call_id)
        if self._kind == "refuses look" and call.tool_name == "look":
            raise ToolError("looking is not allowed")
        if self._kind == "fails on put" and call.tool_name == "put":
            raise KeyError(call.tool_name)

    async def after_tool(self, call: ToolCallRequest, result: ToolCallResult) -> ToolCallResult | None:
        await asyncio.sleep(0)
        if self._kind == "masks look" and call.tool_name == "look" and result.status is ToolExecutionStatus.SUCCESS:
            return ToolCallResult.of(call, MASKED)
        return None


class Answer(Struct, frozen=True):
    """What a model answers. `fate`: it finishes, its stream is cut, or it fails; `aside`: what a person sets while it speaks."""

    parts: tuple[OutputPart, ...]
    stop_reason: StopReason = ""
    fate: str = "finishes"
    aside: tuple[str, str] | None = None


class Execution(Struct):
    """One run of a tool."""

    tool: str
    call: str
    started: int
    process: int
    surface: Surface
    has_ended: bool = False


class World:
    """One conversation's surroundings: the observed logs, the ledger, the script, and the faults that were found."""

    def __init__(self) -> None:
        self.state = object()
        self.faults: list[str] = []
        self.logs: dict[str, ObservedLog] = {}
        self.process = 1
        self.surface = Surface()
        """The surface that plays."""
        self.conversation = ""
        """The conversation that is being played."""
        self.history: AgentHistory | None = None
        """Its history, as the surface that plays it has it; None where only the surface does."""
        self.script: deque[Answer] = deque()
        self.model_calls = 0
        self.ended_calls: set[str] = set()
        self.measured_calls: set[str] = set()
        """The calls of this play whose tool came to its end, and those that `on_call` got."""
        self.hooked_calls: set[str] = set()
        """The calls that a hook was asked about."""
        self.executions: dict[str, list[Execution]] = {}
        self._rendered: dict[tuple[str, str], tuple[int, list[Any]]] = {}

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def begin_play(self, surface: Surface, script: Sequence[Answer]) -> None:
        """A surface is about to play, and the model has a new script."""
        self.surface = surface
        self.script = deque(script)
        self.model_calls = 0
        self.ended_calls = set()
        self.measured_calls = set()

    # What the store says.

    def observe(self, conversation: str, entry: HistoryEntry) -> None:
        log = self.logs.get(conversation) or self.logs.setdefault(conversation, ObservedLog(conversation))
        if isinstance(entry, ToolCallResultsEntry):
            self._check_results(log, entry)
        if isinstance(entry, ModelOutputEntry) and self.surface.is_strict:
            source = entry.metadata.source if entry.metadata is not None else ""
            asked = [call.tool_call_id for call in entry.tool_calls if _must_ask(call, source)]
            log.required.update(dict.fromkeys(asked, entry.sequence_number))
        log.observe(entry)

    def fork(self, conversation: str, of: ObservedLog, at: int) -> None:
        self.logs[conversation] = of.fork(conversation, at)
        self.executions[conversation] = list(self.executions.get(of.id, ()))

    def _check_results(self, log: ObservedLog, entry: ToolCallResultsEntry) -> None:
        """L7: a result says what the tool did."""
        facts = log.facts()
        for result in entry.results:
            known = facts.get(result.tool_call_id)
            if known is None:
                self.fault(f"L7: a result for {result.tool_call_id}, which no output asked for")
                continue
            if known.result is not None:
                self.fault(f"L7: {result.tool_call_id} got a second result")
            run = self._last_run(log, known)
            text = result.result_markdown
            name = result.tool_name
            if result.status is ToolExecutionStatus.SKIPPED and run is not None:
                self.fault(f"L7: the log says that {name} was not run, and it was")
            if result.status is ToolExecutionStatus.SUCCESS and name in TOOLS:
                runs = [one for one in self.executions.get(log.id, ()) if one.call == result.tool_call_id]
                if not any(one.has_ended for one in runs):
                    self.fault(f"L7: the log says that {name} succeeded, and it never came to its end")
            if run is not None and known.finished is None and name in TOOLS and TOOLS[name] == "once":
                is_lost = run.process != self.process or not run.has_ended
                if is_lost and "unknown" not in text and "cancelled" not in text:
                    self.fault(f"L7: {name} half-ran, and the log says: {text[:80]}")
            if self.surface.hook == "masks look" and name == "look" and run is not None and run.process == self.process:
                is_fresh = result.status is ToolExecutionStatus.SUCCESS and known.finished is None
                if is_fresh and run.surface == self.surface and text != MASKED:
                    self.fault(f"hooks: the result of look was to be masked, and the log has {text[:80]}")
            if len(text) > RESULT_CHARACTERS + 300:
                self.fault(f"max_result_chars: {len(text)} characters of {name} in the log")
            if name == "ask_helper" and result.status is ToolExecutionStatus.SUCCESS and HELPED not in text:
                self.fault(f"as_tool: another model than the conversation's answered: {text[:80]}")

    def _last_run(self, log: ObservedLog, known: CallFacts) -> Execution | None:
        """The last time a call was run, of those that still count."""
        runs = self.executions.get(log.id, ())
        counting = [run for run in runs if run.call == known.call.tool_call_id and run.started in known.started]
        return counting[-1] if counting else None

    # What tools do.

    async def work(self, surface: Surface, name: str, context: ToolContext, text: Any) -> str:
        """What every tool does."""
        if context.state is not self.state:
            self.fault(f"state: {name} did not get the application's state")
        self._check_hook(surface, name, context.tool_call_id)
        log = self.logs.get(context.conversation_id)
        run = Execution(name, context.tool_call_id, 0, self.process, surface)
        if log is None:
            if name not in ("inner", "inner_pay"):
                self.fault(f"{name} ran in an unknown conversation")
            if name == "inner_pay":
                self.fault("L11: inner_pay ran within a tool, where it cannot be approved")
        else:
            self._check_run(surface, log, run, text)
            self.executions.setdefault(log.id, []).append(run)
        for _ in range(3):
            await asyncio.sleep(0)
        if name in ("remember", "instruct") and self.history is not None and self.process == run.process:
            set_ = self.history.set_memory_notebook if name == "remember" else self.history.set_system_instruction
            set_(f"{name} {text}")
        run.has_ended = True
        self.ended_calls.add(context.tool_call_id)
        if name == "trip":
            raise ToolError("it tripped")
        return LONG_TEXT if name == "dump" else f"{name} did {context.tool_call_id}"

    def _check_hook(self, surface: Surface, name: str, call: str) -> None:
        """A tool runs only after the hook of its surface let it."""
        if surface.hook != HOOKS[0] and call not in self.hooked_calls:
            self.fault(f"hooks: {name} ran, and the hook was not asked")
        if (surface.hook, name) in (("refuses look", "look"), ("fails on put", "put")):
            self.fault(f"hooks: {name} ran although the hook {surface.hook}")

    def _check_run(self, surface: Surface, log: ObservedLog, run: Execution, text: Any) -> None:
        known = log.facts().get(run.call)
        if known is None:
            self.fault(f"L7: {run.tool} ran for a call that the log does not have")
            return
        if not known.started:
            self.fault(f"L7: {run.tool} ran without a start mark in the log")
            return
        run.started = known.started[-1]
        if known.result is not None or known.finished is not None:
            self.fault(f"L7: {run.tool} ran again after it had a result")
        if TOOLS[run.tool] == "once" and len(known.started) > 1:
            self.fault(f"L7: {run.tool} must not be repeated and was started {len(known.started)} times")
        self._check_approval(surface, log, known, run, text)

    def _check_approval(self, surface: Surface, log: ObservedLog, known: CallFacts, run: Execution, text: Any) -> None:
        """L11: it was allowed, if it had to be; and it runs with the arguments that were allowed."""
        decided = known.decision.decision if known.decision is not None else ""
        is_marked = surface.is_strict and needs_approval(run.tool, text)
        if decided == "deny":
            self.fault(f"L11: {run.tool} ran although a person denied it")
        elif not decided and (is_marked or run.call in log.reported or run.call in log.required):
            kind = "freeform call" if known.call.freeform else "call"
            where = "" if surface.is_strict else " on a surface where it is not marked"
            self.fault(f"L11: a {kind} of {run.tool} ran unasked{where}")
        arguments = known.call.arguments
        if known.decision is not None and known.decision.arguments is not None:
            arguments = known.decision.arguments
        allowed = arguments if known.call.freeform else json.loads(arguments or "{}").get("text", "")
        if allowed != text:
            self.fault(f"L11: {run.tool} ran with {text!r}, and allowed was {allowed!r}")

    def on_call(self, outcome: CallOutcome) -> None:
        self.measured_calls.add(outcome.call.tool_call_id)

    # What models do.

    async def answer(
        self, name: str, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[Item]:
        """One answer, as a stream that gives way between its deltas."""
        options.report.origin = Origin("any", name, MODELS[name])
        is_helper = _system_of(context).startswith(HELPER)
        self._check_request(context, options, is_helper)
        answer = self._next_answer(context, is_helper)
        yield Started(f"{name}_{self.model_calls}", MODELS[name])
        await asyncio.sleep(0)
        for index, part in enumerate(answer.parts):
            deltas = deltas_from_part(index, part, 12 if index else None)
            if answer.fate == "is cut" and part is answer.parts[-1]:
                deltas = deltas[:-1]
            for delta in deltas:
                yield delta
                await asyncio.sleep(0)
        if answer.aside is not None and self.history is not None:
            what, text = answer.aside
            set_ = self.history.set_memory_notebook if what == "notebook" else self.history.set_system_instruction
            set_(text)
        if answer.fate == "is cut":
            return
        if answer.fate == "fails":
            yield Failed(ProviderError("overloaded", "overloaded"))
            return
        yield UsageReported(TokenUsage(10, 5))
        calls = any(isinstance(part, ToolCallRequest) for part in answer.parts)
        yield Finished(answer.stop_reason or ("tool_calls" if calls else "end"))

    def _next_answer(self, context: Sequence[ContextEntry], is_helper: bool) -> Answer:
        if is_helper:
            has_looked = any(entry.role is ContextEntryRole.TOOL_RESULT for entry in context)
            looks = ToolCallRequest("inner", "", '{"text": "x"}')
            return Answer((Text(HELPED),) if has_looked else (looks,))
        self.model_calls += 1
        return self.script.popleft() if self.script else Answer((Text("That is all."),))

    def _check_request(self, context: Sequence[ContextEntry], options: ProviderCallOptions, is_helper: bool) -> None:
        """L4 and L9: this request is accepted in every format, and begins as the one before it."""
        log = self.logs.get(self.conversation)
        plain = [_undecorated(entry) for entry in context if entry.content or entry.live_screen is None]
        # breakpoints move with the end of the prompt, and are not part of it
        unmarked = structs.replace(
            options, settings=structs.replace(options.settings, cache_prompt=PromptCaching("off"))
        )
        if log is not None and not is_helper:
            shown, wanted = _system_of(context), log.settings
            if wanted.system not in shown or wanted.notebook not in shown:
                self.fault(f"settings: the model was shown {shown!r}, and in force are {wanted}")
        for name in FORMATS:
            target = Origin("any", name, MODELS[name])
            sent = b"".join(render_call(context, options, target).chunks)
            self.faults += (f"L4: {name}: {broken}" for broken in refused(name, sent))
            if log is None or is_helper:
                continue
            body = msgspec.json.decode(b"".join(render_call(plain, unmarked, target).chunks))
            messages = body.get(MESSAGES[name], [])
            beginnings, before = self._rendered.get((log.id, name), (-1, []))
            stable = before[:-1]
            if beginnings == log.beginnings and messages[: len(stable)] != stable:
                pairs = zip_longest(stable, messages[: len(stable)])
                was, is_now = next((one, other) for one, other in pairs if one != other)
                self.fault(f"L9: {name}: a message of the request before changed: {was} -> {is_now}")
            self._rendered[log.id, name] = log.beginnings, messages

    # What the application builds of it.

    def chat(
        self, surface: Surface, history: AgentHistory, model: str = "openai-chat", system: str | None = None
    ) -> Conversation:
        """A conversation as the application would make it for this surface."""
        return Conversation(
            CLIENTS[model],
            tools=(registry := ToolRegistry(toolbox(surface))),
            history=history,
            executor=self.executor(registry, surface),
            embedded_calls=True,
            system=system,
        )

    def executor(self, registry: ToolRegistry, surface: Surface) -> ToolExecutor:
        hooks = () if surface.hook == HOOKS[0] else (WorldHook(surface.hook),)
        return ToolExecutor(
            registry, state=self.state, on_call=self.on_call, max_result_chars=RESULT_CHARACTERS, hooks=hooks
        )


class Here:
    """The world of the example that runs now. Tools, agents and clients are made once, and find it here."""

    world = World()


HERE = Here()

TOOLS: dict[str, Effect] = {
    "look": "read",
    "put": "idempotent",
    "send": "once",
    "trip": "once",
    "dump": "read",
    "remember": "idempotent",
    "instruct": "idempotent",
    "pay": "once",
    "wire": "idempotent",
    "stamp": "once",
    "sign": "once",
    "inner": "read",
    "inner_pay": "once",
}
"""The tools of the world, each with its effect."""

COMMON = ("look", "put", "send", "trip", "dump", "remember", "instruct", "pay", "wire")


def needs_approval(name: str, text: Any) -> bool:
    """Which calls a strict surface wants a person for."""
    return name in ("pay", "sign", "inner_pay") or (name == "wire" and text != "small")


def _must_ask(call: ToolCallRequest, source: str) -> bool:
    """Whether a strict surface wants a person for this call, made by `source`."""
    if call.tool_name not in COMMON and source != "agent:expert":
        return False
    try:
        text = call.arguments if call.freeform else json.loads(call.arguments or "{}").get("text", "")
    except (ValueError, AttributeError, RecursionError):
        text = None
    return needs_approval(call.tool_name, text)


def _made(surface: Surface, name: str) -> Tool:
    is_marked: Any = False
    if surface.is_strict and name in ("pay", "sign", "inner_pay"):
        is_marked = True
    elif surface.is_strict and name == "wire":
        is_marked = lambda arguments: arguments["text"] != "small"  # noqa: E731 - which fails without a text

    @tool(name=name, effect=TOOLS[name], needs_approval=is_marked)
    async def work(context: ToolContext, text: str = "") -> str:
        "Does something."
        return await HERE.world.work(surface, name, context, text)

    return work


def _model(name: str) -> FunctionModel:
    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[Item]:
        return HERE.world.answer(name, context, options)

    return FunctionModel(answer, name=name)


CLIENTS: dict[str, ProviderClient] = {name: _model(name) for name in FORMATS}
_TOOLBOXES: dict[Surface, list[Tool]] = {}
_AGENTS: dict[Surface, list[Agent]] = {}


def toolbox(surface: Surface) -> list[Tool]:
    """The tools of the conversation itself; one of them is an agent."""
    if surface not in _TOOLBOXES:
        inner = [_made(surface, "inner"), _made(structs.replace(surface, is_strict=True), "inner_pay")]
        helper = Agent("helper", HELPER, tools=inner)
        _TOOLBOXES[surface] = [*(_made(surface, name) for name in COMMON), helper.as_tool()]
    return _TOOLBOXES[surface]


def agents(surface: Surface) -> list[Agent]:
    """Three agents that hand off to each other; one has no instructions, one a model of its own."""
    if not surface.has_agents:
        return []
    if surface not in _AGENTS:
        _AGENTS[surface] = [
            Agent("desk", "You are the desk.", tools=[_made(surface, "stamp")], hand_offs=("expert", "plain")),
            Agent(
                "expert",
                "You are the expert.",
                tools=[_made(surface, "sign")],
                hand_offs=("desk",),
                model=CLIENTS["gemini"],
            ),
            Agent("plain", tools=[_made(surface, "stamp")], hand_offs=("desk", "expert")),
        ]
    return _AGENTS[surface]


def refused(name: str, body: bytes) -> list[Any]:
    """What the API of this format would refuse of a request."""
    options: dict[str, Any] = {"model": MODELS[name]} if name == "gemini" else {}
    return list(formats[name].check_request(msgspec.json.decode(body), **options))


def _undecorated(entry: ContextEntry) -> ContextEntry:
    return entry.entry if isinstance(entry, DecoratedContextEntry) else entry


def _system_of(context: Sequence[ContextEntry]) -> str:
    first = context[0] if context else None
    if first is None or first.role is not ContextEntryRole.SYSTEM:
        return ""
    return "\n".join(part.text for part in first.content if isinstance(part, Text))
