"""Requests: a body of `POST /interactions`, read and written.

`system_instruction` is a leading `system` message. `model` and `agent` are both the model of a request; its `source` says
which. What only this API has (`previous_interaction_id`, `background`, `environment`, `safety_settings`, ...) stays native.

Normalisations: null is absent, and so are an empty `model`, `tools` or `generation_config`; every `input` is a list of steps; the
plain texts of a thought's summary are one; `is_error: false` and empty `arguments` may be left out or added; the only text of a
`result` may be a string; results come before other parts of a message.
"""

from __future__ import annotations

from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Source, Text
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.limits import PARAMETERS
from antiphon.wire.gemini_interactions.messages import (
    StepListWriter,
    StepReader,
    as_entries,
    is_continued,
)
from antiphon.wire.gemini_interactions.parameters import (
    PARAMETER_TABLE,
    ParameterWriter,
    read_generation,
    read_output_format,
)
from antiphon.wire.gemini_interactions.rules import RULES
from antiphon.wire.gemini_interactions.shapes import ENTRIES, ContentShape, StepShape
from antiphon.wire.gemini_interactions.tools import read_tools, write_tools
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.rules import json_type_name
from antiphon.wire.shapes import RequestReader


def _entries_of(given: Any) -> list[Any]:
    entries = as_entries(given)
    if entries is None:
        raise WireError(f"input: expected a string, an object or an array, got {json_type_name(given)}")
    return entries


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    messages = tuple(StepReader().read(entries))
    values: dict[str, Any] = {}
    native: dict[str, Any] = {}
    spelling: list[str] = []
    fields = {name: value for name, value in unread.items() if value is not None}
    system = fields.pop("system_instruction", None)
    if type(system) is str:
        messages = (Message("system", (Text(system),)), *messages)
    elif system is not None:
        native["system_instruction"] = system
    output_format = read_output_format(fields)
    if output_format is not None:
        values["output_format"] = output_format
    for name, value in PARAMETER_TABLE.read(fields, values).items():
        if name == "agent" and type(value) is str and value and not fields.get("model"):
            values["model"] = value
            spelling.append("agent")
        elif name == "generation_config" and type(value) is dict:
            read_generation(value, values, native)
        elif name == "tools" and type(value) is list:
            values["tools"] = read_tools(value)
        elif name == "response_modalities" and value == ["text"]:
            spelling.append("text-only")
        else:  # specific to this API, or malformed
            native[name] = value
    source = Source(FORMAT, tuple(spelling)) if spelling else None
    return ModelRequest(messages=messages, native={FORMAT: native} if native else None, source=source, **values)


READER = RequestReader("input", StepShape | ContentShape, PARAMETERS, ENTRIES.fit, _entries_of, _build_request)


class Writer(ParameterWriter):
    """Writes a body that the Interactions API accepts."""

    format = FORMAT
    fixes = RULES.fixes
    messages: StepListWriter

    def begin(self) -> None:
        self.own = (self.request.native or {}).get(FORMAT, {})
        self.messages = StepListWriter(self.losses, self.model, is_continued=is_continued(self.own))

    def end_messages(self) -> dict[str, Any]:
        request = self.request
        body: dict[str, Any] = {}
        if request.model:
            body["agent" if is_spelled(request, "agent") else "model"] = request.model
        self.messages.finish()
        if system := "\n\n".join(self.messages.system):
            body["system_instruction"] = system
        if self.messages.entries or not is_continued(self.own):
            body["input"] = self.messages.entries
        if tools := write_tools(request.tools, self.losses):
            body["tools"] = tools
        return body
