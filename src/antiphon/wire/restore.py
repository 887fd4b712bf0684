"""An answer in the words of the request it answers.

A provider sees stand-ins for tool names it would refuse, and plain functions for freeform tools it does not have. In what it
answers, the names become the ones the client gave, and the calls of freeform tools freeform again. Nothing else is touched;
an answer without such calls comes back as the same object, and where no tool needs it (`is_idle`) nobody need be asked.
"""

from __future__ import annotations

import operator

import msgspec
from msgspec import Struct, structs

from antiphon.parts import OutputPart, ToolCallRequest
from antiphon.wire.delta import ModelOutputDelta, PartDelta, PartEnded, PartStarted
from antiphon.wire.ids import legal_name
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition

_LENGTHS = (64, 128)
"""How long a tool name may be, in one format or another: a stand-in was made for one of these."""


class _FreeformInput(Struct):
    input: str


class Restorer:
    """Puts the client's own words back into what a provider answers to `request`."""

    def __init__(self, request: ModelRequest) -> None:
        tools = [tool for tool in request.tools if isinstance(tool, ToolDefinition)]
        self._names = {legal_name(tool.name, length): tool.name for tool in tools for length in _LENGTHS}
        self._names |= {tool.name: tool.name for tool in tools}
        self._freeform = {tool.name for tool in tools if tool.freeform}
        self._held: dict[int, list[str]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to put back, whatever is answered: every tool has its own name and takes an object."""
        return not self._freeform and all(map(operator.eq, self._names.keys(), self._names.values()))

    def output(self, output: ModelOutput) -> ModelOutput:
        """A whole answer."""
        parts = tuple(self._part(part) for part in output.parts)
        others = tuple(self.output(other) for other in output.others)
        if _same(parts, output.parts) and _same(others, output.others):
            return output
        return structs.replace(output, parts=parts, others=others)

    def delta(self, delta: ModelOutputDelta) -> list[ModelOutputDelta]:
        """A piece of a streamed answer. The text of a freeform call is held until it is whole: it came wrapped in JSON."""
        if isinstance(delta, PartStarted) and isinstance(delta.part, ToolCallRequest):
            call = self._call(delta.part)
            if call.freeform and not delta.part.freeform:
                self._held[delta.index] = [call.arguments]
                call = structs.replace(call, arguments="")
            return [delta if call is delta.part else structs.replace(delta, part=call)]
        if isinstance(delta, PartDelta) and delta.index in self._held:
            self._held[delta.index].append(delta.text)
            return []
        if isinstance(delta, PartEnded) and delta.index in self._held:
            text = unwrapped("".join(self._held.pop(delta.index)))
            return [PartDelta(delta.index, text), delta]
        return [delta]

    def _part(self, part: OutputPart) -> OutputPart:
        if not isinstance(part, ToolCallRequest):
            return part
        call = self._call(part)
        is_wrapped = call.freeform and not part.freeform
        return structs.replace(call, arguments=unwrapped(call.arguments)) if is_wrapped else call

    def _call(self, call: ToolCallRequest) -> ToolCallRequest:
        """A call by the client's name for it, and freeform if its tool is; its arguments are left as they are."""
        name = self._names.get(call.tool_name, call.tool_name)
        freeform = call.freeform or name in self._freeform
        if name == call.tool_name and freeform == call.freeform:
            return call
        return structs.replace(call, tool_name=name, freeform=freeform)


def unwrapped(arguments: str) -> str:
    """The text of a freeform call that was made as a function with one `input`; other text as it is."""
    try:
        return msgspec.json.decode(arguments, type=_FreeformInput).input
    except msgspec.DecodeError:
        return arguments


def _same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return all(map(operator.is_, left, right))
