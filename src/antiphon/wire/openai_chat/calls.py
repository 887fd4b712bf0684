"""Tool calls as assistant messages hold them, and the names of tools.

Theory of operation. `arguments` is text on both sides and is not looked into; a host that parses it gets `{}` for what is no
object. A call that cannot be read stays whole as `Native(FORMAT, {"tool_calls": [call]})`, so that it keeps its place among
the calls. Deprecated function calls have no ids; they get one here, and a mark that makes them function calls again.

Normalisations: a call without `type` is a function call, `index` that equals the place is dropped, arguments that are absent
are empty, arguments that are an object become its JSON text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.parts import Native, NativeExtras, ToolCallRequest
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.openai_chat.content import FORMAT, SHARED, extras
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.tool_calls import raw_json_object

DEPRECATED = "function_call"
"""The mark of a call, result, tool or choice that was said in the words of the deprecated function API."""
DEPRECATED_NATIVE: NativeExtras = {FORMAT: {DEPRECATED: True}}


def is_deprecated(native: NativeExtras | None) -> bool:
    return native is not None and DEPRECATED in native.get(FORMAT, ())


def is_object(arguments: str) -> bool:
    """Whether arguments are the JSON text of an object."""
    return raw_json_object(arguments) is not None


def wrapped_calls(part: Native) -> list[Any] | None:
    """The calls that could not be read, in the wrapper that keeps them; None if it is none."""
    if part.origin != FORMAT or type(part.data) is not dict or len(part.data) != 1:
        return None
    calls: list[Any] | None = part.data.get("tool_calls")
    return calls


def read_calls(calls: list[Any]) -> list[ToolCallRequest | Native]:
    return [read_call(call, place) or Native(FORMAT, {"tool_calls": [call]}) for place, call in enumerate(calls)]


def read_call(call: Any, place: int) -> ToolCallRequest | None:
    if type(call) is not dict:
        return None
    call_id, kind = call.get("id"), call.get("type")
    if kind is None or kind == "":
        kind = "function"
    if kind not in ("function", "custom") or type(call_id) not in (str, type(None)):
        return None
    called, text = call.get(kind), "arguments" if kind == "function" else "input"
    if type(called) is not dict or type(called.get("name")) is not str:
        return None
    arguments = called.get(text, "")
    if type(arguments) is dict and kind == "function":
        arguments = msgspec.json.encode(arguments).decode()
    if type(arguments) not in (str, type(None)):
        return None
    index = ("index",) if call.get("index") == place and type(call.get("index")) is int else ()
    native = extras(call, "id", "type", kind, *index)
    more = {key: value for key, value in called.items() if key not in ("name", text) and value is not None}
    if more:
        native = native or {}
        native.setdefault(FORMAT, {})[kind] = more
    return ToolCallRequest(called["name"], call_id or "", arguments or "", kind == "custom", native=native)


def read_function_call(value: Any, place: int) -> ToolCallRequest | None:
    """A call of the deprecated API; its id follows from the place of its message."""
    if type(value) is not dict or len(value) != 2:
        return None
    name, arguments = value.get("name"), value.get("arguments")
    if type(name) is not str or type(arguments) is not str or not name:
        return None
    return ToolCallRequest(name, f"call_function_{place}", arguments, native=DEPRECATED_NATIVE)


def write_call(call: ToolCallRequest, losses: list[Loss], path: str, dialect: Dialect) -> dict[str, Any]:
    """A call as an entry of `tool_calls`."""
    native, signature = call.native, None
    if native is not None:
        if dialect.takes_thought_signatures and "gemini" in native:
            gemini = dict(native["gemini"])
            signature = gemini.pop("thoughtSignature", None)
            native = {**native, "gemini": gemini}
        if DEPRECATED in native.get(FORMAT, ()):
            native = {**native, FORMAT: {key: value for key, value in native[FORMAT].items() if key != DEPRECATED}}
    more = own_extras(native, losses, path, SHARED, FORMAT)
    if signature is not None:
        more.setdefault("extra_content", {"google": {"thought_signature": signature}})
    kind, text, arguments = "function", "arguments", call.arguments
    if call.freeform and dialect.has_custom_tools:
        kind, text = "custom", "input"
    elif call.freeform:
        arguments = msgspec.json.encode({"input": arguments}).decode()
    elif dialect.argument_repair:
        arguments = parsable(call, losses, path)
    called = {"name": dialect.name_rule.to_wire(call.tool_name), text: arguments, **more.pop(kind, {})}
    return {"id": dialect.id_rule.to_wire(call.tool_call_id), "type": kind, kind: called, **more}


def parsable(call: ToolCallRequest, losses: list[Loss], path: str) -> str:
    """Arguments that a host can parse (OC-07)."""
    if is_object(call.arguments):
        return call.arguments
    if call.arguments.strip() not in ("", "null"):
        losses.append(Loss(f"{path}.arguments", "arguments", "they are no JSON object, and the host parses them"))
        return msgspec.json.encode({"_raw": call.arguments}).decode()
    return "{}"
