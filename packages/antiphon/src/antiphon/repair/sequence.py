"""The order of calls and results, restored in one pass:

1. Every result finds its call: by id the nearest earlier call without a result; else a later call; else by an alias of the id.
2. The messages are rebuilt in order without the results; after each message with calls come its results, in the order of the
   calls. Whatever stood between a call and its result comes after the result.
3. A call without a result gets one that says it was interrupted; a result without a call is kept as user text.

Reorder first, restore second, synthesise last, never delete. Formats differ in what they accept (`SequenceRule`); the output of
`restore_order` is legal in all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import structs

from antiphon.parts import Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.repair.action import Action
from antiphon.wire.provenance import LEGACY_FUNCTION, is_legacy_function
from antiphon.wire.request import Message
from antiphon.wire.spec import SequenceRule

_ID_PREFIXES = ("call_", "fc_")
INTERRUPTED = "Error: this call was interrupted before it returned a result; it may or may not have run."


class _Call:
    """A call and its result."""

    __slots__ = ("part", "position", "previous", "result", "siblings")

    def __init__(self, part: ToolCallRequest, position: int, previous: _Call | None) -> None:
        self.part = part
        self.position = position
        self.result: _Result | None = None
        self.previous = previous  # the pending call with the same id in an earlier message
        self.siblings: deque[_Call] | None = None  # those in the same message, on the first of them


class _Result:
    """A result, its position, and the call it duplicates a result of, if any."""

    __slots__ = ("part", "position", "repeats", "whole")

    def __init__(self, part: ToolCallResult, position: int, whole: Message | None) -> None:
        self.part = part
        self.position = position
        self.whole = whole  # the message, if it has nothing else: then it is reused
        self.repeats: _Call | None = None


def restore_order(
    messages: Sequence[Message], rule: SequenceRule, actions: list[Action], *, keep_orphans: bool = False
) -> list[Message]:
    """The messages in an order that every format accepts, with all content kept.

    `keep_orphans`: results may belong to calls that only the server has.
    """
    messages = _move_calls_to_assistant(messages, actions)
    calls, leftover, result_positions = _pair_results(messages, actions)
    is_renamed = _make_unique(calls, everywhere=rule.unique_ids or not rule.results_follow_calls, actions=actions)
    kept = _orphans_to_keep(messages, calls, leftover, rule) if keep_orphans else set()
    return _rebuild(messages, calls, leftover, result_positions, actions, is_renamed=is_renamed, kept=kept)


def _orphans_to_keep(
    messages: Sequence[Message], calls: list[_Call], leftover: list[_Result], rule: SequenceRule
) -> set[_Result]:
    """The results that may answer a call on the server: the first of each id, in most formats only before the model's answer."""
    end, taken = len(messages), {call.part.tool_call_id for call in calls}
    if rule.results_follow_calls:
        end = next((position for position, message in enumerate(messages) if message.role == "assistant"), end)
        taken = set()  # an id may be used again in another turn
    first: dict[str, _Result] = {}
    for result in leftover:
        if result.position < end and result.part.tool_call_id not in taken:
            first.setdefault(result.part.tool_call_id, result)
    return set(first.values())


def _move_calls_to_assistant(messages: Sequence[Message], actions: list[Action]) -> Sequence[Message]:
    """The messages with calls of other roles moved to assistant messages of their own; the same object if there are none."""
    moved: list[Message] | None = None
    for position, message in enumerate(messages):
        if message.role != "assistant":
            calls = tuple([part for part in message.parts if type(part) is ToolCallRequest])
            if calls:
                moved = list(messages[:position]) if moved is None else moved
                actions.append(Action("moved", position, f"a {message.role} message made calls"))
                others = tuple(part for part in message.parts if type(part) is not ToolCallRequest)
                moved += (Message("assistant", calls), structs.replace(message, parts=others))
                continue
        if moved is not None:
            moved.append(message)
    return messages if moved is None else moved


def _pair_results(messages: Sequence[Message], actions: list[Action]) -> tuple[list[_Call], list[_Result], set[int]]:
    """The calls with their results, the results left over, and the positions of messages with results."""
    calls: list[_Call] = []
    unmatched: list[_Result] = []
    pending: dict[str, _Call] = {}  # by id, the first call without a result in the last message that has one
    answered: dict[str, _Call] = {}
    result_positions: set[int] = set()
    for position, message in enumerate(messages):
        for part in message.parts:
            if type(part) is Text:
                continue
            if type(part) is ToolCallRequest:
                last = pending.get(part.tool_call_id)
                call = _Call(part, position, last)
                calls.append(call)
                if last is None or last.position != position:
                    pending[part.tool_call_id] = call
                elif last.siblings is None:
                    last.siblings = deque((call,))
                else:
                    last.siblings.append(call)
            elif type(part) is ToolCallResult:
                result_positions.add(position)
                if message.role == "assistant":
                    actions.append(
                        Action("moved", position, f"an assistant message held the result of {_describe(part)}")
                    )
                alone = len(message.parts) == 1 and message.role == "tool"
                result = _Result(part, position, message if alone else None)
                nearest = _pop_nearest_call(pending, part.tool_call_id)
                if nearest is None:
                    result.repeats = answered.get(part.tool_call_id)
                    unmatched.append(result)
                else:
                    nearest.result = result
                    answered[part.tool_call_id] = nearest
    if unmatched:
        unmatched = _match_later_calls(calls, unmatched, actions)
        unmatched = _match_aliases(calls, unmatched, actions)
        unmatched = [result for result in unmatched if not _merge_duplicate(result, actions)]
    return calls, unmatched, result_positions


def _pop_nearest_call(pending: dict[str, _Call], name: str) -> _Call | None:
    """The first pending call of the last message that has one."""
    call = pending.get(name)
    if call is None:
        return None
    if call.siblings:
        following = pending[name] = call.siblings.popleft()
        following.previous, following.siblings = call.previous, call.siblings
    elif call.previous is not None:
        pending[name] = call.previous
    else:
        del pending[name]
    return call


def _match_later_calls(calls: list[_Call], unmatched: list[_Result], actions: list[Action]) -> list[_Result]:
    """Match results that came before their calls."""
    names = {result.part.tool_call_id for result in unmatched}
    later: dict[str, deque[_Call]] = {}
    for call in calls:
        if call.result is None and call.part.tool_call_id in names:
            later.setdefault(call.part.tool_call_id, deque()).append(call)
    still_unmatched: list[_Result] = []
    for result in unmatched:
        pending = later.get(result.part.tool_call_id)
        if pending:
            pending.popleft().result = result
            actions.append(
                Action("moved", result.position, f"the result of {_describe(result.part)} came before its call")
            )
        else:
            still_unmatched.append(result)
    return still_unmatched


def _match_aliases(calls: list[_Call], unmatched: list[_Result], actions: list[Action]) -> list[_Result]:
    by_alias: dict[str, deque[_Call]] = {}
    for call in calls:
        if call.result is None:
            for alias in call_id_aliases(call.part):
                by_alias.setdefault(alias, deque()).append(call)
    still_unmatched: list[_Result] = []
    for result in unmatched:
        match = next(filter(None, (_first_open(by_alias.get(alias)) for alias in result_id_aliases(result.part))), None)
        if match is None:
            still_unmatched.append(result)
        else:
            match.result = result
            detail = f"matched result id {result.part.tool_call_id} to call {match.part.tool_call_id}"
            actions.append(Action("renamed", result.position, detail))
    return still_unmatched


def _first_open(calls: deque[_Call] | None) -> _Call | None:
    while calls:
        if calls[0].result is None:
            return calls[0]
        calls.popleft()
    return None


def _merge_duplicate(result: _Result, actions: list[Action]) -> bool:
    """Whether a second result was merged: dropped as a duplicate, or used instead of a placeholder of an earlier repair."""
    call = result.repeats
    if call is None or call.result is None:
        return False
    if _says_no_more(result, call.result) or is_placeholder(result.part):
        actions.append(Action("joined", result.position, f"dropped a duplicate result for {_describe(result.part)}"))
        return True
    if is_placeholder(call.result.part):
        call.result = result
        actions.append(Action("restored", result.position, f"the real result of {_describe(result.part)}"))
        return True
    return False


def _says_no_more(result: _Result, first: _Result) -> bool:
    """Whether all of a second result is in the first, its unknown fields too."""
    of_message = None if result.whole is None else result.whole.native
    of_first_message = None if first.whole is None else first.whole.native
    return (
        result.part.content == first.part.content
        and (not result.part.native or result.part.native == first.part.native)
        and (not of_message or of_message == of_first_message)
    )


def is_placeholder(part: Part) -> bool:
    """Whether a result is one that a repair made up."""
    return type(part) is ToolCallResult and part.content == (Text(INTERRUPTED),)


def _make_unique(calls: list[_Call], *, everywhere: bool, actions: list[Action]) -> bool:
    """Rename calls without an id, and calls whose id was used before (anywhere, or in the same message).

    Results follow in `_rebuild`. Returns whether there may be such a call.
    """
    used = {call.part.tool_call_id for call in calls}
    if len(used) == len(calls) and "" not in used:
        return False
    numbers: dict[str, int] = {}
    seen: set[tuple[int, str]] = set()
    for call in calls:
        name = call.part.tool_call_id
        scope = 0 if everywhere else call.position
        if not name or (scope, name) in seen:
            new = _next_free_id(name or "call", used, numbers)
            reason = f"the id {name} was used before" if name else f"a call of {call.part.tool_name} has no id"
            actions.append(Action("renamed", call.position, f"{reason}; this call is {new}"))
            call.part = structs.replace(call.part, tool_call_id=new)
        seen.add((scope, call.part.tool_call_id))
    return True


def _next_free_id(name: str, used: set[str], numbers: dict[str, int]) -> str:
    number = numbers.get(name, 1) + 1
    while f"{name}_{number}" in used:
        number += 1
    numbers[name] = number
    used.add(f"{name}_{number}")
    return f"{name}_{number}"


def _rebuild(
    messages: Sequence[Message],
    calls: list[_Call],
    leftover: list[_Result],
    result_positions: set[int],
    actions: list[Action],
    *,
    is_renamed: bool,
    kept: set[_Result],
) -> list[Message]:
    """The messages with each result after its call; `result_positions` are those of messages with results.

    Results without a call are user text, except those that are `kept`.
    """
    rebuilt: list[Message] = []
    add = rebuilt.append
    calls_at: dict[int, list[_Call]] = {}
    for call in calls:
        message_calls = calls_at.get(call.position)
        if message_calls is None:
            calls_at[call.position] = [call]
        else:
            message_calls.append(call)
    leftover_at: dict[int, list[_Result]] = {}
    for result in leftover:
        leftover_at.setdefault(result.position, []).append(result)
    known = {alias for call in calls for alias in call_id_aliases(call.part)} if leftover else set()
    last_result_position = -1  # messages before this position were moved after a result
    for position, message in enumerate(messages):
        own_calls = calls_at.get(position)
        if own_calls is not None:
            add(_with_renamed_calls(message, own_calls) if is_renamed or position in result_positions else message)
            for call in own_calls:
                add(_answer(call, actions))
                if call.result is not None and call.result.position > last_result_position:
                    last_result_position = call.result.position
        elif position not in result_positions:
            if position < last_result_position:
                detail = f"a {message.role} message stood between a call and its result"
                actions.append(Action("moved", position, detail))
            add(message)
        else:
            others = tuple([part for part in message.parts if type(part) is not ToolCallResult])
            if others:
                if position < last_result_position or type(message.parts[0]) is not ToolCallResult:
                    detail = f"parts of a {message.role} message stood before a result"
                    actions.append(Action("moved", position, detail))
                add(structs.replace(message, parts=others))
        if leftover_at:
            rebuilt.extend(
                result.whole or Message("tool", (result.part,))
                if result in kept
                else _as_user_text(result, known, actions)
                for result in leftover_at.get(position, ())
            )
    return rebuilt


def _with_renamed_calls(message: Message, calls: list[_Call]) -> Message:
    """The message with renamed calls and without results; the same object if nothing changed."""
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
        actions.append(Action("synthesised", call.position, f"{_describe(call.part)} has no result"))
        source = LEGACY_FUNCTION if is_legacy_function(call.part) else None
        failed, text = ToolExecutionStatus.FAILED, (Text(INTERRUPTED),)
        return Message("tool", (ToolCallResult(call.part.tool_name, name, failed, text, source=source),))
    if result.part.tool_call_id == name:
        return result.whole or Message("tool", (result.part,))
    renamed = (structs.replace(result.part, tool_call_id=name),)
    return Message("tool", renamed) if result.whole is None else structs.replace(result.whole, parts=renamed)


def _as_user_text(result: _Result, known: set[str], actions: list[Action]) -> Message:
    """A result without a call of its own, as user text: stale tool output must not gain authority.

    `known` are the ids of the calls that have another result.
    """
    if result.repeats is not None or not known.isdisjoint(result_id_aliases(result.part)):
        detail = f"a second result of {_describe(result.part)}"
        label = f"[another result of the tool call {_describe(result.part)}]"
    else:
        detail = f"a result of {_describe(result.part)} answers no call"
        label = f"[result of the tool call {_describe(result.part)}, which is not in this conversation]"
    actions.append(Action("kept_as_text", result.position, detail))
    if result.part.status is not ToolExecutionStatus.SUCCESS:
        label = f"{label} (it failed)"
    native = None if result.whole is None else result.whole.native
    return Message("user", (Text(label), *result.part.content), native=native)


def _describe(part: ToolCallRequest | ToolCallResult) -> str:
    if part.tool_name or not part.tool_call_id:
        return f"{part.tool_name} ({part.tool_call_id or 'no id'})".lstrip()
    return part.tool_call_id


def call_id_aliases(call: ToolCallRequest) -> Iterator[str]:
    """The ids a result might use for this call.

    Responses gives each call two ids, of the call (`call_...`) and of the item (`fc_...`); clients join them
    (`call_...|fc_...`) or use one in place of the other.
    """
    yield from _id_variants(call.tool_call_id)
    for extras in (call.native or {}).values():
        item = extras.get("id")
        if isinstance(item, str):
            yield from _id_variants(item)


def result_id_aliases(result: ToolCallResult) -> Iterator[str]:
    """The ids this result might refer to."""
    yield from _id_variants(result.tool_call_id)


def _id_variants(name: str) -> Iterator[str]:
    for half in (name, *name.split("|")) if "|" in name else (name,):
        yield half
        for prefix in _ID_PREFIXES:
            if half.startswith(prefix):
                stem = half.removeprefix(prefix)
                yield from (other + stem for other in _ID_PREFIXES if other != prefix)
