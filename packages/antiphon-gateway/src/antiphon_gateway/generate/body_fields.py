"""A request body as its outermost fields: read and changed without parsing what is inside them.

Decoding a long body costs more than everything else that is done for a request that passes unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import WireError

INCLUDE_USAGE = "include_usage"
_OPTIONS = "stream_options"
_REQUESTED = b'{"stream_options":{"include_usage":true},'
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_model_name(body: bytes) -> str:
    """The model that a body names."""
    model = top_level_fields(body).get("model")
    name = msgspec.json.decode(model) if model is not None else None
    if not isinstance(name, str) or not name:
        raise WireError("model: you must provide a model parameter (a string)")
    return name


def replace_model(body: bytes, model: str) -> bytes:
    """The same body with another model."""
    fields = top_level_fields(body)
    name = "agent" if "agent" in fields and "model" not in fields else "model"  # Interactions have agents too
    fields[name] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def with_model(body: bytes, model: str) -> bytes:
    """The same body with that model; unchanged if it names it already."""
    named = top_level_fields(body).get("model")
    return body if named is not None and msgspec.json.decode(named) == model else replace_model(body, model)


def top_level_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The outermost object of a body, its values as raw JSON. Raises `WireError`."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the body is not a JSON object: {error}") from error


def stream_options(body: bytes) -> dict[str, Any] | None:
    """The `stream_options` of a Chat Completions body; None if it has none. Raises `WireError`."""
    if _OPTIONS.encode() not in body:  # decoding a long body costs more than all else
        return None
    fields = top_level_fields(body)
    return as_options(msgspec.json.decode(fields[_OPTIONS])) if _OPTIONS in fields else None


def with_stream_requested(body: bytes) -> bytes:
    """The same body, which asks for a stream."""
    return msgspec.json.encode({**top_level_fields(body), "stream": True})


def with_usage_requested(body: bytes, options: dict[str, Any] | None) -> bytes:
    """The same body, which has these `stream_options`, with usage requested."""
    begin = body.find(b"{")
    if options is None and begin >= 0:
        return body[:begin] + _REQUESTED + body[begin + 1 :]
    fields = top_level_fields(body)
    fields[_OPTIONS] = msgspec.Raw(msgspec.json.encode({**(options or {}), INCLUDE_USAGE: True}))
    return msgspec.json.encode(fields)


def as_options(value: Any) -> dict[str, Any]:
    """Stream options, whatever a client sent there."""
    return value if isinstance(value, dict) else {}
