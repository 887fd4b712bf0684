"""What Google's two formats share: spellings, prefixes of native extras, base64, times, required turns and parameters.

Where Google has several spellings of one meaning, what was read keeps the words for them in its `source`, from which the writer
restores them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Literal

from antiphon.parts import Audio, Document, Image, Native
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.parameters import Choice, Limit, Range, Texts, lose_fields
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import CONTINUE_TEXT, SYSTEM_NOTE_PREFIX, Message, ModelRequest, OutputFormat
from antiphon.wire.request_writer import ListWriter

PLACEHOLDER_FIRST_TURN = "(the conversation so far)"
"""A user turn added where the history would begin with a call (GM-05)."""

_CAPITAL = re.compile("[A-Z]")
_TO_STANDARD, _TO_URL_SAFE = str.maketrans("-_", "+/"), str.maketrans("+/", "-_")


@cache
def to_snake_case(name: str) -> str:
    """The proto spelling of a camelCase name."""
    return _CAPITAL.sub(lambda match: "_" + match[0].lower(), name)


def with_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an inner object by their full names, as native extras have them (`generationConfig.topK`)."""
    return {prefix + name: value for name, value in fields.items()}


def without_prefix(prefix: str, native: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `with_prefix`: the fields of the inner object among native extras."""
    return {name[len(prefix) :]: value for name, value in native.items() if name.startswith(prefix)}


def read_base64(data: str, spelling: list[str]) -> str:
    """Base64 in the standard alphabet; a word records the URL-safe one, which Google's SDK sends and others reject."""
    if "-" not in data and "_" not in data:
        return data
    spelling.append("urlSafe")
    return data.translate(_TO_STANDARD)


def write_base64(data: str, medium: Image | Audio | Document) -> str:
    """Base64 in the alphabet in which it came."""
    return data.translate(_TO_URL_SAFE) if is_spelled(medium, "urlSafe") else data


class TurnListWriter(ListWriter):
    """The frame of the list writers of both formats. A format writes the parts of a turn, and says what a turn is.

    Leading system messages are the instruction; a later one is a note of the user. A user turn is added before a first call
    and, where the model requires it, after the last turn of the model.
    """

    format: ClassVar[str]
    name: ClassVar[str]
    system_extras: ClassVar[tuple[str, ...]] = ()
    """Whose extras a system message may have."""
    no_names: ClassVar[str] = "does not support names of participants"
    turn_rules: ClassVar[tuple[str, str]]
    """About the first and the last turn."""
    writer: Any
    """Writes the parts."""

    def __init__(self, losses: Losses, model: Capabilities, *, is_continued: bool = False) -> None:
        """`is_continued`: the server has earlier turns."""
        self.entries, self.losses = [], losses
        self._model = model
        self._start = -1  # index of the first message in the entries
        self._has_begun = self._is_continued = is_continued

    def add(self, index: int, message: Message) -> None:
        losses, role = self.losses, message.role
        losses.message = index
        is_leading = self._start < 0 and role in ("system", "developer")
        if message.native is not None or message.name is not None:
            if message.name is not None:
                losses.add("name", f"{self.name} {self.no_names}; dropped", "name")
            losses.report_extras(message.native, *(self.system_extras if is_leading else (self.format,)))
        if is_leading:
            self.add_system(message)
        else:
            if self._start < 0:
                self._start = index
            if role == "unknown":
                self._add_unknown(message)
            else:
                self.add_turn(message)
        losses.part = -1

    def helpers(self) -> tuple[object, ...]:
        return (self.writer,)

    def add_system(self, message: Message) -> None:
        """Add a message to the instruction."""
        raise NotImplementedError

    def add_turn(self, message: Message) -> None:
        """Write a message of a user, a tool, the model, or another role."""
        raise NotImplementedError

    def close(self) -> None:
        """End what is open."""
        raise NotImplementedError

    def is_model(self, entry: Any) -> bool:
        """Whether an entry is a turn of the model."""
        raise NotImplementedError

    def begins_with_call(self, entry: Any) -> bool:
        """Whether the first thing in an entry is a call of the model."""
        raise NotImplementedError

    def user_turn(self, text: str) -> Any:
        """A turn of the user."""
        raise NotImplementedError

    def _add_unknown(self, message: Message) -> None:
        for position, part in enumerate(message.parts):
            self.losses.part = position
            if isinstance(part, Native) and part.origin == self.format:
                self.close()
                self.entries.append(part.data)
            else:
                self.losses.add("message", "message specific to another format; dropped")

    def note(self, role: str, written: list[Any], is_text: Callable[[Any], bool]) -> None:
        """What was written for a message of another role becomes a user's: the first text says if it is a system's."""
        reason = f'unknown role "{role}"; sent as user'
        if role in ("system", "developer"):
            reason = f"{self.name} accepts system messages only at the start; sent as a user note"
            place = next((place for place, block in enumerate(written) if is_text(block)), None)
            if place is not None:
                written[place] = {**written[place], "text": SYSTEM_NOTE_PREFIX + written[place]["text"]}
        self.losses.part = -1
        self.losses.add(role, reason, "role")

    def settle(self) -> None:
        """End what is open: a turn of the model follows."""
        self.close()
        self._ensure_first_turn()

    def finish(self) -> None:
        """End what is open, and add the turns that the model requires."""
        self.settle()
        turns = self.entries
        if self._is_continued or (turns and not self.is_model(turns[-1])):
            return
        if len(turns) < 2 or not self._model.prefill:
            turns.append(self.user_turn(CONTINUE_TEXT))
            reason = f'the history must end with a user turn; added one, "{CONTINUE_TEXT}" ({self.turn_rules[1]})'
            self.losses.append(Loss("messages", "last turn", reason))

    def _ensure_first_turn(self) -> None:
        if not self._has_begun and self.entries and self.begins_with_call(self.entries[0]):
            self.entries.insert(0, self.user_turn(PLACEHOLDER_FIRST_TURN))
            reason = f'the history must not begin with a call; added a user turn "{PLACEHOLDER_FIRST_TURN}"'
            self.losses.append(Loss(f"messages[{self._start}]", "first turn", f"{reason} ({self.turn_rules[0]})"))
        self._has_begun = True


def parse_time(time: Any) -> int | None:
    """A time of the API in seconds."""
    if type(time) is not str:
        return None
    try:
        read = datetime.fromisoformat(time)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def format_time(seconds: int) -> str | None:
    """Seconds as a time of the API."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


THINKING_LEVELS = frozenset({"minimal", "low", "medium", "high"})
LEVEL_FOR = {"none": "minimal", "xhigh": "high", "max": "high"}
"""The levels for efforts without one."""

_INT32 = 2**31


class Seed(Limit, frozen=True):
    """A seed of at most 31 bits. The API cuts it off itself, so a body may have any."""

    def fit(self, value: Any, field: str, losses: list[Loss], _model: Capabilities) -> int:
        if -_INT32 <= value < _INT32:
            return int(value)
        losses.append(Loss(field, field, "Gemini accepts 31 bits; the rest was cut off"))
        return int(value % _INT32)


def google_range(rule: str, maximum: float, *, unset: Literal["", "drop"] = "") -> Range:
    """The range of a number from 0, which proto3 JSON may write as text."""
    return Range(rule=rule, minimum=0, maximum=maximum, reads_text=True, unset=unset)


def output_tokens(rule: str) -> Range:
    """The limit of the answer."""
    return Range(rule=rule, minimum=1, is_whole=True, below="drop", model_fact="max_output_tokens", reads_text=True)


def stop_sequences(rule: str) -> Texts:
    return Texts(rule=rule, at_most=5, accepts_one=True)


def service_tiers(rule: str, *tiers: str) -> Choice:
    """The tiers of a format, and other providers' names of the standard one."""
    return Choice(
        rule=rule, values={**{tier: tier for tier in tiers}, "default": "standard", "standard_only": "standard"}
    )


def lose_parallel_switch(request: ModelRequest, target: str, losses: list[Loss]) -> None:
    """Report that calls may be parallel although the request does not want it."""
    if request.parallel_tool_calls is False:
        reason = f"{target} does not support disabling parallel tool calls; dropped"
        losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))


def lose_format_details(output_format: OutputFormat, losses: list[Loss], target: str) -> None:
    """Report what Google's output formats have no field for."""
    for name in ("name", "description", "strict"):
        why = f"{target} does not support {name} in an output format; dropped"
        lose_fields(output_format, "output_format", (name,), why, losses)
