"""Each format as its tests use it: through `formats`, with the losses in a list and options as an object."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.wire import FORMATS, ModelOutput, ModelRequest, formats
from antiphon.wire.format import DEFAULT_OPTIONS, StreamReader, StreamWriter, WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError
from antiphon.wire.rules import Violation


class WireFormat:
    """One format."""

    def __init__(self, name: str) -> None:
        self.wire = formats[name]

    def read_request(self, body: dict[str, Any]) -> ModelRequest:
        return self.wire.read_request(body)

    def write_request(
        self, request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS
    ) -> dict[str, Any]:
        body, lost = self.wire.write_request(request, **_keywords(options))
        losses += lost
        return body

    def check_request(
        self, body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False
    ) -> list[Violation]:
        return self.wire.check_request(body, advisories=advisories, **_keywords(options))

    def read_response(self, body: dict[str, Any]) -> ModelOutput:
        return self.wire.read_response(body)

    def write_response(self, output: ModelOutput, losses: list[Loss]) -> dict[str, Any]:
        body, lost = self.wire.write_response(output)
        losses += lost
        return body

    def read_error(self, body: object, status: int | None = None) -> ProviderError:
        return self.wire.read_error(body, status)

    def write_error(self, error: ProviderError) -> dict[str, Any]:
        return self.wire.write_error(error)

    def stream_reader(self) -> StreamReader:
        return self.wire.stream_reader()

    def stream_writer(self, model: str = "") -> StreamWriter:
        return self.wire.stream_writer(model)


def _keywords(options: WriteOptions) -> Any:
    fields = {name: getattr(options, name) for name in options.__struct_fields__}
    return {name: value for name, value in fields.items() if value != getattr(DEFAULT_OPTIONS, name)}


def plain(value: Any) -> Any:
    """A written value as the other side gets it."""
    return msgspec.json.decode(msgspec.json.encode(value))


CHAT, RESPONSES, ANTHROPIC, GEMINI, INTERACTIONS = map(WireFormat, FORMATS)
