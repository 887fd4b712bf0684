"""Guesses the format of a request body from what only one format has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.wire import formats
from antiphon.wire.spec import FormatSignature


def detect_format(body: Any) -> str | None:
    """The only format a request body can be in; None if several fit, or none."""
    if not isinstance(body, dict):
        return None
    possible = {name: wire.spec for name, wire in formats.items() if wire.spec.messages_key in body}
    if len(possible) > 1:
        matching = {name: spec for name, spec in possible.items() if _matches(spec.signature, spec.messages_key, body)}
        # A format without a signature is the usual one for its key.
        possible = matching or {name: spec for name, spec in possible.items() if spec.signature == FormatSignature()}
    return next(iter(possible)) if len(possible) == 1 else None


def is_signed(name: str, messages: Sequence[Any]) -> bool:
    """Whether a list of messages has something that only the format has."""
    spec = formats[name].spec
    return _matches(spec.signature, spec.messages_key, {spec.messages_key: list(messages)})


def _matches(signature: FormatSignature, messages_key: str, body: dict[str, Any]) -> bool:
    """Whether the body has anything that only this format has."""
    if not signature.body_keys.isdisjoint(body):
        return True
    if any(not signature.tool_keys.isdisjoint(tool) for tool in _objects(body.get("tools"))):
        return True
    for message in _objects(body[messages_key]):
        role, kind = message.get("role"), message.get("type")
        if isinstance(kind, str) and kind in signature.message_types:
            return True
        if (isinstance(role, str) and role in signature.roles) or not signature.message_keys.isdisjoint(message):
            return True
        kinds = (block.get("type") for block in _objects(message.get("content")))
        if any(isinstance(kind, str) and kind in signature.block_types for kind in kinds):
            return True
    return False


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
