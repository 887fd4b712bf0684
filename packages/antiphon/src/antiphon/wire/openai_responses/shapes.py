"""The input items of Responses as one struct: items may omit their type, so there is no tag to tell them apart by.

It has the fields of messages, calls, outputs and reasoning; those of other items are what their `Loose` has more.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

from antiphon.wire.shapes import Loose, Shape, Shapes


class Item(Shape):
    type: Any = UNSET
    role: Any = UNSET
    content: Any = UNSET
    call_id: Any = UNSET
    name: Any = UNSET
    arguments: Any = UNSET
    output: Any = UNSET
    id: Any = UNSET
    status: Any = UNSET
    summary: Any = UNSET
    encrypted_content: Any = UNSET


ITEMS = Shapes(Item)


def shape_of(item: Any) -> Item | None:
    """The shape of an item; None if it is not an object."""
    shape: Item | None = item.shape if type(item) is Loose else item
    return shape


def fields_of(item: Any, known: Container[str] = ()) -> dict[str, Any]:
    """The fields of an item beside the `known` ones; null is a value."""
    if type(item) is Loose:
        return {name: value for name, value in item.value.items() if name not in known}
    return {name: value for name, value in asdict(item).items() if value is not UNSET and name not in known}


def other_field(item: Any, name: str) -> Any:
    """A field that the shape does not name."""
    return item.more.get(name) if type(item) is Loose else None


def value_of(item: Any) -> Any:
    """An item as it came."""
    return item.value if type(item) is Loose else fields_of(item)
