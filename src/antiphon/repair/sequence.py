"""The one place that knows what may follow what: calls and their results, in any order they came in.

Theory of operation. `is_legal` is one quick pass over the messages; what passes it is left alone, as the same object. The rest
goes through `restore_order`, which is linear too and works in three steps:

1. Every result finds its call: by id, the nearest call before it that has no result yet; else a later call (the result came
   early); else by an alias of the id. A second result for an answered call and a result without any call are left over.
2. The messages are written down again in their order, without the results; behind each message with calls come its results,
   in the order of the calls. So late and early results, results split over messages and results behind an interruption all
   come to stand where they belong, and whatever stood between stands behind them.
3. A call still without a result gets one that says honestly that it was interrupted; what was left over is kept as text.

Reorder first, restore second, synthesise last, delete never. The rules of the formats differ a little in what they take as
legal (`SequenceRule`); what `restore_order` makes is legal for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import structs

from antiphon.parts import Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.repair.action import Action
from antiphon.repair.aliases import aliases_of_call, aliases_of_result
from antiphon.repair.foreign import is_foreign
from antiphon.wire.request import Message, SequenceRule

INTERRUPTED = "Error: this call was interrupted before it returned a result; it may or may not have run."


def is_legal(messages: Sequence[Message], rule: SequenceRule, *, is_continued: bool = False) -> bool:
    """Whether every call has exactly one result, where the format wants it, and no block of another format is among them.

    One quick pass: most parts are text, and text is looked at once. `is_continued` means that the server knows earlier
    messages, so that a result may answer a call that is not here.
    """
    if not rule.results_follow_calls:
        return _is_paired(messages, is_continued)
    waiting: set[str] = set()
    seen: set[str] = set()
    is_answering = False  # whether one of the calls that wait together has its result
    for message in messages:
        if message.role == "assistant":
            if waiting and (is_answering or not rule.merges_assistant_turns):
                return False
            is_answering = False
            for part in message.parts:
                if type(part) is Text:
                    continue
                if type(part) is ToolCallRequest:
                    if part.tool_call_id in waiting or part.tool_call_id in seen:
                        return False
                    waiting.add(part.tool_call_id)
                    if rule.unique_ids:
                        seen.add(part.tool_call_id)
                elif type(part) is ToolCallResult or is_foreign(part):
                    return False
        elif waiting:
            is_answering = True
            if not _answers(message.parts, waiting, rule):
                return False
        else:
            for part in message.parts:
                if type(part) is not Text and (
                    type(part) is ToolCallResult or type(part) is ToolCallRequest or is_foreign(part)
                ):
                    return False
    return not waiting


def _answers(parts: tuple[Part, ...], waiting: set[str], rule: SequenceRule) -> bool:
    """Whether a message behind calls is what may stand there; takes the calls it answers off those that wait."""
    has_other = not parts
    for part in parts:
        if type(part) is ToolCallResult:
            if part.tool_call_id not in waiting or (has_other and rule.results_first):
                return False
            waiting.discard(part.tool_call_id)
        elif type(part) is ToolCallRequest or is_foreign(part):
            return False
        else:
            has_other = True
    return not (waiting and has_other)


def _is_paired(messages: Sequence[Message], is_continued: bool) -> bool:
    calls: set[str] = set()
    results: set[str] = set()
    for message in messages:
        for part in message.parts:
            if type(part) is ToolCallRequest:
                if part.tool_call_id in calls or message.role != "assistant":
                    return False
                calls.add(part.tool_call_id)
            elif type(part) is ToolCallResult:
                if part.tool_call_id in results or message.role == "assistant":
                    return False
                results.add(part.tool_call_id)
            elif type(part) is not Text and is_foreign(part):
                return False
    return calls <= results and (is_continued or results <= calls)


class _Call:
    """A call, and the result it was given."""

    __slots__ = ("before", "behind", "part", "position", "result")

    def __init__(self, part: ToolCallRequest, position: int, before: _Call | None) -> None:
        self.part = part
        self.position = position
        self.result: _Result | None = None
        self.before = before  # of the calls with its id that wait, the one of an earlier message
        self.behind: deque[_Call] | None = None  # and those of the same message, if this is the first


class _Result:
    """A result, where it stood, and the answered call it repeats, if it does."""

    __slots__ = ("part", "position", "repeats", "whole")

    def __init__(self, part: ToolCallResult, position: int, whole: Message | None) -> None:
        self.part = part
        self.position = position
        self.whole = whole  # the message, if the result was all of it: then it can be used again as it is
        self.repeats: _Call | None = None


def restore_order(
    messages: Sequence[Message], rule: SequenceRule, actions: list[Action], *, keep_orphans: bool = False
) -> list[Message]:
    """The messages in a sequence that every format takes, with every piece of content kept."""
    messages = _with_assistants(messages, actions)
    calls, leftover, holders = _paired(messages, actions)
    is_renamed = _make_unique(calls, everywhere=rule.unique_ids or not rule.results_follow_calls, actions=actions)
    return _written(messages, calls, leftover, holders, actions, is_renamed=is_renamed, keep_orphans=keep_orphans)


def _with_assistants(messages: Sequence[Message], actions: list[Action]) -> Sequence[Message]:
    """Calls are an assistant's: where somebody else makes one, it is told as a message of its own."""
    for message in messages:
        if message.role != "assistant":
            for part in message.parts:
                if type(part) is ToolCallRequest:
                    return list(_with_more_assistants(messages, actions))
    return messages


def _with_more_assistants(messages: Sequence[Message], actions: list[Action]) -> Iterator[Message]:
    for position, message in enumerate(messages):
        if message.role != "assistant" and any(type(part) is ToolCallRequest for part in message.parts):
            calls = tuple(part for part in message.parts if type(part) is ToolCallRequest)
            actions.append(Action("moved", position, f"a {message.role} message made calls"))
            yield Message("assistant", calls)
            yield structs.replace(
                message, parts=tuple(part for part in message.parts if type(part) is not ToolCallRequest)
            )
        else:
            yield message


def _paired(messages: Sequence[Message], actions: list[Action]) -> tuple[list[_Call], list[_Result], set[int]]:
    """The calls, each with its result if there is one, the results that are left over, and where there were results.

    One pass for nearly all.
    """
    calls: list[_Call] = []
    lost: list[_Result] = []
    waiting: dict[str, _Call] = {}  # by id, the first call without a result of the last message that has one
    answered: dict[str, _Call] = {}
    holders: set[int] = set()
    for position, message in enumerate(messages):
        for part in message.parts:
            if type(part) is Text:
                continue
            if type(part) is ToolCallRequest:
                last = waiting.get(part.tool_call_id)
                call = _Call(part, position, last)
                calls.append(call)
                if last is None or last.position != position:
                    waiting[part.tool_call_id] = call
                elif last.behind is None:
                    last.behind = deque((call,))
                else:
                    last.behind.append(call)
            elif type(part) is ToolCallResult:
                holders.add(position)
                if message.role == "assistant":
                    actions.append(Action("moved", position, f"an assistant message held the result of {_named(part)}"))
                alone = len(message.parts) == 1 and message.role == "tool"
                result = _Result(part, position, message if alone else None)
                nearest = _take_nearest(waiting, part.tool_call_id)
                if nearest is None:
                    result.repeats = answered.get(part.tool_call_id)
                    lost.append(result)
                else:
                    nearest.result = result
                    answered[part.tool_call_id] = nearest
    if lost:
        lost = _found_later(calls, lost, actions)
        lost = _found_by_alias(calls, lost, actions)
        lost = [result for result in lost if not _says_the_same(result, actions)]
    return calls, lost, holders


def _take_nearest(waiting: dict[str, _Call], name: str) -> _Call | None:
    """The first waiting call of the last message that has one."""
    call = waiting.get(name)
    if call is None:
        return None
    if call.behind:
        following = waiting[name] = call.behind.popleft()
        following.before, following.behind = call.before, call.behind
    elif call.before is not None:
        waiting[name] = call.before
    else:
        del waiting[name]
    return call


def _found_later(calls: list[_Call], lost: list[_Result], actions: list[Action]) -> list[_Result]:
    """Results that came before their calls are given to them."""
    names = {result.part.tool_call_id for result in lost}
    later: dict[str, deque[_Call]] = {}
    for call in calls:
        if call.result is None and call.part.tool_call_id in names:
            later.setdefault(call.part.tool_call_id, deque()).append(call)
    still_lost: list[_Result] = []
    for result in lost:
        waiting = later.get(result.part.tool_call_id)
        if waiting:
            waiting.popleft().result = result
            actions.append(
                Action("moved", result.position, f"the result of {_named(result.part)} came before its call")
            )
        else:
            still_lost.append(result)
    return still_lost


def _found_by_alias(calls: list[_Call], lost: list[_Result], actions: list[Action]) -> list[_Result]:
    by_alias: dict[str, deque[_Call]] = {}
    for call in calls:
        if call.result is None:
            for alias in aliases_of_call(call.part):
                by_alias.setdefault(alias, deque()).append(call)
    still_lost: list[_Result] = []
    for result in lost:
        match = next(filter(None, (_first_open(by_alias.get(alias)) for alias in aliases_of_result(result.part))), None)
        if match is None:
            still_lost.append(result)
        else:
            match.result = result
            detail = f"{result.part.tool_call_id} is {match.part.tool_call_id} by another name"
            actions.append(Action("renamed", result.position, detail))
    return still_lost


def _first_open(calls: deque[_Call] | None) -> _Call | None:
    while calls:
        if calls[0].result is None:
            return calls[0]
        calls.popleft()
    return None


def _says_the_same(result: _Result, actions: list[Action]) -> bool:
    """Whether a second result of a call says nothing new; a real one takes the place of a stand-in of an earlier repair."""
    call = result.repeats
    if call is None or call.result is None:
        return False
    if result.part.content == call.result.part.content or _is_stand_in(result.part):
        actions.append(Action("joined", result.position, f"a second, equal result of {_named(result.part)}"))
        return True
    if _is_stand_in(call.result.part):
        call.result = result
        actions.append(Action("restored", result.position, f"the real result of {_named(result.part)}"))
        return True
    return False


def _is_stand_in(part: ToolCallResult) -> bool:
    return part.content == (Text(INTERRUPTED),)


def _make_unique(calls: list[_Call], *, everywhere: bool, actions: list[Action]) -> bool:
    """A call whose id was used before (anywhere, or in the same message) gets another; its result follows when written.

    Returns whether there may be such a call.
    """
    used = {call.part.tool_call_id for call in calls}
    if len(used) == len(calls):
        return False
    numbers: dict[str, int] = {}
    seen: set[tuple[int, str]] = set()
    for call in calls:
        name = call.part.tool_call_id
        place = 0 if everywhere else call.position
        if (place, name) in seen:
            new = _unused(name, used, numbers)
            actions.append(Action("renamed", call.position, f"the id {name} was used before; this call is {new}"))
            call.part = structs.replace(call.part, tool_call_id=new)
        seen.add((place, call.part.tool_call_id))
    return True


def _unused(name: str, used: set[str], numbers: dict[str, int]) -> str:
    number = numbers.get(name, 1) + 1
    while f"{name}_{number}" in used:
        number += 1
    numbers[name] = number
    used.add(f"{name}_{number}")
    return f"{name}_{number}"


def _written(
    messages: Sequence[Message],
    calls: list[_Call],
    leftover: list[_Result],
    holders: set[int],
    actions: list[Action],
    *,
    is_renamed: bool,
    keep_orphans: bool,
) -> list[Message]:
    """The messages without the results, and each call's result behind it; `holders` are the messages that had results."""
    written: list[Message] = []
    add = written.append
    calls_at: dict[int, list[_Call]] = {}
    for call in calls:
        at = calls_at.get(call.position)
        if at is None:
            calls_at[call.position] = [call]
        else:
            at.append(call)
    leftover_at: dict[int, list[_Result]] = {}
    for result in leftover:
        leftover_at.setdefault(result.position, []).append(result)
    waits_until = -1  # where the last result for a call so far was taken from: what stands before it moved behind it
    for position, message in enumerate(messages):
        own_calls = calls_at.get(position)
        if own_calls is not None:
            add(_with_calls(message, own_calls) if is_renamed or position in holders else message)
            for call in own_calls:
                add(_answer(call, actions))
                if call.result is not None and call.result.position > waits_until:
                    waits_until = call.result.position
        elif position not in holders:
            if position < waits_until:
                detail = f"a {message.role} message stood between a call and its result"
                actions.append(Action("moved", position, detail))
            add(message)
        else:
            rest = tuple([part for part in message.parts if type(part) is not ToolCallResult])
            if rest:
                if position < waits_until or type(message.parts[0]) is not ToolCallResult:
                    detail = f"parts of a {message.role} message stood before a result"
                    actions.append(Action("moved", position, detail))
                add(structs.replace(message, parts=rest))
        if leftover_at:
            written.extend(_kept(result, actions, keep_orphans) for result in leftover_at.get(position, ()))
    return written


def _with_calls(message: Message, calls: list[_Call]) -> Message:
    """The message with its calls, renamed where that was needed, and no results; the same object where it was so."""
    parts: list[Part] = []
    renamed = iter(calls)
    changed = False
    for part in message.parts:
        if type(part) is ToolCallRequest:
            call = next(renamed)
            changed |= call.part is not part
            parts.append(call.part)
        elif type(part) is ToolCallResult:
            changed = True
        else:
            parts.append(part)
    return structs.replace(message, parts=tuple(parts)) if changed else message


def _answer(call: _Call, actions: list[Action]) -> Message:
    result = call.result
    name = call.part.tool_call_id
    if result is None:
        actions.append(Action("synthesised", call.position, f"{_named(call.part)} has no result"))
        text = (Text(INTERRUPTED),)
        return Message("tool", (ToolCallResult(call.part.tool_name, name, ToolExecutionStatus.FAILED, text),))
    if result.part.tool_call_id == name:
        return result.whole or Message("tool", (result.part,))
    return Message("tool", (structs.replace(result.part, tool_call_id=name),))


def _kept(result: _Result, actions: list[Action], keep_orphans: bool) -> Message:
    """A result that answers no call, as words of the user: stale tool output must not gain authority."""
    if keep_orphans:
        return result.whole or Message("tool", (result.part,))
    actions.append(Action("kept_as_text", result.position, f"a result of {_named(result.part)} answers no call"))
    label = f"[result of the tool call {_named(result.part)}, which is not in this conversation]"
    if result.part.status is not ToolExecutionStatus.SUCCESS:
        label = f"{label} (it failed)"
    return Message("user", (Text(label), *result.part.content))


def _named(part: ToolCallRequest | ToolCallResult) -> str:
    return f"{part.tool_name} ({part.tool_call_id})" if part.tool_name else part.tool_call_id
