"""Other names of one call: ids that were rewritten on their way through other programs.

Responses gives every call two ids, the call's (`call_…`) and the item's (`fc_…`); clients glue them together
(`call_…|fc_…`), or keep one where the other belongs.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.parts import ToolCallRequest, ToolCallResult

_PREFIXES = ("call_", "fc_")


def aliases_of_call(call: ToolCallRequest) -> Iterator[str]:
    """Every id a result might use for this call."""
    yield from _variants(call.tool_call_id)
    for extras in (call.native or {}).values():
        item = extras.get("id")
        if isinstance(item, str):
            yield from _variants(item)


def aliases_of_result(result: ToolCallResult) -> Iterator[str]:
    """Every id this result might mean."""
    yield from _variants(result.tool_call_id)


def _variants(name: str) -> Iterator[str]:
    for half in (name, *name.split("|")) if "|" in name else (name,):
        yield half
        for prefix in _PREFIXES:
            if half.startswith(prefix):
                stem = half.removeprefix(prefix)
                yield from (other + stem for other in _PREFIXES if other != prefix)
