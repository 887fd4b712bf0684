"""Results from the log instead of running tools: what a replay answers calls with.

A call is the same as a recorded one if it names the same tool and its arguments mean the same JSON. Calls that were recorded
several times get their results in that order, then the last one again. A call that was denied or not run has no result here.

`RecordedExecutor` is a `ToolExecutor`, so `ToolCallRunner` stays the only code that starts a call, and approvals hold as always
(law L11). `CallPolicy` is what happens to a call that the log does not have: `log` and `ask` let it wait for a person, `run`
treats it as in any turn, `skip` gives the model a result that says so. Nothing runs without being asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, Unpack, get_args

from msgspec import Struct, structs

from antiphon.errors import ToolError
from antiphon.history import (
    AgentHistorySnapshot,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.call_runner import CANCELLED, UNKNOWN_OUTCOME, skipped_result
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ExecuteOptions, ToolExecutor
from antiphon.tools.hooks import CallOutcome
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool

CallPolicy: TypeAlias = Literal["log", "ask", "run", "skip"]
CALL_POLICIES: tuple[CallPolicy, ...] = get_args(CallPolicy)

_SERVED = "replayed_results"
_CallKey: TypeAlias = tuple[str, bytes]


class RecordedResult(Struct, frozen=True):
    """A result and the number of the entry it is in."""

    entry: int
    result: ToolCallResult


def call_key(call: ToolCallRequest) -> _CallKey:
    """What makes two calls of a log the same: the tool and what its arguments mean."""
    return call.tool_name, call.canonical_arguments


class RecordedResults:
    """The results of a log by call. Those after entry `after` are preferred; an earlier one counts if there is none."""

    def __init__(self, snapshot: AgentHistorySnapshot, after: int = 0) -> None:
        self.conversation = ""
        """The id of the conversation they are from; empty if it is in memory."""
        self._results: dict[_CallKey, list[RecordedResult]] = {}
        self._arguments: dict[str, list[dict[str, Any]]] = {}
        self._used: dict[_CallKey, int] = {}
        open_calls: dict[str, ToolCallRequest] = {}
        for entry in snapshot.effective:
            if isinstance(entry, ModelOutputEntry):
                open_calls = {call.tool_call_id: call for call in entry.tool_calls}
            elif isinstance(entry, ToolCallResultsEntry):
                for result in entry.results:
                    if (call := open_calls.get(result.tool_call_id)) is not None and _is_outcome(result):
                        self._add(call, RecordedResult(entry.sequence_number, result), after)

    def __contains__(self, call: ToolCallRequest) -> bool:
        return call_key(call) in self._results

    def take(self, call: ToolCallRequest) -> RecordedResult | None:
        """The next result of this call; None if it is not recorded."""
        key = call_key(call)
        recorded = self._results.get(key)
        if recorded is None:
            return None
        number = self._used.get(key, 0)
        self._used[key] = number + 1
        found = recorded[min(number, len(recorded) - 1)]
        return structs.replace(found, result=structs.replace(found.result, tool_call_id=call.tool_call_id))

    def missing_tools(self, registry: ToolRegistry) -> list[Tool]:
        """The tools of recorded calls that a registry does not have: a model may call them, and only the log answers."""
        return [
            Tool.from_schema(name, f"Recorded tool {name}.", _schema_of(calls), _unavailable(name))
            for name, calls in self._arguments.items()
            if name not in registry and name and not any(map(str.isspace, name))
        ]

    def _add(self, call: ToolCallRequest, found: RecordedResult, after: int) -> None:
        key = call_key(call)
        known = self._results.setdefault(key, [])
        if known and known[-1].entry <= after:
            known.clear()  # before the fork only the last one counts, and only if nothing follows
        known.append(found)
        if not call.freeform:
            try:
                self._arguments.setdefault(call.tool_name, []).append(call.parse_arguments())
            except ValueError:
                return  # says nothing about the parameters


def _is_outcome(result: ToolCallResult) -> bool:
    if result.status is ToolExecutionStatus.SKIPPED:
        return False
    return result.status is ToolExecutionStatus.SUCCESS or result.result_markdown not in (UNKNOWN_OUTCOME, CANCELLED)


_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _schema_of(calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A schema that fits the recorded arguments: the log has no definitions."""
    names = dict.fromkeys(name for arguments in calls for name in arguments)
    properties: dict[str, Any] = {}
    for name in names:
        types = {_JSON_TYPES.get(type(arguments[name])) for arguments in calls if name in arguments}
        kind = types.pop() if len(types) == 1 else None
        properties[name] = {"type": kind} if kind and kind != "array" else {}
    required = [name for name in names if all(name in arguments for arguments in calls)]
    return {"type": "object", "properties": properties, "required": required}


def _unavailable(name: str) -> Callable[[dict[str, Any], ToolContext], NoReturn]:
    def refuse(arguments: dict[str, Any], context: ToolContext) -> NoReturn:  # noqa: ARG001 - what a handler gets
        raise ToolError(f"{name} is not available here; only its recorded calls have results.", retry=False)

    return refuse


class RecordedExecutor(ToolExecutor):
    """Answers calls from a log, and treats the others as `policy` says. Settings and tools are those of `executor`."""

    def __init__(self, executor: ToolExecutor, recorded: RecordedResults, policy: CallPolicy) -> None:
        vars(self).update(vars(executor))
        self.recorded = recorded
        self.policy = policy

    def needs_approval(self, tool: Tool | None, call: ToolCallRequest) -> bool:
        """Whether the call waits for a person. A recorded one does not: nothing runs."""
        if tool is None or tool.is_log_only:
            return super().needs_approval(tool, call)
        if call in self.recorded or self.policy == "skip":
            return False
        return self.policy != "run" or super().needs_approval(tool, call)

    async def execute(
        self, calls: Sequence[ToolCallRequest], **options: Unpack[ExecuteOptions]
    ) -> list[ToolCallResult]:
        """The results of the calls, in order: from the log, or of running what may run."""
        observer, history = options.get("observer"), options.get("history")
        served: dict[int, ToolCallResult] = {}
        sources: dict[str, int] = {}
        for index, call in enumerate(calls):
            tool = self.registry.get(call.tool_name)
            if tool is not None and tool.is_log_only:
                continue
            if (found := self.recorded.take(call)) is not None:
                served[index] = found.result
                sources[call.tool_call_id] = found.entry
            elif self.policy == "skip" and tool is not None:
                served[index] = skipped_result(call, "this is a replay, and its log has no result of this call")
        if sources and history is not None:
            history.append(_served_note(sources, self.recorded.conversation))
        for index, result in served.items():
            if observer is not None:
                observer.finished(calls[index], result, CallOutcome(calls[index], result, 0.0, is_cached=True))
        others = [call for index, call in enumerate(calls) if index not in served]
        if others:
            ran = iter(await super().execute(others, **options))
        return [served[index] if index in served else next(ran) for index in range(len(calls))]


def _served_note(sources: dict[str, int], conversation: str) -> DebugLogEntry:
    """The note that says which results are from the log, and from which of its entries."""
    entries = ", ".join(map(str, dict.fromkeys(sources.values())))
    origin = f" of {conversation}" if conversation else ""
    text = f"Results of {len(sources)} calls from the log{origin}, entries {entries}; nothing was run."
    return DebugLogEntry("replay", text, metadata=EntryMetadata(extra={_SERVED: sources}))


def served_calls(entries: Iterable[HistoryEntry]) -> dict[str, int]:
    """The calls in these entries whose results are from a log, with the numbers of the entries there."""
    found: dict[str, int] = {}
    for entry in entries:
        found.update(entry.extra(_SERVED) or {})
    return found
