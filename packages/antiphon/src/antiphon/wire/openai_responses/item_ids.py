"""The ids of items: which of them are sent, and new ones.

Ids are sent only if this API issued them and they are legal, each of them once (OR-09, OR-10). In a turn with reasoning all items
keep their ids or none does (OR-21). Ids that Antiphon generated contain `GENERATED_ID_MARK` and are never sent to an API.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

from antiphon.ids import new_id
from antiphon.parts import Native, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.loss import Losses
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.limits import ID_PREFIXES
from antiphon.wire.shared_openai import is_name
from antiphon.wire.tools.names import MAX_CACHED_LENGTH

GENERATED_ID_MARK = "_antiphon_"


class IdPolicy(Enum):
    """Which item ids of a turn are sent."""

    NONE = 0
    EACH = 1
    """Each that may be sent."""
    ALL = 2
    """All; they were checked before."""


class IdGenerator:
    """Generates ids for the items of one response."""

    def __init__(self) -> None:
        self._stem = new_id()
        self._count = 0

    def new(self, item_type: str) -> str:
        self._count += 1
        return f"{ID_PREFIXES[item_type]}{GENERATED_ID_MARK}{self._stem}{self._count:02d}"


def is_valid_item_id(item_id: str, item_type: str) -> bool:
    """Whether OpenAI may have issued an id for an item of this type."""
    return (_cached_check_item_id if len(item_id) <= MAX_CACHED_LENGTH else _check_item_id)(item_id, item_type)


def _check_item_id(item_id: str, item_type: str) -> bool:
    prefix = ID_PREFIXES.get(item_type, "")
    return item_id.startswith(prefix) and is_name(item_id) is not None and GENERATED_ID_MARK not in item_id


_cached_check_item_id = lru_cache(maxsize=4096)(_check_item_id)


class ItemIds:
    """The ids sent in one request."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._sent: set[str] = set()

    def claim(self, item_id: str) -> bool:
        """Whether an id was not sent yet; it counts as sent then."""
        is_new = item_id not in self._sent
        self._sent.add(item_id)
        return is_new

    def add_fields(self, item: dict[str, Any], fields: dict[str, Any] | None, ids: IdPolicy) -> None:
        """Add an item's own fields, and its id if it may be sent."""
        item.update(fields or {})
        if ids == IdPolicy.ALL and item.get("id") is not None:
            return
        item_id = item.pop("id", None)
        if item_id is None or (type(item_id) is str and GENERATED_ID_MARK in item_id):
            return
        if type(item_id) is not str or not is_valid_item_id(item_id, item["type"]):
            reason = "item id was not issued by OpenAI; sent without id (OR-09)"
        elif ids == IdPolicy.NONE:
            reason = "one id in this turn cannot be sent, so all were dropped (OR-21)"
        elif item_id in self._sent:
            reason = "duplicate item id; sent without id (OR-10)"
        else:
            self._sent.add(item_id)
            item["id"] = item_id
            return
        self._losses.add("id", reason, "id")

    def claim_turn(self, parts: Sequence[Any]) -> bool:
        """Whether every item of a turn has an id that may be sent; if so, they count as sent.

        An item that never had an id (`"id": None`) counts as one that has.
        """
        sent: set[str] = set()
        after_reasoning = after_text = False
        for part in parts:
            kind = type(part)
            fields: dict[str, Any] | None
            if kind is Native:
                after_text = False
                fields, item_type = (part.data if part.origin == FORMAT and type(part.data) is dict else None), ""
            else:
                native = part.native
                fields = native.get(FORMAT) if native is not None else None
                if kind is Text or kind is Refusal:
                    fields = fields.get("item") if fields is not None else None
                    if after_text and fields is None:
                        continue  # it continues an item
                    after_text, item_type = True, "message"
                else:
                    after_text = False
                    item_type = "reasoning" if kind is Thinking else "function_call"
                    if kind is ToolCallRequest and part.freeform:
                        item_type = "custom_tool_call"
            if fields is None:
                if kind is Native or kind is Thinking:
                    continue
                fields = {}
            item_id = fields.get("id")
            if item_id is None:
                if after_reasoning and "id" not in fields:
                    return False
            else:
                if type(item_id) is not str or not is_valid_item_id(item_id, item_type):
                    return False
                if item_id in sent or item_id in self._sent:
                    return False
                sent.add(item_id)
            after_reasoning = kind is Thinking and item_id is not None
        self._sent |= sent
        return True
