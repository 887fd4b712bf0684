"""What happened, in a line for a person, the same in the terminal and on the page.

A tool call: what was searched for and how much was found, not the JSON of its arguments. A compaction: how many results became
notes, which entries were summarised or left out. An error of a provider: with the next step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from antiphon.context.view import shorten_results
from antiphon.history import CompactionEntry, HistoryEntry, ShortenedResultsEntry, ToolCallResultsEntry
from antiphon.json_text import read_json
from antiphon.model_name import ModelName
from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.call import RetryScheduled
from antiphon.providers.presets import PRESETS
from antiphon.text import one_line, shorten
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_chat.language import translate

_FOUND = re.compile(r"^\d+\. \*\*", re.MULTILINE)
_DONE = {
    "create_plan": "Created the plan",
    "update_plan": "Changed the plan",
    "delete_plan": "Deleted the plan",
    "get_plan": "Read the plan",
    "list_plans": "Listed the plans",
}


def arguments_of(call: ToolCallRequest) -> dict[str, object]:
    """The arguments; none where they are not an object."""
    arguments = None if call.freeform else read_json(call.arguments)
    return arguments if isinstance(arguments, dict) else {}


def call_words(call: ToolCallRequest, result: ToolCallResult | None = None) -> str:
    """The call in a few words, with its tool's name, or as a search with the number of results."""
    arguments = arguments_of(call)
    query = arguments.get("query")
    if "search" in call.tool_name.lower() and isinstance(query, str):
        words = (
            translate("Searched “{query}”", query=query) if result else translate("Searching “{query}”", query=query)
        )
        if result is None or result.status is not ToolExecutionStatus.SUCCESS:
            return words
        return f"{words} · {_count(len(_FOUND.findall(result.result_markdown)))}"
    is_done = result is not None and result.status is ToolExecutionStatus.SUCCESS and call.tool_name in _DONE
    name = translate(_DONE[call.tool_name]) if is_done else call.tool_name
    return f"{name} {_brief(call, arguments)}".rstrip()


def _count(results: int) -> str:
    if results < 2:
        return translate("1 result") if results else translate("nothing found")
    return translate("{count} results", count=results)


def _brief(call: ToolCallRequest, arguments: dict[str, object]) -> str:
    """The first text or number, else everything."""
    if not arguments:
        return "" if call.arguments.strip() in ("", "{}") else call.arguments
    values = list(arguments.values())
    first = next((value for value in values if isinstance(value, str | int | float)), None)
    return str(first) if first is not None else msgspec.json.encode(values[0]).decode()


def count_shortened(effective: Iterable[HistoryEntry], change: ShortenedResultsEntry) -> int:
    """The results that `change` shortens for a model, and no earlier entry shortened as much or took out."""
    inside: list[ToolCallResultsEntry] = []
    steps = Counter[int]()  # by how many changes more, or less, an entry is covered than the one before it
    for entry in effective:
        if entry.sequence_number >= change.sequence_number:
            break
        if isinstance(entry, CompactionEntry) or (
            isinstance(entry, ShortenedResultsEntry) and entry.max_chars <= change.max_chars
        ):
            if entry.since > entry.up_to:  # of nothing
                continue
            kept = {number for number in entry.kept if entry.since <= number <= entry.up_to}
            steps.update((entry.since, *(number + 1 for number in kept)))
            steps.subtract((entry.up_to + 1, *kept))
        elif isinstance(entry, ToolCallResultsEntry) and change.since <= entry.sequence_number <= change.up_to:
            inside.append(entry)
    places, covered, count, kept_here = sorted(steps, reverse=True), 0, 0, frozenset(change.kept)
    for entry in inside:
        while places and places[-1] <= entry.sequence_number:
            covered += steps[places.pop()]
        if not covered and entry.sequence_number not in kept_here:
            after = shorten_results(entry, change.max_chars).results
            count += sum(new is not old for old, new in zip(entry.results, after, strict=True))
    return count


def compaction_line(effective: Iterable[HistoryEntry], change: CompactionEntry | ShortenedResultsEntry) -> str:
    """The line about a compaction, in the language in use; empty if nothing was whole before it."""
    if isinstance(change, CompactionEntry):
        since, to = max(1, change.since), change.up_to
        if change.summary:
            return translate("entries {since} to {to} summarised", since=since, to=to)
        return translate("entries {since} to {to} left out", since=since, to=to)
    count = count_shortened(effective, change)
    if not count:
        return ""
    if change.max_chars:
        return translate("1 result shortened") if count == 1 else translate("{count:,} results shortened", count=count)
    if count == 1:
        return translate("1 result shortened to a note")
    return translate("{count:,} results shortened to notes", count=count)


_MAX_CHARS = 300
SHOWN_WAIT_SECONDS = 1.0

ADVICE: Mapping[ErrorKind, str] = MappingProxyType(
    {
        "invalid_request": "Rephrase the message, or {switch}.",
        "context_length": "{shorten}, or {switch}.",
        "authentication": "Check the key{key}, or {switch}.",
        "billing": "The account has no credit left: add credit, or {switch}.",
        "permission": "The key{key} lacks permission: use another key, or {switch}.",
        "not_found": "Check the model name, or {switch}.",
        "timeout": "{retry}.",
        "conflict": "{retry}.",
        "too_large": "Remove attachments, or {switch}.",
        "rate_limit": "Wait a moment. {retry}, or {switch}.",
        "overloaded": "{retry}, or {switch}.",
        "server": "{retry}, or {switch}.",
        "stream_cut": "{retry}.",
        "unknown": "{retry}, or {switch}.",
    }
)
"""The next step after an error of each kind."""

INTERACTIVE_HINTS = {
    "retry": "/retry to try again",
    "switch": "switch with /model",
    "shorten": "/compact to shorten the conversation",
}
BATCH_HINTS = {"retry": "Try again", "switch": "choose another model with --model", "shorten": "Shorten the message"}


def format_error(error: ProviderError, model: str, *, is_interactive: bool = True) -> str:
    """The error in one line, followed by the next step. It quotes the provider: escape it before it is printed."""
    message = shorten(one_line(error.message), _MAX_CHARS)
    provider = ModelName.parse(model).provider
    answered = isinstance(error.status, int) and error.status >= 400
    who = " ".join(filter(None, (provider, str(error.status) if answered else "")))
    if who and not message.startswith(who):
        message = f"{who}: {message}"
    return f"{message.rstrip('.')}. {advice(error, model, is_interactive=is_interactive)}"


def format_retry(event: RetryScheduled) -> str:
    """Why a call waits and when it tries again, in one line. Empty if the wait is too short to read about."""
    if event.seconds < SHOWN_WAIT_SECONDS:
        return ""
    at = event.at.astimezone().strftime("%H:%M:%S")
    if event.error.kind == "rate_limit" and event.error.retry_after is not None:
        return translate(
            "{model}: the provider asks to wait {seconds:.0f} s; trying again at {at}",
            model=event.model,
            seconds=event.seconds,
            at=at,
        )
    message = shorten(one_line(event.error.message), _MAX_CHARS).rstrip(".")
    return translate("{model}: {message}; trying again at {at}", model=event.model, message=message, at=at)


def advice(error: ProviderError, model: str, *, is_interactive: bool = True) -> str:
    """The next step after an error of `model`."""
    hints = {name: translate(hint) for name, hint in (INTERACTIVE_HINTS if is_interactive else BATCH_HINTS).items()}
    if error.status is None and error.kind in ("server", "timeout", "unknown"):
        return translate("Check the network connection. {retry}, or {switch}.", **hints)
    preset = PRESETS.get(ModelName.parse(model).provider or model)
    variables = " or ".join(preset.secret_variables) if preset else ""
    key = translate(" in {variables}", variables=variables) if variables else ""
    return translate(ADVICE[error.kind], key=key, **hints)
