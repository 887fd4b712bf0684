"""A tool call in a few words for people: what was searched for and how much was found, not the JSON of its arguments."""

from __future__ import annotations

import re

import msgspec

from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
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
    try:
        arguments = None if call.freeform else msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        return {}
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
