"""`OfflineModel`: rules that read the last message and the available tools, and make real tool calls.

It is not a language model, and its first answer starts with that notice. With it, everything around a model (the loop, the tools,
the store, streaming) works without a key or a network, and is deterministic.

Each call reads the whole turn again: the message is parsed into steps, the calls made so far are matched with the steps in order,
and the first step without a call is next. A failed call is corrected once, if its error shows how. Every step is called at most
twice and there are at most four steps, so a turn ends; when no tools are offered any more, it summarizes the results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.chat.offline.answers import Outcome, answer_of, first_line
from antiphon.chat.offline.clauses import Clause, Language
from antiphon.chat.offline.corrections import corrected
from antiphon.chat.offline.offered import Offer, Offers
from antiphon.chat.offline.results import short
from antiphon.chat.offline.steps import Found, Ready, Step, Stuck, prepared, steps_of
from antiphon.chat.offline.turn import Done, Turn, turn_of
from antiphon.chat.offline.wording import NOTICE, say
from antiphon.context.tokens import CHARACTERS_PER_TOKEN, CharacterEstimate
from antiphon.history import ContextEntry, DecoratedContextEntry, HistoryEntry, Origin, TokenUsage
from antiphon.parts import OutputPart, Text, ToolCallRequest
from antiphon.providers.call import Attempt, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.engine.response_reader import deltas_from_output
from antiphon.wire.delta import ModelOutputDelta, PartDelta
from antiphon.wire.output import ModelOutput

MODEL = "plain"


class Decision(Struct, frozen=True):
    """The next action: text, and the tool call with its arguments, if any."""

    words: str
    offer: Offer | None = None
    arguments: dict[str, Any] = {}


class OfflineModel(ProviderClient):
    """The provider `offline`. `pace` is the number of seconds between chunks of text; `today` returns the current date."""

    description = "Deterministic rules over the tools on offer. Not a language model; no key, no network."

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
        turn = turn_of(context)
        decision = decide(turn, Offers(options.tools, options.settings.tool_choice), self._today())
        for delta in deltas_from_output(self._output(turn, decision, context, model), self._chunk_size):
            yield delta
            if self.pace and isinstance(delta, PartDelta):
                await asyncio.sleep(self.pace)

    def _output(self, turn: Turn, decision: Decision, context: Sequence[ContextEntry], model: str) -> ModelOutput:
        place = f"{self.name}_{_place(context)}"
        words = f"{NOTICE[turn.language]}\n\n{decision.words}" if turn.is_first else decision.words
        parts: list[OutputPart] = [Text(words)]
        if decision.offer is not None:
            parts.append(_call(decision.offer, f"{place}_1", decision.arguments))
        estimate = CharacterEstimate()
        characters = sum(len(part.arguments if isinstance(part, ToolCallRequest) else words) for part in parts)
        return ModelOutput(
            parts=tuple(parts),
            stop_reason="end" if decision.offer is None else "tool_calls",
            id=place,
            model=model,
            usage=TokenUsage(sum(map(estimate.count, context)), -int(-characters // CHARACTERS_PER_TOKEN)),
        )


def _call(offer: Offer, call_id: str, arguments: dict[str, Any]) -> ToolCallRequest:
    if offer.tool.freeform:
        return ToolCallRequest(offer.name, call_id, str(arguments.get("", "")), freeform=True)
    return ToolCallRequest(offer.name, call_id, msgspec.json.encode(arguments).decode())


def _place(context: Sequence[ContextEntry]) -> int:
    """A number unique in the history: that of the entry it answers."""
    if not context:
        return 0
    last = context[-1].entry if isinstance(context[-1], DecoratedContextEntry) else context[-1]
    return last.sequence_number if isinstance(last, HistoryEntry) and last.sequence_number else len(context)


def decide(turn: Turn, offers: Offers, today: date) -> Decision:
    """The next call of a turn, or its final answer."""
    steps, notes = steps_of(turn.message, offers, turn.language)
    if not steps and turn.asked_for:
        steps, notes = steps_of(turn.asked_for, offers, turn.language)
    if not steps and offers.must_call and offers.all and not turn.done:
        steps = [Step("tool", Clause(turn.message), offers.all[0])]
    waiting = list(turn.done)
    outcomes: list[Outcome] = []
    found = Found(turn.earlier)
    title = ""
    for step in steps:
        done = _taken(step, waiting)
        ready = _ready(step, turn, found, today)
        if isinstance(ready, Stuck):
            if done is None:
                return Decision(answer_of(turn, outcomes, ready.why, notes, offers))
            ready = Ready({})
        title = _title(ready, found) or title
        if done is None:
            return Decision(_announced(step, ready, turn.language), step.offer, ready.arguments)
        again = None
        if done.can_be_corrected and not step.offer.tool.freeform:
            better = corrected(step.offer, _arguments(done), done.text, step.clause.text, today)
            again = _taken(step, waiting) if better is not None else None
            if better is not None and again is None:
                words = say(turn.language, "correcting", tool=step.offer.name, error=first_line(done.text))
                return Decision(words, step.offer, better)
        last = again or done
        if last.has_failed or step.is_asked_for:
            outcomes.append(Outcome(last, again is not None, title))
        if not last.has_failed:
            found.take(step.part, _arguments(last), last.text)
    outcomes += (Outcome(done) for done in waiting)
    return Decision(answer_of(turn, outcomes, "", notes if not waiting else [], offers))


def _ready(step: Step, turn: Turn, found: Found, today: date) -> Ready | Stuck:
    if step.offer.tool.freeform:
        return Ready({"": step.clause.text})
    return prepared(step, turn, found, today)


def _taken(step: Step, waiting: list[Done]) -> Done | None:
    """The call that was made for a step."""
    for place, done in enumerate(waiting):
        if done.call.tool_name == step.offer.name:
            return waiting.pop(place)
    return None


def _arguments(done: Done) -> dict[str, Any]:
    try:
        return done.call.parse_arguments()
    except ValueError:
        return {}


def _title(ready: Ready, found: Found) -> str:
    """The title of the record a call is about."""
    ids = {str(value) for value in ready.arguments.values() if isinstance(value, str | int)}
    return next((record.title or record.id for record in found.records if record.id in ids), "")


def _announced(step: Step, ready: Ready, language: Language) -> str:
    values = (value for value in ready.arguments.values() if isinstance(value, str | int | float))
    what = short(", ".join(map(str, values)))
    return say(language, "calling" if what else "calling_plain", tool=step.offer.name, what=what)
