"""A call whose arguments arrive piece by piece (Vertex, `streamFunctionCallArguments`).

Each piece names a place in the arguments by a JSON path (`$.recipe.steps[2]`) and gives a value for it; a string may go on in the
next piece for the same place. The arguments are whole when the call no longer says `willContinue`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from msgspec import Struct

from antiphon.wire.gemini.declarations import get, listed

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_LARGEST_GAP = 1_000


class PartialCall(Struct):
    """The arguments of one call as far as they are known."""

    index: int
    arguments: dict[str, Any] = {}
    going_on: str | None = None  # the place of a string that the next piece continues

    def add(self, call: dict[str, Any]) -> None:
        """The next piece; what is not as it should be is passed over."""
        args = call.get("args")
        if isinstance(args, dict):
            self.arguments.update(args)
        for piece in listed(get(call, "partialArgs")):
            path = get(piece, "jsonPath") if isinstance(piece, dict) else None
            if isinstance(path, str):
                self._set(path, piece)

    def _set(self, path: str, piece: dict[str, Any]) -> None:
        steps = _steps(path)
        known, value = _value(piece)
        if not steps or not known:
            return
        holder: Any = self.arguments
        for step, following in pairwise(steps):
            holder = _below(holder, step, [] if isinstance(following, int) else {})
            if holder is None:
                return
        last = steps[-1]
        before = _item(holder, last)
        if isinstance(value, str) and isinstance(before, str) and self.going_on == path:
            value = before + value
        _put(holder, last, value)
        self.going_on = path if get(piece, "willContinue") is True else None


def _steps(path: str) -> list[str | int]:
    """The names and numbers of a JSON path; none if it is not one."""
    at = 1
    steps: list[str | int] = []
    while path.startswith("$") and at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return []
        name, number, single, double = match.groups()
        quoted = single if single is not None else double
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(name if name is not None else _ESCAPE.sub(r"\1", quoted))
        at = match.end()
    return steps


def _value(piece: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the piece holds a value, and which."""
    for name in ("stringValue", "numberValue", "boolValue", "nullValue"):
        value = get(piece, name)
        if value is not None:
            if name == "nullValue":
                return True, None
            # All numbers are doubles here; a whole one is written without a point.
            return True, int(value) if isinstance(value, float) and value.is_integer() else value
    return "nullValue" in piece, None


def _item(holder: Any, step: str | int) -> Any:
    if isinstance(holder, list) and isinstance(step, int):
        return holder[step] if step < len(holder) else None
    return holder.get(step) if isinstance(holder, dict) else None


def _put(holder: Any, step: str | int, value: Any) -> bool:
    if isinstance(holder, list) and isinstance(step, int):
        if step - len(holder) > _LARGEST_GAP:
            return False
        holder.extend([None] * (step + 1 - len(holder)))
        holder[step] = value
        return True
    if isinstance(holder, dict):
        holder[str(step)] = value
        return True
    return False


def _below(holder: Any, step: str | int, new: Any) -> Any:
    """The container at a step, made if it is not there; None if it cannot be."""
    found = _item(holder, step)
    if isinstance(found, dict | list):
        return found
    return new if _put(holder, step, new) else None
