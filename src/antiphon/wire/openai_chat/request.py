"""Chat Completions requests: `read_request` and `write_request`.

Theory of operation. The body's keys are sorted once: messages go to `messages`, tools and the choice among them to `tools`,
everything else to `parameters`. Each of these modules reads and writes, keeps what it does not know as native extras, and
lists its normalisations in its header. Writing puts the three together in a fixed order of keys, so that the same request
always gives the same bytes, and asks the dialect where hosts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.errors import WireError
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.content import FORMAT, SHARED
from antiphon.wire.openai_chat.dialects import dialect_named
from antiphon.wire.openai_chat.message_writer import MessageWriter
from antiphon.wire.openai_chat.messages import read_messages
from antiphon.wire.openai_chat.parameters import asks_to_think, finish_parameters, read_parameters, write_parameters
from antiphon.wire.openai_chat.rules import takes_no_system, texts_of
from antiphon.wire.openai_chat.tools import read_choice, read_function_choice, read_functions, read_tools, write_tools
from antiphon.wire.openai_parameters import SHARED_PARAMETERS
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.vendors import openai

_JSON_NOTE = {"role": "system", "content": "Answer with a JSON object."}


def read_request(body: dict[str, Any]) -> ModelRequest:
    """A Chat Completions body in neutral terms."""
    messages = body.get("messages")
    if type(messages) is not list:
        raise WireError(f"messages: a chat request holds an array of messages, not {openai.json_type_name(messages)}")
    return request_of(read_messages(messages), {key: value for key, value in body.items() if key != "messages"})


def request_of(messages: tuple[Message, ...], rest: dict[str, Any]) -> ModelRequest:
    """The request of messages that are read, and of the rest of their body."""
    fields: dict[str, Any] = {"messages": messages}
    native = read_parameters(rest, fields)
    _read_tools(fields, native)
    shared = {key: native.pop(key) for key in SHARED_PARAMETERS if key in native}
    if shared or native:
        fields["native"] = {**({SHARED: shared} if shared else {}), **({FORMAT: native} if native else {})}
    return ModelRequest(**fields)


def _read_tools(fields: dict[str, Any], native: dict[str, Any]) -> None:
    tools, functions = native.get("tools"), native.get("functions")
    declared: list[Any] = []
    if type(tools) is list:
        declared.extend(read_tools(native.pop("tools")))
    if type(functions) is list:
        read = read_functions(functions)
        if read is not None:
            del native["functions"]
            declared.extend(read)
    fields["tools"] = tuple(declared)
    choice = read_choice(native.get("tool_choice"))
    if choice is not None:
        fields["tool_choice"] = choice
        del native["tool_choice"]
    elif "tool_choice" not in native and "functions" not in native:
        choice = read_function_choice(native.get("function_call"))
        if choice is not None:
            fields["tool_choice"] = choice
            del native["function_call"]


def write_request(request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body that the host takes; what it cannot say is appended to `losses`."""
    host = dialect_named(options.dialect or "openai")
    body: dict[str, Any] = {}
    if request.model:
        body["model"] = request.model
    takes_system = not takes_no_system(request.model)
    thinks = asks_to_think(request.reasoning)
    writer = MessageWriter(losses, host, takes_system=takes_system, thinks=thinks)
    body["messages"] = messages = writer.write(request.messages)
    if not messages:
        messages.append({"role": "user", "content": ""})  # OC-01
    write_tools(request, body, losses, host)
    write_parameters(request, body, losses, host)
    finish_parameters(request, body, losses, host)
    wanted = request.output_format
    if wanted is not None and wanted.kind == "json_object" and not _opens_with_json(messages):
        messages.insert(0, _JSON_NOTE if takes_system else {**_JSON_NOTE, "role": "user"})  # OC-24
    return body


def _opens_with_json(messages: list[Any]) -> bool:
    """Whether JSON is spoken of up to the first question: what comes later may not change the beginning (L9)."""
    roles = [message.get("role") if type(message) is dict else None for message in messages]
    first = roles.index("user") + 1 if "user" in roles else len(messages)
    return any(map(openai.mentions_json, texts_of(messages[:first])))


def decode_request(data: bytes) -> ModelRequest | None:
    """The same from bytes; None if the body must be read generically."""
    from antiphon.wire.openai_chat.plain import read_plain

    return read_plain(data)


def scan_request(data: bytes) -> ModelRequest | None:
    """The order of calls and results; None if the body must be read whole."""
    from antiphon.wire.openai_chat.outline import read_outline

    return read_outline(data)


def needs_whole_request(request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    return request.output_format is not None and request.output_format.kind == "json_object"
