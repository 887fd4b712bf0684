"""Guesses the format of a request body from what only one format has."""

from __future__ import annotations

from typing import Any

from antiphon.wire import formats
from antiphon.wire.format import FormatSignature


def detect_format(body: Any) -> str | None:
    """The only format a request body can be in; None if several fit, or none."""
    if not isinstance(body, dict):
        return None
    possible = {name: wire.module for name, wire in formats.items() if wire.module.messages_key in body}
    if len(possible) > 1:
        matching = {
            name: module for name, module in possible.items() if _matches(module.signature, module.messages_key, body)
        }
        # A format without a signature is the usual one for its key.
        possible = matching or {
            name: module for name, module in possible.items() if module.signature == FormatSignature()
        }
    return next(iter(possible)) if len(possible) == 1 else None


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
