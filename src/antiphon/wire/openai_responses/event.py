"""One event of a stream, decoded: the fields that matter, any of which may be missing or of any type."""

from __future__ import annotations

from typing import Any

import msgspec


class StreamEvent(msgspec.Struct, gc=False):
    """What a reader looks at of an event; any other field is skipped while decoding."""

    type: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    item: Any = None
    part: Any = None
    text: Any = None
    arguments: Any = None
    input: Any = None
    refusal: Any = None
    response: Any = None
    error: Any = None
    message: Any = None
    code: Any = None
    param: Any = None


decode_event = msgspec.json.Decoder(StreamEvent).decode
