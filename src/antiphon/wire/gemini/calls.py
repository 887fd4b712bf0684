"""Calls (`functionCall`) and their ids.

Gemini often gives a call no id: it tells calls apart by order and name. Everybody else needs one, so a missing id is made up
from the place of the call, the same every time the body is read; in a response also from the response's own id, so that the
calls of two turns differ. Such an id begins with `MINTED` and is never written back: Gemini gets its calls as it made them,
also when they come home by way of another format. An id the body itself spells that way is kept in `native`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import NativeExtras, ToolCallRequest
from antiphon.wire.gemini.spelling import FORMAT, fields_of, forms
from antiphon.wire.loss import Loss
from antiphon.wire.tool_calls import raw_json_object

MINTED = "call_gm_"
STAND_IN = "skip_thought_signature_validator"
"""What Gemini 3 takes in place of a signature, on a call that it did not make itself (GM-10)."""

_CALL = forms(("id", "name", "args"))

encode = msgspec.json.Encoder().encode


class CallIds:
    """The ids of the calls in one body, and which of them still lack a result."""

    __slots__ = ("_count", "_open", "_prefix")

    def __init__(self, body_id: str = "") -> None:
        digest = hashlib.sha256(body_id.encode("utf-8", "surrogatepass")).hexdigest()[:10] + "_" if body_id else ""
        self._prefix = MINTED + digest
        self._count = 0
        self._open: list[tuple[str, str | None, str]] = []

    def new_step(self) -> None:
        """The model speaks again: results from now on are for the calls from now on."""
        if self._open:
            self._open = []

    def called(self, name: str, given: str | None) -> str:
        """The id of the next call; `given` is the one that the body names."""
        call_id = given if given and not given.startswith(MINTED) else self._mint()
        self._open.append((call_id, given, name))
        return call_id

    def take_next(self, name: str, given: str | None) -> str | None:
        """The id of the first call that lacks a result, if this one belongs to it by id and by name."""
        waiting = self._open
        if waiting and waiting[0][1] == given and waiting[0][2] == name:
            return waiting.pop(0)[0]
        return None

    def answered(self, name: str, given: str | None) -> tuple[str, str | None]:
        """The id of the call that a result belongs to, and the id that the body gives that call."""
        waiting = self._open
        if not waiting:
            return (given if given and not given.startswith(MINTED) else self._mint()), None
        by_name = next((call for call in waiting if call[2] == name), waiting[0])
        found = next((call for call in waiting if given and call[1] == given), by_name)
        waiting.remove(found)
        return found[0], found[1]

    def _mint(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count - 1}"


def read_call(call: Any, extras: dict[str, Any], calls: CallIds) -> ToolCallRequest | None:
    """A call; None if it is not what it should be."""
    if type(call) is not dict:
        return None
    fields, more = fields_of(call, _CALL)
    name, args, given = fields.get("name"), fields.get("args", {}), fields.get("id")
    if type(name) is not str or not name or type(args) is not dict:
        return None
    if given is not None and (type(given) is not str or not given or given.startswith(MINTED)):
        more["id"] = given
    wire_id = given if type(given) is str and given else None
    if more:
        extras = {**extras, "functionCall": more}
    native = {FORMAT: extras} if extras else None
    return ToolCallRequest(name, calls.called(name, wire_id), encode(args).decode(), native=native)


class _Function(Struct, gc=False):
    id: str | UnsetType
    name: str
    args: Any


class WrittenCall(Struct, gc=False, rename="camel"):
    """A part that is a call, as most are: made and encoded in less time than a dictionary."""

    function_call: _Function
    thought_signature: str | UnsetType


def is_call(part: Any) -> bool:
    """Whether a written part is a call."""
    return type(part) is WrittenCall or (isinstance(part, dict) and "functionCall" in part)


def write_call(call: ToolCallRequest, name: str, losses: list[Loss], signature: str) -> WrittenCall | dict[str, Any]:
    """A call as a part; `signature` is for one that has none. Paths of losses begin at the call."""
    call_id, text = call.tool_call_id, call.arguments
    args: Any = {"input": text} if call.freeform else raw_json_object(text)
    if args is None and text.strip():  # no object (GM-08)
        losses.append(Loss(".arguments", "arguments", f"{FORMAT} takes an object; the text is in _raw"))
        args = {"_raw": text}
    elif args is None:
        args = {}
    if call_id.startswith(MINTED):
        call_id = ""
    if call.native is None:
        return WrittenCall(_Function(call_id or UNSET, name, args), signature or UNSET)
    function = {"id": call_id, "name": name, "args": args} if call_id else {"name": name, "args": args}
    part: dict[str, Any] = {"functionCall": function}
    extend(part, "functionCall", call.native)
    if signature and not part.get("thoughtSignature"):
        part["thoughtSignature"] = signature
    return part


def extend(part: dict[str, Any], field: str, native: NativeExtras) -> None:
    """Add to a written part, and to the object in its `field`, what Gemini said beside them."""
    for name, value in native.get(FORMAT, {}).items():
        if name == field and isinstance(value, dict):
            part[field].update(value)
        else:
            part[name] = value
