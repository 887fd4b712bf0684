"""Requests of plain contents, read as they are decoded (see `codec.typed_reader`).

Plain is: text, calls and results in words, a call with a signature or without, all of it in camelCase.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import Part, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.codec.typed_reader import PlainReader
from antiphon.wire.gemini.calls import MINTED, CallIds, encode
from antiphon.wire.gemini.request import request_of
from antiphon.wire.gemini.results import MAY_BE_OBJECT, read_result
from antiphon.wire.gemini.rules import PARAMETERS
from antiphon.wire.gemini.spelling import FORMAT
from antiphon.wire.request import Message, ModelRequest

_SUCCESS = ToolExecutionStatus.SUCCESS


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    args: dict[str, Any]
    id: str | None = None


class _Result(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    response: dict[str, Any]
    id: str | None = None


class _Part(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    text: str | UnsetType = UNSET
    function_call: _Call | UnsetType = UNSET
    function_response: _Result | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "model"]
    parts: list[_Part]


def _request(contents: list[_Content], rest: dict[str, Any]) -> ModelRequest | None:
    messages: list[Message] = []
    calls = CallIds()
    before = ""
    for content in contents:
        role = "user" if content.role == "user" else "assistant"
        if role == "assistant" and before != "assistant":
            calls.new_step()
        before = role
        parts: list[Part] = []
        for part in content.parts:
            text, call, result = part.text, part.function_call, part.function_response
            signature = part.thought_signature
            read: Part | None = None
            if result is not UNSET:
                if text is UNSET and call is UNSET and signature is UNSET:
                    read = _read_result(result, calls)
            elif call is not UNSET:
                if text is UNSET:
                    read = _read_call(call, signature, calls)
            elif text is not UNSET and signature is UNSET:
                read = Text(text)
            if read is None:
                return None
            parts.append(read)
        messages.append(Message(role, tuple(parts)))
    return request_of(messages, rest)


def _read_call(call: _Call, signature: str | UnsetType, calls: CallIds) -> ToolCallRequest | None:
    name, given = call.name, call.id
    if not name or (given is not None and (not given or given.startswith(MINTED))):
        return None
    native = None if signature is UNSET else {FORMAT: {"thoughtSignature": signature}}
    return ToolCallRequest(name, calls.called(name, given), encode(call.args).decode(), native=native)


def _read_result(result: _Result, calls: CallIds) -> ToolCallResult | None:
    name, given, response = result.name, result.id, result.response
    if not name or (given is not None and (not given or given.startswith(MINTED))):
        return None
    if len(response) == 1:
        said = response.get("output")
        if type(said) is str and said[:1] not in MAY_BE_OBJECT:
            call_id = calls.take_next(name, given)
            if call_id is not None:
                return ToolCallResult(name, call_id, _SUCCESS, (Text(said),))
    return read_result({"id": given, "name": name, "response": response}, {}, calls)


read_plain = PlainReader("contents", _Content, PARAMETERS, _request).read
