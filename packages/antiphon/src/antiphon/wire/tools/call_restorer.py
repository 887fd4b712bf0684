"""The way back of tool calls: the client's tool names, namespaces and arguments in what a provider answers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from msgspec import structs

from antiphon.parts import OutputPart, ToolCallRequest
from antiphon.wire.capabilities import tool_name_lengths, tool_name_matcher
from antiphon.wire.delta import ModelOutputDelta, PartDelta, PartEnded, PartStarted
from antiphon.wire.output import ModelOutput
from antiphon.wire.provenance import LEGACY_FUNCTION, is_legacy_function
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon.wire.spec import spec_of
from antiphon.wire.tools.definitions import all_identical, argument_restorer
from antiphon.wire.tools.names import safe_name
from antiphon.wire.tools.namespaces import flatten


class CallRestorer:
    """Puts the client's tool names, namespaces and arguments back into what a provider answers to `request`.

    Arguments were changed if the tool is freeform, if its schema is not an object (they are in `value`), or if a property name
    was replaced. A call of a legacy function is a `function_call` again.

    Everything else is untouched: an answer without such calls comes back as the same object.
    """

    def __init__(self, request: ModelRequest) -> None:
        self._namespaces: dict[str, tuple[str, str]] = {}  # name and namespace, by the name outside of it
        self._namespace_origin = ""
        if request.source is not None and (flat := flatten(request)) is not None:
            request, self._namespaces, self._namespace_origin = flat.request, flat.names, flat.origin
        tools = [tool for tool in request.tools if isinstance(tool, ToolDefinition)]
        self._names: dict[str, str] = {}  # the client's, by those that a provider may use
        self._freeform: set[str] = set()
        self._legacy: set[str] = set()
        self._legacy_index: int | None = None  # of the only call in a stream that is one of the legacy API
        self._arguments: dict[str, Callable[[str], str]] = {}
        for tool in tools:
            for length in tool_name_lengths():
                self._names[safe_name(tool.name, length)] = tool.name
            if tool.freeform:
                self._freeform.add(tool.name)
            if is_legacy_function(tool):
                self._legacy.add(tool.name)
            if (restore := argument_restorer(tool)) is not None:
                self._arguments[tool.name] = restore
        for tool in tools:
            self._names[tool.name] = tool.name
        self.buffered: dict[int, tuple[Callable[[str], str], list[str]]] = {}
        """The arguments so far that are restored when they are complete. While there are none, text passes as it is."""

    @property
    def is_noop(self) -> bool:
        """Whether no answer can need restoring: every tool has its own name and takes an object."""
        return (
            not self._arguments
            and not self._namespaces
            and not self._legacy
            and all(map(operator.eq, self._names.keys(), self._names.values()))
        )

    def output(self, output: ModelOutput) -> ModelOutput:
        """Restore a whole answer."""
        parts = tuple(self._part(part) for part in output.parts)
        if self._legacy:
            parts = self._with_legacy_call(parts)
        others = tuple(self.output(other) for other in output.others)
        if all_identical(parts, output.parts) and all_identical(others, output.others):
            return output
        return structs.replace(output, parts=parts, others=others)

    def deltas(self, deltas: Iterable[ModelOutputDelta]) -> list[ModelOutputDelta]:
        """Restore some deltas."""
        restored: list[ModelOutputDelta] = []
        for delta in deltas:
            restored += self.delta(delta)
        return restored

    def delta(self, delta: ModelOutputDelta) -> list[ModelOutputDelta]:
        """Restore a delta. Arguments that must be changed are buffered until they are complete."""
        if isinstance(delta, PartStarted) and isinstance(delta.part, ToolCallRequest):
            call = self._call(delta.part)
            if self._legacy and (self._legacy_index is None or self._legacy_index == delta.index):
                self._legacy_index, call = delta.index, self._as_legacy(call)
            restore = self._restorer_of(delta.part)
            if restore is not None:
                self.buffered[delta.index] = restore, [call.arguments]
                call = structs.replace(call, arguments="")
            return [delta if call is delta.part else structs.replace(delta, part=call)]
        if isinstance(delta, PartDelta) and delta.index in self.buffered:
            self.buffered[delta.index][1].append(delta.text)
            return []
        if isinstance(delta, PartEnded) and delta.index in self.buffered:
            restore, pieces = self.buffered.pop(delta.index)
            return [PartDelta(delta.index, restore("".join(pieces))), delta]
        return [delta]

    def _part(self, part: OutputPart) -> OutputPart:
        if not isinstance(part, ToolCallRequest):
            return part
        call, restore = self._call(part), self._restorer_of(part)
        if restore is None or (arguments := restore(call.arguments)) == call.arguments:
            return call
        return structs.replace(call, arguments=arguments)

    def _with_legacy_call(self, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
        """The parts with their only call as one of the legacy API, which has no second call."""
        calls = [index for index, part in enumerate(parts) if isinstance(part, ToolCallRequest)]
        if len(calls) != 1:
            return parts
        return tuple(self._as_legacy(part) if isinstance(part, ToolCallRequest) else part for part in parts)

    def _as_legacy(self, call: ToolCallRequest) -> ToolCallRequest:
        if call.tool_name not in self._legacy or is_legacy_function(call):
            return call
        return structs.replace(call, source=LEGACY_FUNCTION)

    def _restorer_of(self, call: ToolCallRequest) -> Callable[[str], str] | None:
        if call.freeform:
            return None
        return self._arguments.get(self._names.get(call.tool_name, call.tool_name))

    def _call(self, call: ToolCallRequest) -> ToolCallRequest:
        """The call with the client's tool name, freeform if its tool is; the arguments stay."""
        name = self._names.get(call.tool_name, call.tool_name)
        freeform = call.freeform or name in self._freeform
        if name == call.tool_name and freeform == call.freeform and name not in self._namespaces:
            return call
        native = call.native
        if name in self._namespaces:
            name, namespace = self._namespaces[name]
            native = {**(native or {}), self._namespace_origin: {"namespace": namespace}}
        return structs.replace(call, tool_name=name, freeform=freeform, native=native)


def must_restore_calls(request: ModelRequest, format_name: str) -> bool:
    """Whether the answer to `request` in this format may have calls that `CallRestorer` has to change."""
    spec = spec_of(format_name)
    is_legal, has_freeform = tool_name_matcher(format_name), spec is not None and spec.has_freeform_tools
    return any(
        not is_legal(tool.name) or (argument_restorer(tool) is not None and not (tool.freeform and has_freeform))
        for tool in request.tools
        if isinstance(tool, ToolDefinition)
    )
