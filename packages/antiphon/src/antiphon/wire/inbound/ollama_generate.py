"""Ollama's `/api/generate`: one prompt, with an optional system text and images, and a text in `response`.

`suffix`, `raw` and `context` cannot be given to a chat model; the gateway refuses them. `template` is reported as lost. A request
without a prompt only loads a model in Ollama; here it is a request with an empty message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Image, Text
from antiphon.wire.inbound import ollama
from antiphon.wire.inbound.ollama import read_error, write_error
from antiphon.wire.loss import Losses
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.rules import json_type_name
from antiphon.wire.spec import FormatSpec, SequenceRule

__all__ = ["read_error", "write_error"]

FORMAT = "ollama-generate"
SPEC = FormatSpec(messages_key="prompt", sequence_rule=SequenceRule())
_READ = frozenset(
    {"model", "prompt", "system", "images", "stream", "format", "think", "options", "keep_alive", "logprobs"}
)


def read_request(body: dict[str, Any]) -> ModelRequest:
    """A body of `/api/generate` in neutral terms."""
    prompt, system = body.get("prompt") or "", body.get("system") or ""
    for name, value in (("prompt", prompt), ("system", system)):
        if not isinstance(value, str):
            raise WireError(f"{name}: expected a string, got {json_type_name(value)}")
    images = [ollama.read_image(data, f"images[{index}]") for index, data in enumerate(body.get("images") or ())]
    parts: tuple[Text | Image, ...] = (Text(prompt), *images)
    leading = (Message("system", (Text(system),)),) if system else ()
    return ollama.build_request(body, (*leading, Message("user", parts)), (), _READ, FORMAT)


def response_fields(text: str, thinking: str, calls: Sequence[Any]) -> dict[str, Any]:
    """The text of an answer, or of a line of a stream."""
    fields: dict[str, Any] = {"response": text}
    if thinking:
        fields["thinking"] = thinking
    if calls:
        fields["tool_calls"] = calls
    return fields


class StreamWriter(ollama.StreamWriter):
    """Deltas of any format in, JSON lines out."""

    fields_of = staticmethod(response_fields)


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    """A whole answer of `/api/generate`."""
    return ollama.write_response(output, losses, response_fields)
