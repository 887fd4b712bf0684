"""Edits of a request body that leave everything else byte for byte: the model's name, and the request for usage.

Only the outermost object is decoded. A duplicate key is kept once, so that what was checked is what is sent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import WireError

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
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def top_level_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The outermost object of a body, its values as raw JSON. Raises `WireError`."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the body is not a JSON object: {error}") from error


_OPTIONS = "stream_options"
_INCLUDE = "include_usage"


def requests_usage(body: bytes) -> bool:
    """Whether a Chat Completions body requests the usage of its stream."""
    return _options(top_level_fields(body)).get(_INCLUDE) is True


def with_usage_requested(body: bytes) -> bytes:
    """The same body, with usage requested."""
    fields = top_level_fields(body)
    options = {**_options(fields), _INCLUDE: True}
    fields[_OPTIONS] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(fields)


def _options(fields: dict[str, msgspec.Raw]) -> dict[str, Any]:
    options = msgspec.json.decode(fields[_OPTIONS]) if _OPTIONS in fields else None
    return options if isinstance(options, dict) else {}
