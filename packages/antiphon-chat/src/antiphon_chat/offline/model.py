"""`OfflineModel`: the guided tour as a provider. It is not a language model, and says so.

With it everything around a model works without a key or a network, and is deterministic. It calls the tool that a request
forces or that the message names, with arguments that fit the schema; it answers in JSON if a request demands it; it streams,
keeps to a limit of tokens and reports usage. Everything else is the tour (`tour.py`). It keeps no state between calls: the turn
is read from the context, so a conversation can switch to it from another model, or to another process, in the middle of a turn.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date

import msgspec
from msgspec import structs

from antiphon.context.tokens import CHARACTERS_PER_TOKEN, CharacterEstimate
from antiphon.history import (
    ContextEntry,
    ContextEntryRole,
    DecoratedContextEntry,
    HistoryEntry,
    ModelInputEntry,
    Origin,
)
from antiphon.parts import OutputPart, Text, TokenUsage, ToolCallRequest, ToolCallResult, text_of
from antiphon.providers.call import Attempt, ProviderCallOptions, ProviderClient
from antiphon.text import one_line
from antiphon.wire.delta import ModelOutputDelta, PartDelta, deltas_from_output
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ToolDefinition
from antiphon_chat.language import LANGUAGES, Language, current_language, say
from antiphon_chat.offline.schema_values import Words, fitting_value
from antiphon_chat.offline.tour import Step, TourTurn, calls_of, next_step, report

MODEL = "plain"
_MAX_MESSAGE_CHARS = 4_000
"""The request is at the start of a message; text after this many characters is material, and is not read."""
_CHINESE = re.compile(r"[\u3400-\u9fff]")


class OfflineModel(ProviderClient):
    """The provider `offline`. `pace` is the number of seconds between chunks of text; `today` returns the current date."""

    description = "A guided tour that runs the real tools. Not a language model; no key, no network."

    def __init__(
        self,
        name: str = "offline",
        *,
        pace: float = 0.0,
        chunk_size: int | None = 12,
        today: Callable[[], date] = date.today,
    ) -> None:
        self.name = name
        self.pace = pace
        self._chunk_size = chunk_size
        self._today = today

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        model = options.model or MODEL
        options.report.origin = Origin(self.name, "", model)
        options.report.attempts.append(Attempt(provider=self.name, model=model))
        parts = _answer(context, options, self._today(), f"{self.name}_{_place(context)}")
        output = _output(parts, context, f"{self.name}_{_place(context)}", model)
        output = _limited(output, options.settings.max_output_tokens)
        for delta in deltas_from_output(output, self._chunk_size):
            yield delta
            if self.pace and isinstance(delta, PartDelta):
                await asyncio.sleep(self.pace)


def _output(parts: tuple[OutputPart, ...], context: Sequence[ContextEntry], place: str, model: str) -> ModelOutput:
    estimate = CharacterEstimate()
    characters = sum(len(part.arguments if isinstance(part, ToolCallRequest) else text_of((part,))) for part in parts)
    has_calls = any(isinstance(part, ToolCallRequest) for part in parts)
    return ModelOutput(
        parts=parts,
        stop_reason="tool_calls" if has_calls else "end",
        id=place,
        model=model,
        usage=TokenUsage(sum(map(estimate.count, context)), -int(-characters // CHARACTERS_PER_TOKEN)),
    )


def _limited(output: ModelOutput, limit: int | None) -> ModelOutput:
    """The output as a limit of tokens ends it. A call is never cut: its arguments would not be JSON."""
    match output.parts:
        case (Text(text=text),) if (
            limit is not None and output.usage is not None and output.usage.completion_tokens > limit
        ):
            cut = structs.replace(output.parts[0], text=text[: int(limit * CHARACTERS_PER_TOKEN)])
            usage = structs.replace(output.usage, completion_tokens=limit)
            return structs.replace(output, parts=(cut,), usage=usage, stop_reason="length")
    return output


def _answer(
    context: Sequence[ContextEntry], options: ProviderCallOptions, today: date, place: str
) -> tuple[OutputPart, ...]:
    tools, must_call = _allowed(options)
    turn = _turn_of(context, options, today, tools)
    wanted = _wanted_tool(turn, tools, must_call)
    if wanted is not None:
        call = _call_of(wanted, f"{place}_1", turn.message)
        what = one_line(call.arguments)[:80]
        has_arguments = what not in ("", "{}")
        sentence = turn.say("calling" if has_arguments else "calling_plain", tool=wanted.name, what=what)
        return Text(_noticed(turn, sentence)), call
    form = options.settings.output_format
    if form is not None and form.kind != "text":
        schema = form.schema or {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return (Text(msgspec.json.encode(fitting_value(schema, Words(turn.message))).decode()),)
    step = _report_step(turn) or next_step(turn)
    text = Text(step.text if step.introduces else _noticed(turn, step.text))
    if not step.tool:
        return (text,)
    return text, ToolCallRequest(step.tool, f"{place}_1", msgspec.json.encode(step.arguments).decode())


def _allowed(options: ProviderCallOptions) -> tuple[tuple[ToolDefinition, ...], bool]:
    """The tools that may be called, and whether one of them must be."""
    choice = options.settings.tool_choice
    if choice is None or choice.mode == "auto":
        return options.tools, False
    if choice.mode == "none":
        return (), False
    if choice.mode == "required":
        return options.tools, True
    tools = tuple(tool for tool in options.tools if tool.name in choice.names)
    return tools, choice.mode == "tool" or choice.must_call


def _wanted_tool(turn: TourTurn, tools: Sequence[ToolDefinition], must_call: bool) -> ToolDefinition | None:
    """The first tool that the message names and that was not called in this turn; else one if one must be called."""
    called = {result.tool_name for result in turn.results}
    places = ((_place_of(tool.name, turn.message), tool) for tool in tools if tool.name not in called)
    named = min(((place, tool) for place, tool in places if place >= 0), key=lambda pair: pair[0], default=None)
    if named is not None:
        return named[1]
    return tools[0] if must_call and tools and not turn.results else None


def _report_step(turn: TourTurn) -> Step | None:
    """The results of the tools that the request forced or the message named."""
    own = calls_of(turn)
    is_named = (_place_of(result.tool_name, turn.message) >= 0 for result in turn.results)
    reported = [
        result for result, named in zip(turn.results, is_named, strict=True) if named or result.tool_name not in own
    ]
    return Step("\n\n".join(report(turn, result) for result in reported)) if reported else None


def _place_of(name: str, message: str) -> int:
    """Where a message names a tool; -1 if it does not."""
    found = re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", message, re.IGNORECASE)
    return found.start() if found else -1


def _call_of(tool: ToolDefinition, call_id: str, message: str) -> ToolCallRequest:
    place = _place_of(tool.name, message)
    if tool.freeform:
        return ToolCallRequest(tool.name, call_id, message, freeform=True)
    after = message[place + len(tool.name) :] if place >= 0 else message
    schema = {"type": "object", **(tool.parameters if isinstance(tool.parameters, dict) else {})}
    arguments = fitting_value(schema, Words(after))
    if not isinstance(arguments, dict):  # they are an object, whatever the tool says
        arguments = {}
    return ToolCallRequest(tool.name, call_id, msgspec.json.encode(arguments).decode())


def _noticed(turn: TourTurn, text: str) -> str:
    spoken = (entry for entry in turn.context if entry.role is ContextEntryRole.MODEL_OUTPUT)
    known = [mark for language in LANGUAGES for mark in (say(language, "notice"), say(language, "hello")[:30])]
    if any(mark in text_of(entry.content) for entry in spoken for mark in known):
        return text
    return f"{turn.say('notice')}\n\n{text}"


def _turn_of(
    context: Sequence[ContextEntry], options: ProviderCallOptions, today: date, tools: Sequence[ToolDefinition]
) -> TourTurn:
    place = next((place for place in range(len(context) - 1, -1, -1) if _is_user_input(context[place])), len(context))
    content = context[place].content if place < len(context) else ()
    message = text_of(content)[:_MAX_MESSAGE_CHARS]
    parts = [part for entry in context[place + 1 :] for part in entry.content]
    names = {part.tool_call_id: part.tool_name for part in parts if isinstance(part, ToolCallRequest)}
    results = tuple(  # a result in a request has the id of its call, and a name only in some formats
        structs.replace(part, tool_name=names.get(part.tool_call_id, part.tool_name))
        for part in parts
        if isinstance(part, ToolCallResult)
    )
    return TourTurn(
        message,
        _language_of(message, context[:place]),
        results,
        sum(not isinstance(part, Text) for part in content),
        context,
        options,
        frozenset(tool.name for tool in tools),
        today,
    )


def _language_of(message: str, before: Sequence[ContextEntry]) -> Language:
    """Chinese if the message has Chinese characters. One without letters, such as `1`, and `help` are in the language of the
    last answer, else of the chat."""
    if _CHINESE.search(message):
        return "zh"
    if any(letter.isalpha() for letter in message) and message.strip().lower() != "help":
        return "en"
    outputs = (text_of(entry.content) for entry in reversed(before) if entry.role is ContextEntryRole.MODEL_OUTPUT)
    last = next(outputs, None)
    if last is None:
        return current_language()
    return "zh" if len(_CHINESE.findall(last)) > 20 else "en"


def _is_user_input(entry: ContextEntry) -> bool:
    """Whether the input is from the user: not from an operator, and with content of its own."""
    logged = entry.entry if isinstance(entry, DecoratedContextEntry) else entry
    if isinstance(logged, ModelInputEntry) and logged.channel in ("system", "developer"):
        return False
    return entry.role is ContextEntryRole.MODEL_INPUT and bool(entry.content)


def _place(context: Sequence[ContextEntry]) -> int:
    """A number unique in the history: that of the entry it answers."""
    if not context:
        return 0
    last = context[-1].entry if isinstance(context[-1], DecoratedContextEntry) else context[-1]
    return last.sequence_number if isinstance(last, HistoryEntry) and last.sequence_number else len(context)
