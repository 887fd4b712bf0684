"""Reading a whole answer of an upstream: its usage where it is passed on, all of it where it is translated.

An answer that shows nothing, and does not say why, is a failure as it is in a stream: another attempt may bring one. Most bodies
that are passed on are not parsed for that: they show text or a call under the names of their format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from antiphon.parts import TokenUsage
from antiphon.providers.engine.reply import EMPTY_RESPONSE, UpstreamFailed
from antiphon.wire import Format
from antiphon.wire.delta import Finished, PartStarted, is_visible
from antiphon.wire.output import ModelOutput

_SHOWN: dict[str, Callable[[bytes], Any]] = {
    "openai-chat": re.compile(rb'"content"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{').search,
    "anthropic": re.compile(rb'"text"\s*:\s*"[^"]|"type"\s*:\s*"tool_use"').search,
}
"""What proves that a body shows something. Formats that are missing are read whole in any case."""


def read_passed_on(wire: Format, body: bytes) -> TokenUsage | None:
    """The usage of an answer that is passed on. Raises `WireError`, and `UpstreamFailed` if the answer is empty."""
    shown = _SHOWN.get(wire.name)
    if shown is not None and shown(body):
        return wire.scan_usage(body)
    return read_translated(wire, body).usage


def read_translated(wire: Format, body: bytes) -> ModelOutput:
    """An answer. Raises `WireError`, and `UpstreamFailed` if it is empty."""
    output = wire.read_response(body)
    if is_empty(output):
        raise UpstreamFailed(EMPTY_RESPONSE)
    return output


def is_empty(output: ModelOutput) -> bool:
    """Whether an answer would show nothing if it was streamed."""
    for answer in (output, *output.others):
        if is_visible(Finished(answer.stop_reason)) or any(is_visible(PartStarted(0, part)) for part in answer.parts):
            return False
    return True
