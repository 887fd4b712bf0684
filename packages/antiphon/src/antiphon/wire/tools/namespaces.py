"""Tools in namespaces as one list, for formats that have no namespaces.

A reader of a format that groups tools says so in the `source` of its requests; the format itself knows how to put them into one
list (`flatten` in its module `namespaces`). What it gives is a request with the names of that list, and the way back to the
names in the original.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import structs

from antiphon.wire.loss import Loss
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import ModelRequest
from antiphon.wire.spec import load_module

NAMESPACES = "namespaces"
"""The spelling of a request whose tools are in namespaces or in messages."""
_INDEXED = re.compile(r"(messages|tools)\[(\d+)\]").match


class FlatRequest(NamedTuple):
    """A request without namespaces."""

    request: ModelRequest
    positions: list[int]
    """The index of each of its messages in the original."""
    tool_paths: list[str]
    """The path of each of its tools in the original."""
    names: dict[str, tuple[str, str]]
    """The name and namespace of each member by its flat name."""
    origin: str
    """The format that has the namespaces."""

    def locate(self, loss: Loss) -> Loss:
        """The loss with the path in the original request."""
        found = _INDEXED(loss.path)
        if found is None:
            return loss
        index = int(found[2])
        place = f"messages[{self.positions[index]}]" if found[1] == "messages" else self.tool_paths[index]
        return structs.replace(loss, path=place + loss.path[found.end() :])


def namespaces_origin(request: ModelRequest) -> str | None:
    """The format whose namespaces a request has; None if its tools are in one list."""
    return request.source.format if request.source is not None and is_spelled(request, NAMESPACES) else None


def flatten(request: ModelRequest) -> FlatRequest | None:
    """The request with one list of tools, and calls by the names in it; None if it has no namespaces."""
    origin = namespaces_origin(request)
    if origin is None:
        return None
    flat: FlatRequest = load_module(origin, "namespaces").flatten(request)
    return flat
