"""What Chat Completions and Responses share: names, extras, citations, grammars, texts, and errors."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any

from antiphon.parts import NativeExtras
from antiphon.wire.errors import ErrorTable, WrittenError
from antiphon.wire.output import ErrorKind
from antiphon.wire.shapes import Shape, as_dict

OPENAI = "openai"
"""The origin of native extras that both formats have."""

SHARED_PARAMETERS = ("safety_identifier", "prompt_cache_retention", "prompt_cache_options", "moderation")
"""Parameters of both formats that no field of a request holds."""
SERVICE_TIERS = {tier: tier for tier in ("auto", "default", "flex", "scale", "priority", "fast")}
SERVICE_TIERS |= {"standard": "default", "standard_only": "default"}  # other providers' names of the default tier
MAX_NAME = 64
"""Of names of output schemas and of ids of items; the length of tool names is in the capability table."""
is_name = re.compile(f"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}").fullmatch

mentions_json = re.compile("json", re.IGNORECASE).search

_SHARED_FIELDS = ("prompt_cache_breakpoint", "detail")


def unread_fields(value: dict[str, Any], origin: str, read: Container[str]) -> NativeExtras | None:
    """The fields of an object that were not read, as native extras."""
    extras: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, field in value.items():
        if key not in read and field is not None:
            (shared if key in _SHARED_FIELDS else extras)[key] = field
    return join_extras(origin, extras, shared)


def join_extras(origin: str, extras: dict[str, Any], shared: dict[str, Any]) -> NativeExtras | None:
    """Extras of one format, and those that both formats have."""
    native = {OPENAI: shared} if shared else {}
    if extras:
        native[origin] = extras
    return native or None


CHAT, RESPONSES = "openai-chat", "openai-responses"
_CITATION = "url_citation"


def translate_citations(native: NativeExtras | None, target: str) -> NativeExtras | None:
    """The extras of a text with the citations of the other OpenAI format in the shape of `target`.

    A citation of Chat Completions is nested in `url_citation`, one of Responses has its fields beside `type`.
    """
    source = RESPONSES if target == CHAT else CHAT
    extras = native.get(source) if native is not None else None
    annotations = extras.get("annotations") if extras is not None else None
    if native is None or extras is None or type(annotations) is not list:
        return native
    written: list[Any] = []
    kept: list[Any] = []
    for annotation in annotations:
        is_citation = type(annotation) is dict and annotation.get("type") == _CITATION
        inner = annotation.get(_CITATION) if is_citation and target == RESPONSES else None
        if is_citation and target == CHAT:
            fields = {name: value for name, value in annotation.items() if name != "type"}
            written.append({"type": _CITATION, _CITATION: fields})
        elif type(inner) is dict:
            written.append({"type": _CITATION, **inner})
        else:
            kept.append(annotation)
    if not written:
        return native
    rest = {name: value for name, value in extras.items() if name != "annotations"}
    other = {**rest, "annotations": kept} if kept else rest
    return {**native, source: other, target: {**native.get(target, {}), "annotations": written}}


def translate_grammar(native: NativeExtras | None, target: str) -> NativeExtras | None:
    """The extras of a custom tool with the input format of the other OpenAI format in the shape of `target`.

    Chat Completions nests a grammar: `{"custom": {"format": {"type": "grammar", "grammar": {…}}}}`; Responses does not.
    """
    source = RESPONSES if target == CHAT else CHAT
    extras = native.get(source) if native is not None else None
    if native is None or extras is None:
        return native
    if target == CHAT:
        form, rest = extras.get("format"), {name: value for name, value in extras.items() if name != "format"}
    else:
        custom = extras.get("custom")
        inner = custom if type(custom) is dict else {}
        form, rest = inner.get("format"), {name: value for name, value in extras.items() if name != "custom"}
        if len(inner) > 1:
            rest["custom"] = {name: value for name, value in inner.items() if name != "format"}
    if type(form) is not dict:
        return native
    if form.get("type") == "grammar" and target == CHAT:
        form = {"type": "grammar", "grammar": {name: value for name, value in form.items() if name != "type"}}
    elif form.get("type") == "grammar" and type(form.get("grammar")) is dict:
        form = {"type": "grammar", **form["grammar"]}
    own = {"custom": {"format": form}} if target == CHAT else {"format": form}
    return {**native, source: rest, target: {**native.get(target, {}), **own}}


def texts_of(messages: Any) -> Iterator[str]:
    """The texts in the messages or input items of either format."""
    if isinstance(messages, str):
        yield messages
    for message in messages if isinstance(messages, list) else ():
        content = (message.get("content") or message.get("output")) if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def is_plain_text(part: Any, kind: str) -> bool:
    """Whether a content part is nothing but text of this kind: the common case, decided without making a path."""
    return type(part) is dict and len(part) == 2 and part.get("type") == kind and type(part.get("text")) is str


def collapse_text(content: list[Any], kind: str) -> Any:
    """The string of content that is a single plain text of this kind; else the list."""
    only: Any = content[0] if len(content) == 1 else None
    if isinstance(only, Shape):
        return only.text  # type: ignore[attr-defined]
    return only["text"] if is_plain_text(only, kind) else content


def mark_failed(content: list[Any], kind: str) -> list[Any]:
    """The content of a failed result: its first text begins with "Error:", because both formats have no flag for it."""
    for index, block in enumerate(content):
        block = as_dict(block) if isinstance(block, Shape) else block
        if type(block) is dict and block.get("type") == kind and type(block.get("text")) is str:
            text = block["text"]
            marked = block if text.startswith("Error:") else {**block, "text": f"Error: {text}"}
            return [*content[:index], marked, *content[index + 1 :]]
    return [{"type": kind, "text": "Error: the tool failed."}, *content]


_WRITTEN: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("invalid_request_error"),
    "context_length": WrittenError("invalid_request_error", "context_length_exceeded"),
    "authentication": WrittenError("invalid_request_error", "invalid_api_key"),
    "billing": WrittenError("insufficient_quota", "insufficient_quota"),
    "permission": WrittenError("permission_error"),
    "not_found": WrittenError("invalid_request_error", "model_not_found"),
    "timeout": WrittenError("timeout_error", "timeout"),
    "conflict": WrittenError("conflict_error"),
    "too_large": WrittenError("invalid_request_error", "request_too_large"),
    "rate_limit": WrittenError("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": WrittenError("server_error", "server_is_overloaded"),
    "server": WrittenError("server_error"),
    "stream_cut": WrittenError("server_error", "stream_cut"),
    "unknown": WrittenError("unknown_error"),
}


def error_table(name: str) -> ErrorTable:
    """The errors of either format, as OpenAI writes them."""
    return ErrorTable(
        format=name,
        code_field="code",
        read_fields=frozenset({"message", "code", "param"}),
        written=_WRITTEN,
        fields=lambda error, row, code: {
            "message": error.message,
            "type": row.type,
            "param": error.param,
            "code": code or row.code,
        },
        vendor_formats=(CHAT, RESPONSES),
        any_code=True,
    )
