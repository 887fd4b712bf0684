"""A chunk of a stream that is more of a text and nothing else: what most are, told while decoding."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

NOTHING = msgspec.Raw()
"""The usage of a chunk that tells none."""


class PlainPart(Struct, forbid_unknown_fields=True, gc=False):
    """Words, or thoughts."""

    text: str
    thought: bool = False


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[PlainPart]
    role: Literal["model"] = "model"


class _Candidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    index: Literal[0] = 0


class PlainChunk(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """More of the text of the only candidate, and the usage so far, which is not looked into: only the last one counts."""

    candidates: tuple[_Candidate]
    usage_metadata: msgspec.Raw = NOTHING
    model_version: str = ""
    response_id: str = ""


_decode = msgspec.json.Decoder(PlainChunk).decode


def plain_chunk(data: bytes) -> PlainChunk | None:
    """The chunk, or None if it says anything else or is no JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
