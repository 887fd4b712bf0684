"""Requests of OpenAI Responses.

Theory of operation. Parameters that `ModelRequest` has are read into its fields if their type is right; all else (state such
as `previous_response_id`, `include`, fields not known yet, values of a wrong type) is kept in `native` and written back. The
conversation is read by `items` and written by `item_writer`. `instructions` is a leading system message; writing, a leading
system message of one text becomes `instructions` again, unless it was an item before, or there is nothing else to send: every
other system and developer message is an item, which this format takes anywhere.

Reading and writing keeps what a body means. These differ in form only:
- null is the same as absent; so are an empty `model` and empty lists of `tools`, `input`, `annotations` and `logprobs`;
- a string is the same as one text part, and `input` as a string the same as one user message;
- `type: "message"` may be left out; no `arguments` are the same as `{}`, an empty list of `output` parts as no text;
- JSON is the same in any order of keys.
What OpenAI would refuse is made legal and reported (ids, ranges, open strict schemas); ids that Antiphon made up are not sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from antiphon.errors import WireError
from antiphon.parts import Text
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.json_schema import is_object_schema
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_responses.content import FORMAT, SHARED, Body, extras_of, natives, texts_of
from antiphon.wire.openai_responses.item_writer import ItemWriter
from antiphon.wire.openai_responses.items import read_items
from antiphon.wire.openai_responses.tools import closed, read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.request import BUDGETS, Message, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.tool_calls import safe_name
from antiphon.wire.vendors.openai import (
    OPENAI_PARAMETERS,
    SERVICE_TIERS,
    SHARED_PARAMETERS,
    ParameterTable,
    is_name,
    mentions_json,
    model_family,
    read_parameter_fields,
)

_FIELDS: ParameterTable = OPENAI_PARAMETERS | {"max_output_tokens": ("max_output_tokens", (int,))}
_LOGPROBS = "message.output_text.logprobs"
_SUMMARIES = ("auto", "concise", "detailed")
_O_SERIES_EFFORTS = {"none": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_is_o_series = model_family("o1|o3|o3-mini|o4-mini")
_LEAST_TOKENS = 16
_ASKS_JSON = "Answer with a JSON object."


def read_request(body: Body) -> ModelRequest:
    """A Responses body in neutral terms."""
    items = body.get("input")
    if items is not None and not isinstance(items, str | list):
        raise WireError(f"input: expected a string or an array of items, got {type(items).__name__}")
    rest = {name: value for name, value in body.items() if name != "input"}
    messages = instructions_of(rest)
    if isinstance(items, str):
        messages.append(Message("user", (Text(items),)))
    elif items:
        read_items(items, messages)
    return request_of(messages, rest)


def instructions_of(rest: Body) -> list[Message]:
    """The message that a body begins with outside of its items, if it has one."""
    given = rest.get("instructions")
    return [Message("system", (Text(given),))] if type(given) is str else []


def request_of(messages: list[Message], rest: Body) -> ModelRequest:
    """The request of messages that are read, the instructions among them, and of the rest of their body."""
    fields: Body = {}
    own = read_parameter_fields(rest, _FIELDS, fields)
    shared = {name: own.pop(name) for name in list(own) if name in SHARED_PARAMETERS}
    if type(own.get("instructions")) is str:
        del own["instructions"]
    if own:
        _read_parameters(own, fields)
    identifier = shared.get("safety_identifier")
    if type(identifier) is str and fields.setdefault("user", identifier) == identifier and "user" in rest:
        own["user"] = rest["user"]  # said twice: the field stands for the other
    return ModelRequest(messages=tuple(messages), native=natives(own, shared), **fields)


def _read_parameters(own: Body, fields: Body) -> None:
    """The parameters with a structure: what can be read of them moves from `own` to `fields`."""
    tools = own.get("tools")
    if type(tools) is list:
        fields["tools"] = read_tools(tools)
        del own["tools"]
    choice = read_tool_choice(own.get("tool_choice"), fields.get("tools", ()))
    if choice is not None:
        fields["tool_choice"] = choice
        del own["tool_choice"]
    if type(own.get("reasoning")) is dict:
        fields["reasoning"] = _read_reasoning(own.pop("reasoning"))
    if type(own.get("text")) is dict:
        known = len(fields)
        rest = _read_text(own.pop("text"), fields)
        if rest or len(fields) == known:
            own["text"] = rest
    include = own.get("include")
    if type(include) is list and _LOGPROBS in include:
        fields["logprobs"] = True


def _read_reasoning(given: Body) -> Reasoning:
    known = {field: given[field] for field in ("effort", "summary") if type(given.get(field)) is str}
    if known.get("summary") not in _SUMMARIES:
        known.pop("summary", None)
    return Reasoning(known.get("effort"), shown=known.get("summary"), native=extras_of(given, known))


def _read_text(given: Body, fields: Body) -> Body:
    """The format and verbosity of the answer; returns what else there is."""
    rest = {field: value for field, value in given.items() if value is not None}
    if type(rest.get("verbosity")) is str:
        fields["verbosity"] = rest.pop("verbosity")
    wanted = rest.get("format")
    found = _read_format(wanted) if type(wanted) is dict else None
    if found is not None:
        fields["output_format"] = found
        del rest["format"]
    return rest


def _read_format(wanted: Body) -> OutputFormat | None:
    kind = wanted.get("type")
    if kind == "text" or kind == "json_object":
        return OutputFormat(kind, native=extras_of(wanted, ("type",)))
    types = {"schema": dict, "name": str, "description": str, "strict": bool}
    if kind != "json_schema" or any(type(wanted.get(field)) not in (kind, type(None)) for field, kind in types.items()):
        return None
    if type(wanted.get("schema")) is not dict:
        return None
    fields = {field: wanted.get(field) for field in types}
    return OutputFormat("json_schema", **fields, native=extras_of(wanted, ("type", *types)))


def write_request(request: ModelRequest, losses: list[Loss], _options: WriteOptions = DEFAULT_OPTIONS) -> Body:
    """A body that OpenAI Responses accepts."""
    native = request.native or {}
    body: Body = {"model": request.model} if request.model else {}
    body.update(native.get(SHARED, {}))
    body.update(native.get(FORMAT, {}))
    for origin, extras in native.items():
        if origin not in (FORMAT, SHARED):
            losses.extend(Loss(name, name, f"only {origin} can say it") for name in extras)
    _write_messages(request, body, ItemWriter(losses), losses)
    if request.tools:
        tools = write_tools(request.tools, losses)
        if tools:
            body["tools"] = tools
    write_tool_choice(request, body, losses)
    _write_settings(request, body, losses)
    if request.reasoning is not None:
        _write_reasoning(request, request.reasoning, body, losses)
    _write_text(request, body, losses)
    for field in ("stop", "top_k", "seed", "presence_penalty", "frequency_penalty"):
        value = getattr(request, field)
        if value is not None:
            losses.append(Loss(field, str(value), "OpenAI Responses does not have it (OR-18)"))
    if request.candidates not in (None, 1):
        losses.append(Loss("candidates", str(request.candidates), "OpenAI Responses gives one answer (OR-18)"))
    if not body["input"] and _is_continued(body):
        del body["input"]
    return body


def _write_messages(request: ModelRequest, body: Body, writer: ItemWriter, losses: list[Loss]) -> None:
    messages = request.messages
    instructions = _instructions(messages[0]) if messages else None
    writer.write(messages, 0 if instructions is None else 1)
    body["input"] = items = writer.items
    wants_json = request.output_format is not None and _format_kind(request.output_format) == "json_object"
    if instructions is not None:
        # `instructions` alone are no input (OR-01), and are not searched for the word "json" (OR-17).
        is_searched = wants_json and mentions_json(instructions.text) and not any(map(mentions_json, texts_of(items)))
        if is_searched or (not items and not _is_continued(body)):
            items.insert(0, {"role": "system", "content": instructions.text})
        else:
            body["instructions"] = instructions.text
        for path, extras in (("messages[0].parts[0]", instructions.native), ("messages[0]", messages[0].native)):
            lose_native(losses, path, extras, FORMAT)
    if wants_json and not _is_continued(body) and not any(map(mentions_json, texts_of(items))):
        items.insert(0, {"role": "developer", "content": _ASKS_JSON})
    if not items and not _is_continued(body):
        items.append({"role": "user", "content": ""})  # all that there was is lost; some input there must be (OR-01)


def _instructions(message: Message) -> Text | None:
    """The text of a leading system message that can be `instructions`."""
    if message.role != "system" or len(message.parts) != 1 or message.name is not None:
        return None
    text = message.parts[0]
    if type(text) is not Text:
        return None
    for native in (message.native, text.native):
        if native and (FORMAT in native or SHARED in native):
            return None
    return text


def _is_continued(body: Body) -> bool:
    return any(body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt"))


def _write_settings(request: ModelRequest, body: Body, losses: list[Loss]) -> None:
    for field in ("stream", "parallel_tool_calls", "store"):
        value = getattr(request, field)
        if value is not None:
            body[field] = value
    if request.service_tier is not None:
        body["service_tier"] = SERVICE_TIERS.get(request.service_tier, request.service_tier)
    if request.cache_key is not None:
        body["prompt_cache_key"] = request.cache_key
    if request.user is not None and body.get("safety_identifier") != request.user:
        body["user"] = request.user
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = _clamped(
            "max_output_tokens", request.max_output_tokens, _LEAST_TOKENS, None, losses
        )
    for field, highest in (("temperature", 2), ("top_p", 1), ("top_logprobs", 20)):
        value = getattr(request, field)
        if value is not None:
            if math.isfinite(value):
                body[field] = _clamped(field, value, 0, highest, losses)
            else:
                losses.append(Loss(field, str(value), "it is no number"))
    if request.logprobs:
        include = body.get("include")
        known: list[Any] = include if isinstance(include, list) else []
        if _LOGPROBS not in known:
            body["include"] = [*known, _LOGPROBS]
    if request.metadata is not None:
        body["metadata"] = _legal_metadata(request.metadata, losses)


def _clamped(field: str, value: float, lowest: int, highest: int | None, losses: list[Loss]) -> float:
    legal = max(value, lowest) if highest is None else min(max(value, lowest), highest)
    if legal != value:
        losses.append(Loss(field, str(value), f"out of range; {legal} is sent"))
    return legal


def _legal_metadata(metadata: Body, losses: list[Loss]) -> Body:
    """Metadata of at most 16 texts (OR-15)."""
    legal: Body = {}
    for key, value in metadata.items():
        if len(legal) == 16 or len(key) > 64 or not isinstance(value, str) or len(value) > 512:
            losses.append(Loss(f"metadata.{key[:64]}", key[:64], "OpenAI takes 16 texts of 512 characters"))
        else:
            legal[key] = value
    return legal


def _write_reasoning(request: ModelRequest, reasoning: Reasoning, body: Body, losses: list[Loss]) -> None:
    written: Body = {}
    effort = _effort(reasoning, losses)
    if effort is not None and _is_o_series(request.model):
        legal = _O_SERIES_EFFORTS.get(effort, "high")
        if legal != effort:
            losses.append(Loss("reasoning.effort", effort, f"{request.model} does not have it; {legal} is sent"))
        effort = legal
    if effort is not None:
        written["effort"] = effort
    if reasoning.shown in _SUMMARIES:
        written["summary"] = reasoning.shown
    elif reasoning.shown in ("summarized", "full"):
        written["summary"] = "auto" if reasoning.shown == "summarized" else "detailed"
    elif reasoning.shown not in (None, "omitted", "none"):  # without a summary nothing is shown
        losses.append(Loss("reasoning.shown", str(reasoning.shown), "OpenAI has no such summary"))
    written.update(own_extras(reasoning.native, losses, "reasoning", SHARED, FORMAT))
    body["reasoning"] = written


def _effort(reasoning: Reasoning, losses: list[Loss]) -> str | None:
    budget = reasoning.budget_tokens
    if reasoning.effort is not None:
        if budget is not None:
            losses.append(Loss("reasoning.budget_tokens", str(budget), "OpenAI takes an effort, not a number"))
        return reasoning.effort
    if reasoning.enabled is False:
        return "none"
    if budget is not None and budget >= 0:
        return next((effort for effort, most in BUDGETS.items() if budget <= most), "max")
    return "medium" if reasoning.enabled or budget is not None else None


def _write_text(request: ModelRequest, body: Body, losses: list[Loss]) -> None:
    if request.output_format is None and request.verbosity is None:
        return
    rest = body.get("text")
    text: Body = dict(rest) if isinstance(rest, dict) else {}
    if request.output_format is not None:
        text["format"] = _write_format(request.output_format, losses)
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    body["text"] = text


def _format_kind(wanted: OutputFormat) -> str:
    """The kind of output that can be asked for: without a schema, any object will do."""
    return "json_object" if wanted.kind == "json_schema" and wanted.schema is None else wanted.kind


def _write_format(wanted: OutputFormat, losses: list[Loss]) -> Body:
    path, kind = "output_format", _format_kind(wanted)
    if kind != "json_schema" or wanted.schema is None:
        body: Body = {"type": kind}
        said = [field for field in ("schema", "name", "description", "strict") if getattr(wanted, field) is not None]
        losses.extend(Loss(f"{path}.{field}", field, f"{kind} has none") for field in said)
    else:
        name = wanted.name or "response"
        body = {"type": "json_schema", "name": name if is_name(name) else safe_name(name, 64), "schema": wanted.schema}
        if wanted.description is not None:
            body["description"] = wanted.description
        if wanted.strict is not None:
            may_be_object = wanted.schema.get("type") is None or is_object_schema(wanted.schema)
            if wanted.strict and not may_be_object:
                losses.append(Loss(f"{path}.strict", "strict", "the root of the schema is no object"))
            body["strict"] = wanted.strict and may_be_object and closed(wanted.schema, losses, f"{path}.strict")
    body.update(own_extras(wanted.native, losses, path, SHARED, FORMAT))
    return body


def decode_request(data: bytes) -> ModelRequest | None:
    """The same from bytes; None if the body must be read generically."""
    from antiphon.wire.openai_responses.plain import read_plain

    return read_plain(data)


def scan_request(_data: bytes) -> ModelRequest | None:
    """None: the body must be read whole."""
    return None


def needs_whole_request(request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    return request.output_format is not None and request.output_format.kind == "json_object"
