"""`Whole`: the channel of a body that is passed on as it comes, whatever it is: files, images, batches.

The usage that it reports is read from a short JSON body, or from the end of a long one. The stream of an image or a transcript
has it in its last event, which may be some megabytes long; its usage is at the end.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.errors import TransportError
from antiphon.json_text import NOT_JSON
from antiphon.parts import TokenUsage
from antiphon.providers.engine.reply import StreamReply, error_from_transport
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError
from antiphon_gateway.generate.channels import Channel, StreamFailed
from antiphon_gateway.observe.record import Record

_MAX_BYTES = 1024 * 1024
"""Of a longer response, and of a stream, only the end is read for its usage."""
_TAIL_BYTES = 64 * 1024
_LONGEST_USAGE = 4096
_usages = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)').finditer


class Whole:
    """A body with that content type."""

    is_finished = False
    losses: Sequence[Loss] = ()

    def __init__(self, content_type: str, record: Record) -> None:
        self._record = record
        is_json = content_type.startswith("application/json")
        self._most = _MAX_BYTES if is_json else _TAIL_BYTES
        self._has_usage = is_json or content_type.startswith("text/event-stream")
        self._is_cut = not is_json
        self._kept: deque[bytes] = deque()
        self._size = 0

    def begin(self, reply: StreamReply) -> bytes:
        return b"".join([*reply.held, reply.unread])

    def feed(self, data: bytes) -> bytes:
        if self._has_usage:
            self._kept.append(data)
            self._size += len(data)
            if self._size > self._most:
                self._most, self._is_cut = _TAIL_BYTES, True
                while self._size - len(self._kept[0]) >= _TAIL_BYTES:
                    self._size -= len(self._kept.popleft())
        return data

    def end(self, trouble: TransportError | None) -> bytes:
        self._record.usage = self._usage() if self._has_usage else None
        if trouble is not None:
            raise StreamFailed(error_from_transport(trouble, "stream_cut"))
        return b""

    def fail(self, error: ProviderError) -> None:
        del error

    def close(self) -> bytes:
        return b""

    def continued(self) -> Channel:
        raise AssertionError("nothing else can send the rest of a file")

    def _usage(self) -> TokenUsage | None:
        body = b"".join(self._kept)
        self._kept.clear()
        if not self._is_cut:
            return read_any_usage(body)
        starts = [found.end() for found in _usages(body)]
        if not starts:
            return None
        start = starts[-1]
        end = body.find(b"}", start)
        while end >= 0:  # it may have objects inside
            if usage := read_any_usage(b'{"usage":%b}' % body[start : end + 1]):
                return usage
            end = body.find(b"}", end + 1, start + _LONGEST_USAGE)
        return None


def read_any_usage(body: bytes) -> TokenUsage | None:
    """The tokens that a JSON response reports under `usage`, in either of OpenAI's spellings."""
    try:
        usage: Any = msgspec.json.decode(body).get("usage")
    except (*NOT_JSON, AttributeError):
        return None
    if not isinstance(usage, dict):
        return None
    prompt, completion, total = (
        next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)
        for names in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens",))
    )
    if not prompt and not completion and not total:
        return None
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total)
