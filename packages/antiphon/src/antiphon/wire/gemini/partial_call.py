"""A call whose arguments arrive piece by piece (Vertex, `streamFunctionCallArguments`).

Each piece has a JSON path into the arguments (`$.recipe.steps[2]`) and a value for it. A string may continue in the next piece
with the same path. The arguments are complete when the call no longer has `willContinue`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from msgspec import Struct

from antiphon.wire.gemini.native import as_list, get_field

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MAX_GAP = 1_000


class PartialCall(Struct):
    """The arguments of one call so far."""

    index: int
    arguments: dict[str, Any] = {}
    open_string_path: str | None = None  # path of a string that the next piece continues
    open_string: list[str] = []  # its pieces, and where they belong once they are joined
    place: tuple[Any, str | int] = (None, 0)

    def add(self, call: dict[str, Any]) -> None:
        """Add a piece; malformed pieces are ignored."""
        args = call.get("args")
        if isinstance(args, dict):
            self._join()
            self.arguments.update(args)
        for piece in as_list(get_field(call, "partialArgs")):
            path = get_field(piece, "jsonPath") if isinstance(piece, dict) else None
            if isinstance(path, str):
                self._set(path, piece)

    def finish(self) -> dict[str, Any]:
        self._join()
        return self.arguments

    def _join(self) -> None:
        """Put the open string into the arguments: joining it with every piece would copy it each time."""
        if self.open_string:
            _set_item(*self.place, "".join(self.open_string))
            self.open_string = []

    def _set(self, path: str, piece: dict[str, Any]) -> None:
        has_value, value = _piece_value(piece)
        continues = get_field(piece, "willContinue") is True
        if self.open_string and self.open_string_path == path and isinstance(value, str):
            self.open_string.append(value)
            self.open_string_path = path if continues else None
            return
        self._join()
        steps = _parse_path(path)
        if not steps or not has_value:
            return
        container: Any = self.arguments
        for step, following in pairwise(steps):
            container = _get_or_create(container, step, [] if isinstance(following, int) else {})
            if container is None:
                return
        last = steps[-1]
        existing = _get_item(container, last)
        if isinstance(value, str) and isinstance(existing, str) and self.open_string_path == path:
            value = existing + value
        _set_item(container, last, value)
        self.open_string_path = path if continues else None
        if continues and isinstance(value, str) and _get_item(container, last) is value:
            self.open_string, self.place = [value], (container, last)


def _parse_path(path: str) -> list[str | int]:
    """The names and indexes of a JSON path; empty if it is malformed."""
    position = 1
    steps: list[str | int] = []
    while path.startswith("$") and position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return []
        name, number, single, double = match.groups()
        quoted = single if single is not None else double
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(name if name is not None else _ESCAPE.sub(r"\1", quoted))
        position = match.end()
    return steps


def _piece_value(piece: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the piece has a value, and the value."""
    for name in ("stringValue", "numberValue", "boolValue", "nullValue"):
        value = get_field(piece, name)
        if value is not None:
            if name == "nullValue":
                return True, None
            # All numbers are doubles; an integral one is written without a point.
            return True, int(value) if isinstance(value, float) and value.is_integer() else value
    return "nullValue" in piece, None


def _get_item(container: Any, step: str | int) -> Any:
    if isinstance(container, list) and isinstance(step, int):
        return container[step] if step < len(container) else None
    return container.get(step) if isinstance(container, dict) else None


def _set_item(container: Any, step: str | int, value: Any) -> bool:
    if isinstance(container, list) and isinstance(step, int):
        if step - len(container) > _MAX_GAP:
            return False
        container.extend([None] * (step + 1 - len(container)))
        container[step] = value
        return True
    if isinstance(container, dict):
        container[str(step)] = value
        return True
    return False


def _get_or_create(container: Any, step: str | int, empty: Any) -> Any:
    """The container at a step, created if missing; None if that is impossible."""
    existing = _get_item(container, step)
    if isinstance(existing, dict | list):
        return existing
    return empty if _set_item(container, step, empty) else None
