"""Models without a network, for tests and documentation: `ScriptedModel` plays turns, `FunctionModel` calls a function.

A turn may be text, a part or parts, a `ModelOutput`, a list of deltas, or an error. What a test leaves out is derived: ids from
the number of the turn and the length of the context, the stop reason from whether there are tool calls, usage from characters.
Nothing is random or taken from the clock, so a test sees the same stream each time. A list of deltas is played unchanged; without
a terminal event it is a cut stream.

A turn costs microseconds whatever the length of the context, because only new entries are counted. With `chunk_size=None` each
text is one delta.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, get_args

import msgspec
from msgspec import Struct, structs

from antiphon.context.tokens import CHARACTERS_PER_TOKEN, CharacterEstimate
from antiphon.errors import ScriptError, ScriptExhausted
from antiphon.history import ContextEntry, ContextEntryRole, Origin
from antiphon.parts import OutputPart, Text, TokenUsage, ToolCallRequest, as_parts, text_of
from antiphon.providers.call import Attempt, ProviderCallOptions, ProviderClient
from antiphon.providers.engine.reply import CUT_STREAM
from antiphon.text import common_prefix
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
    deltas_from_output,
    deltas_from_part,
)
from antiphon.wire.output import ModelOutput, ProviderError

Item: TypeAlias = str | OutputPart | ModelOutputDelta
"""A piece of an answer. An answer consists of texts and parts, or of deltas, not of both."""

ScriptedAnswer: TypeAlias = str | OutputPart | Sequence[Item] | ModelOutput | ProviderError | Failed
"""An answer in any accepted form."""


Turn: TypeAlias = (
    ScriptedAnswer | Callable[[Sequence[ContextEntry], ProviderCallOptions], ScriptedAnswer | Awaitable[ScriptedAnswer]]
)
"""One turn of a script: an answer, or a function of the context and the options."""

ModelFunction: TypeAlias = Callable[
    [Sequence[ContextEntry], ProviderCallOptions], ScriptedAnswer | Awaitable[ScriptedAnswer] | AsyncIterator[Item]
]

_DELTAS = get_args(ModelOutputDelta)
_PARTS = get_args(OutputPart)
_IMMEDIATE = (str, *_PARTS, list, tuple, ModelOutput)
"""Answers that are not awaitable."""


class ScriptedCall(Struct, frozen=True):
    """One call of a scripted model: the context and the options."""

    context: tuple[ContextEntry, ...]
    options: ProviderCallOptions


def call(tool_name: str, /, **arguments: Any) -> ToolCallRequest:
    """A call of a tool, for a script: `call("weather", city="Oslo")`. Its id is set when it is played."""
    return ToolCallRequest(tool_name, "", msgspec.json.encode(arguments).decode())


class _PlayedModel(ProviderClient):
    """A model that plays the answers that it is given."""

    def __init__(self, name: str, chunk_size: int | None) -> None:
        if chunk_size is not None and chunk_size < 1:
            raise ScriptError(f"chunk_size is {chunk_size}; it must be at least 1, or None for one piece")
        self.name = name
        self._chunk_size = chunk_size
        self._played = 0
        self._token_counter = _TokenCounter()

    @abstractmethod
    def _answer(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> Any:
        """The next answer, in any form, also one to await."""

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        self._played += 1
        source = self._answer(context, options)
        turn = _ScriptedTurn(self, context, options)
        if not isinstance(source, _IMMEDIATE):
            if inspect.isawaitable(source):
                source = await source
            if isinstance(source, AsyncIterator):
                async with aclosing(turn.stream(source)) as streamed:
                    async for delta in streamed:
                        yield delta
                return
        for delta in turn.play(source):
            yield delta


class ScriptedModel(_PlayedModel):
    """A model that plays its turns, one per call, in order.

    `calls` records the calls, unless `record` is off. `turns_left` is the number of turns not played yet.
    """

    def __init__(self, *turns: Turn, name: str = "scripted", chunk_size: int | None = 12, record: bool = True) -> None:
        super().__init__(name, chunk_size)
        self.calls: list[ScriptedCall] = []
        self._turns = turns
        self._record = record

    @property
    def turns_left(self) -> int:
        """The number of turns not played yet."""
        return max(0, len(self._turns) - self._played)

    def _answer(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> Any:
        if self._played > len(self._turns):
            raise ScriptExhausted(
                f"the script of {self.name!r} has {_plural(len(self._turns), 'turn')}, all played, and it was called again: "
                f"{_last_input(context)}. Add a turn to ScriptedModel, or find out why there was another call"
            )
        if self._record:
            self.calls.append(ScriptedCall(tuple(context), options))
        turn = self._turns[self._played - 1]
        return turn(context, options) if callable(turn) else turn


class FunctionModel(_PlayedModel):
    """A model that is a function of the context and the options.

    The function, sync or async, returns any answer that a script may contain, or is an async generator of texts, parts or
    deltas, which are streamed as they come.
    """

    def __init__(self, function: ModelFunction, name: str = "function", *, chunk_size: int | None = 12) -> None:
        super().__init__(name, chunk_size)
        self._function = function

    def _answer(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> Any:
        return self._function(context, options)


class _TokenCounter:
    """Counts the tokens of a context: what it begins with is counted once, also if its end or its middle changes."""

    def __init__(self) -> None:
        self._estimate = CharacterEstimate()
        self._seen: list[ContextEntry] = []
        self._totals = [0]
        """The tokens of the first 0, 1, 2, … entries that were seen."""

    def tokens(self, context: Sequence[ContextEntry]) -> int:
        entries, totals = list(context), self._totals
        same = common_prefix(self._seen, entries)
        del totals[same + 1 :]
        for entry in entries[same:]:
            totals.append(totals[-1] + self._estimate.count(entry))
        self._seen = entries
        return totals[-1]


class _ScriptedTurn:
    """One turn as deltas, with ids, usage and a stop reason where the script has none."""

    def __init__(self, model: _PlayedModel, context: Sequence[ContextEntry], options: ProviderCallOptions) -> None:
        self._provider = model.name
        self._model = options.model or model.name
        self._report = options.report
        self._report.origin = Origin(self._provider, "", self._model)
        self._context = context
        self._token_counter = model._token_counter
        self._chunk_size = model._chunk_size
        # The context length keeps ids distinct in a resumed history, the turn after a rollback.
        self._place = f"{len(context)}_{model._played}"
        self._id = f"{self._provider}_{self._place}"
        self._index = -1  # of the last part
        self._is_open = False  # it is a text that may continue
        self._calls = self._characters = 0

    def play(self, source: Any) -> Sequence[ModelOutputDelta]:
        """The deltas of an answer that is there as a whole."""
        parts: Sequence[Any]
        if isinstance(source, str):
            parts = (Text(source),)
        elif isinstance(source, _PARTS):
            parts = (source,)
        elif isinstance(source, ModelOutput):
            self._record_attempt(None)
            return deltas_from_output(self._completed(source), self._chunk_size)
        elif isinstance(source, ProviderError):
            return self._replay((Failed(source),))
        elif isinstance(source, Failed):
            return self._replay((source,))
        elif isinstance(source, list | tuple):
            if source and isinstance(source[0], _DELTAS):
                return self._replay(source)
            parts = as_parts(source)
        else:
            raise ScriptError(
                f"{self._provider!r} cannot play {source!r}; use text, parts, a ModelOutput, deltas or a ProviderError"
            )
        deltas: list[ModelOutputDelta] = [Started(self._id, self._model)]
        for part in parts:
            deltas += self._add(part)
        return deltas + self._end()

    async def stream(self, items: AsyncIterator[Item]) -> AsyncGenerator[ModelOutputDelta, None]:
        """The deltas of a generator as they come: its own, or those of its texts and parts."""
        try:
            item: Any = await anext(items, "")
            if isinstance(item, _DELTAS):
                yield item
                async for item in items:
                    yield item
                for ending in self._replay((item,))[1:]:
                    yield ending
                return
            yield Started(self._id, self._model)
            for delta in self._add(item):
                yield delta
            async for item in items:
                for delta in self._add(item):
                    yield delta
            for delta in self._end():
                yield delta
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    def _add(self, item: str | OutputPart) -> list[ModelOutputDelta]:
        """The deltas of a part, or of a piece of text, which continues the piece before it."""
        deltas: list[ModelOutputDelta] = []
        if isinstance(item, str):
            if item and not self._is_open:
                self._index += 1
                self._is_open = True
                deltas.append(PartStarted(self._index, Text("")))
            if item:
                deltas.append(PartDelta(self._index, item))
            self._characters += len(item)
            return deltas
        if self._is_open:
            deltas.append(PartEnded(self._index))
            self._is_open = False
        self._index += 1
        part = self._with_id(item)
        self._characters += _characters(part)
        return [*deltas, *deltas_from_part(self._index, part, self._chunk_size)]

    def _end(self) -> list[ModelOutputDelta]:
        self._record_attempt(None)
        ended: list[ModelOutputDelta] = [PartEnded(self._index)] if self._is_open else []
        return [*ended, UsageReported(self._usage(self._characters)), Finished("tool_calls" if self._calls else "end")]

    def _completed(self, output: ModelOutput) -> ModelOutput:
        """The output with defaults for what the script left out."""
        parts = tuple([self._with_id(part) for part in output.parts])
        return structs.replace(
            output,
            parts=parts,
            stop_reason=output.stop_reason or ("tool_calls" if self._calls else "end"),
            id=output.id or self._id,
            model=output.model or self._model,
            usage=output.usage or self._usage(sum(map(_characters, parts))),
        )

    def _replay(self, deltas: Sequence[ModelOutputDelta]) -> Sequence[ModelOutputDelta]:
        """Deltas unchanged; without a terminal event they are a cut stream."""
        last = deltas[-1]
        if not isinstance(last, Finished | Failed):
            last = Failed(CUT_STREAM)
            deltas = (*deltas, last)
        self._record_attempt(last.error if isinstance(last, Failed) else None)
        return deltas

    def _with_id(self, part: OutputPart) -> OutputPart:
        """The part; a tool call without an id gets one."""
        if type(part) is not ToolCallRequest:
            return part
        self._calls += 1
        return part if part.tool_call_id else structs.replace(part, tool_call_id=f"call_{self._place}_{self._calls}")

    def _usage(self, characters: int) -> TokenUsage:
        return TokenUsage(self._token_counter.tokens(self._context), -int(-characters // CHARACTERS_PER_TOKEN))

    def _record_attempt(self, error: ProviderError | None) -> None:
        self._report.attempts.append(Attempt(provider=self._provider, model=self._model, error=error))


def _characters(part: Any) -> int:
    return len(part.arguments) if type(part) is ToolCallRequest else len(getattr(part, "text", ""))


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _last_input(context: Sequence[ContextEntry]) -> str:
    """The last entry of a context, in a few words."""
    if not context:
        return "with an empty context"
    entry = context[-1]
    if entry.role is ContextEntryRole.TOOL_RESULT:
        names = ", ".join(str(getattr(part, "tool_name", "")) for part in entry.content if hasattr(part, "tool_name"))
        return f"after {_plural(len(entry.content), 'result')} of tools ({names})"
    return f"after {entry.role.value} {text_of(entry.content)[:80]!r}"
