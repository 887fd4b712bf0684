"""What OpenAI Responses accepts, as checks over a request body (rules OR-01 to OR-23).

Theory of operation. `check_request` goes over the body's parameters, once over the input items one by one, and once over
them as a sequence; each check appends to one list of violations. The sequence rules (OR-06, OR-07, OR-10) live in
`check_sequence` alone, which repair also calls. They have no order: a call and its output find each other by `call_id`
wherever they stand, and an output may also answer a call that the server keeps (previous_response_id, conversation, an
item_reference, a compaction). An error here is what api.openai.com refuses for certain; what only some models or hosts
refuse, or what the rule book disputes, is an advisory, and made in `advice`. A parameter that is null counts as absent.
"""

from __future__ import annotations

import re
from typing import Any

from antiphon.wire import openai_schema as schema
from antiphon.wire.media import parse_data_url
from antiphon.wire.openai_responses.advice import advise
from antiphon.wire.openai_responses.content import is_recording, texts_of
from antiphon.wire.openai_responses.tools import declared_names
from antiphon.wire.openai_responses.vocabulary import (
    CALLS,
    CHAT_ONLY,
    FOREIGN_FIELDS,
    INPUT_PARTS,
    ITEM_TYPES,
    MOVED,
    OUTPUT_PARTS,
    RANGES,
    RESULT_PARTS,
    RESULTS,
    ROLES,
)
from antiphon.wire.openai_schema import Found, Range, missing, require, shown, unsupported, wrong_type
from antiphon.wire.rules import Violation

_ITEM_TYPES = frozenset(ITEM_TYPES)
_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
_CALL_TEXTS = {"function_call": "arguments", "custom_tool_call": "input"}
_CALL_NAMES = {"function_call": "function call", "custom_tool_call": "custom tool call"}
_ELSEWHERE = ("item_reference", "compaction")  # items behind which the server may know further calls
_FUNCTION_RULES = schema.FunctionRules("OR-12", "OR-12", "OR-12", "OR-20", 128)
_is_call_name = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch
_of_id_letters = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_is_o_series = schema.model_family("o1|o3|o3-mini|o4-mini")


def check_request(body: Any, *, advisories: bool = False) -> list[Violation]:
    """Say which rules of Responses a request body breaks, before OpenAI does.

    Advisories (what only some models or hosts refuse) follow the errors, on demand.
    """
    if not isinstance(body, dict):
        return [Violation("OR-01", "", f"Invalid body: expected an object, but got {schema.kind_of(body)}.")]
    found: Found = []
    if body.get("model") is not None:
        require(found, "OR-01", "model", body["model"], str, "a string")
    items = body.get("input")
    _check_input(found, body, items)
    if isinstance(items, list):
        for index, item in enumerate(items):
            _check_item(found, index, item)
        found.extend(check_sequence(items, continued=_is_continued(body)))
    _check_tools(found, body.get("tools"))
    _check_tool_choice(found, body)
    _check_settings(found, body)
    _check_text(found, body)
    _check_parameters(found, body)
    if advisories:
        found.extend(advise(body, items if isinstance(items, list) else []))
    return found


def check_sequence(messages: list[Any], *, continued: bool = False) -> list[Violation]:
    """Check that calls and outputs match by id and that no item comes twice.

    `continued` says that the server holds earlier items, where the call of an output may be.
    """
    found: Found = []
    calls: dict[str, int] = {}
    outputs: dict[str, int] = {}
    known: set[str] = set()
    ids: set[str] = set()
    for index, item in enumerate(messages):
        if not isinstance(item, dict):
            continue
        kind, call_id, item_id = item.get("type"), item.get("call_id"), item.get("id")
        if isinstance(call_id, str):
            if kind in RESULTS:
                outputs.setdefault(call_id, index)
            else:
                known.add(call_id)
                if kind in CALLS:
                    calls.setdefault(call_id, index)
        elif kind in _ELSEWHERE:
            continued = True
        if item_id and isinstance(item_id, str):
            if item_id in ids:
                remedy = "Remove duplicate items from your input and try again."
                text = f"Duplicate item found with id {shown(item_id)}. {remedy}"
                found.append(Violation("OR-10", f"input[{index}].id", text))
            ids.add(item_id)
    for call_id, index in calls.items():
        if call_id not in outputs:
            text = f"No tool output found for {_CALL_NAMES[messages[index]['type']]} {shown(call_id)}."
            found.append(Violation("OR-06", f"input[{index}].call_id", text))
    for call_id, index in outputs.items():
        if call_id not in known and not continued:
            text = f"No tool call found for function call output with call_id {shown(call_id)}."
            found.append(Violation("OR-07", f"input[{index}].call_id", text))
    return found


def _is_continued(body: dict[str, Any]) -> bool:
    return body.get("previous_response_id") is not None or body.get("conversation") is not None


def _check_input(found: Found, body: dict[str, Any], items: Any) -> None:
    if items is not None and not isinstance(items, (str, list)):
        found.append(wrong_type("OR-01", "input", "one of a string or array of objects", items))
    elif not items and body.get("prompt") is None and not _is_continued(body):
        text = "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."
        found.append(Violation("OR-01", "input", text))


def _check_item(found: Found, index: int, item: Any) -> None:
    if not isinstance(item, dict):
        found.append(wrong_type("OR-02", f"input[{index}]", "an object", item))
        return
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item or "id" not in item else "item_reference"
    if not isinstance(kind, str) or kind not in _ITEM_TYPES:
        found.append(unsupported("OR-02", f"input[{index}].type", kind, ITEM_TYPES))
        return
    if kind == "message":
        _check_message(found, index, item)
    elif kind in _CALL_TEXTS:
        _check_call(found, index, item, _CALL_TEXTS[kind])
    elif kind in RESULTS:
        _check_result(found, index, item)
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        require(found, "OR-11", f"input[{index}].summary", item.get("summary"), list, "an array of objects")
    elif kind == "item_reference" and not isinstance(item.get("id"), str):
        require(found, "OR-09", f"input[{index}].id", item.get("id"), str, "a string")
    if item.get("id") is not None and kind in _ID_PREFIXES:
        _check_id(found, f"input[{index}].id", item["id"], _ID_PREFIXES[kind])
    if not FOREIGN_FIELDS.isdisjoint(item):
        found.extend(schema.unknown("OR-19", f"input[{index}].{field}") for field in item if field in FOREIGN_FIELDS)


def _check_message(found: Found, index: int, item: dict[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    if role is None:
        found.append(missing("OR-02", f"input[{index}].role"))
    elif role not in ROLES:
        found.append(unsupported("OR-02", f"input[{index}].role", role, ROLES))
    if isinstance(content, list):
        supported, text_kind = (OUTPUT_PARTS, "output_text") if role == "assistant" else (INPUT_PARTS, "input_text")
        for place, part in enumerate(content):
            if not schema.is_plain_text(part, text_kind):
                _check_part(found, "OR-03", f"input[{index}].content[{place}]", part, supported)
    elif not isinstance(content, str):
        path = f"input[{index}].content"
        require(found, "OR-03", path, content, str, "one of a string or array of objects")


def _check_part(found: Found, rule: str, path: str, part: Any, supported: tuple[str, ...]) -> None:
    if not isinstance(part, dict):
        found.append(wrong_type(rule, path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        found.append(missing(rule, f"{path}.type"))
    elif kind not in supported:
        found.append(unsupported(rule, path, kind, supported))
    elif kind in ("input_text", "output_text"):
        require(found, rule, f"{path}.text", part.get("text"), str, "a string")
    elif kind == "input_image" and part.get("image_url") is not None:
        require(found, rule, f"{path}.image_url", part["image_url"], str, "a string")
    elif kind == "input_file":
        _check_file(found, path, part)
    if not FOREIGN_FIELDS.isdisjoint(part):
        found.extend(schema.unknown("OR-19", f"{path}.{field}") for field in part if field in FOREIGN_FIELDS)


def _check_file(found: Found, path: str, part: dict[str, Any]) -> None:
    url, data = part.get("file_url"), part.get("file_data")
    if isinstance(url, str) and is_recording(url):
        text = "The file type you uploaded is not supported. Please try again with a pdf"
        found.append(Violation("OR-05", f"{path}.file_url", text))
    if data is None or not require(found, "OR-05", f"{path}.file_data", data, str, "a string"):
        return
    parsed = parse_data_url(data)
    if parsed is None or parsed.media_type.startswith(("audio/", "video/")):
        got = f"unsupported MIME type '{shown(parsed.media_type)}'" if parsed else "a value without the 'data:' prefix"
        example = "(e.g. 'data:text/plain;base64,SGVsbG8sIFdvcmxkIQ==')"
        wanted = f"Expected a base64-encoded data URL with a valid file MIME type {example}, but got {got}."
        found.append(Violation("OR-05", f"{path}.file_data", f"Invalid file data: '{path}.file_data'. {wanted}"))
    elif part.get("filename") is None:
        found.append(missing("OR-05", f"{path}.filename"))


def _check_call(found: Found, index: int, item: dict[str, Any], text_field: str) -> None:
    _check_call_id(found, "OR-04", index, item.get("call_id"))
    name = item.get("name")
    if not isinstance(name, str) or not _is_call_name(name):
        schema.check_name(found, "OR-04", f"input[{index}].name", name, 128)
    if not isinstance(item.get(text_field), str):
        require(found, "OR-04", f"input[{index}].{text_field}", item.get(text_field), str, "a string")


def _check_call_id(found: Found, rule: str, index: int, call_id: Any) -> None:
    if isinstance(call_id, str) and 0 < len(call_id) <= 64:
        return
    path = f"input[{index}].call_id"
    if require(found, rule, path, call_id, str, "a string"):
        longest = schema.long_string("OR-08", path, len(call_id), 64)
        found.append(longest if call_id else schema.empty_string("OR-08", path))


def _check_result(found: Found, index: int, item: dict[str, Any]) -> None:
    _check_call_id(found, "OR-05", index, item.get("call_id"))
    output = item.get("output")
    if isinstance(output, list):
        for place, part in enumerate(output):
            _check_part(found, "OR-05", f"input[{index}].output[{place}]", part, RESULT_PARTS)
    elif not isinstance(output, str):
        require(found, "OR-05", f"input[{index}].output", output, str, "one of a string or array of objects")


def _check_id(found: Found, path: str, item_id: Any, prefix: str) -> None:
    if not isinstance(item_id, str):
        found.append(wrong_type("OR-09", path, "a string", item_id))
    elif not _of_id_letters(item_id):
        letters = "contains letters, numbers, underscores, or dashes, but this value contained additional characters."
        found.append(Violation("OR-09", path, f"Invalid '{path}': '{shown(item_id)}'. Expected an ID that {letters}"))
    elif not item_id.startswith(prefix):
        text = f"Invalid '{path}': '{shown(item_id)}'. Expected an ID that begins with '{prefix}'."
        found.append(Violation("OR-09", path, text))
    elif len(item_id) > 64:
        found.append(schema.long_string("OR-09", path, len(item_id), 64))


def _check_tools(found: Found, tools: Any) -> None:
    if tools is None or not require(found, "OR-12", "tools", tools, list, "an array of objects"):
        return
    for place, tool in enumerate(tools):
        _check_tool(found, f"tools[{place}]", tool)
        members = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
        for inner, member in enumerate(members if isinstance(members, list) else ()):
            _check_tool(found, f"tools[{place}].tools[{inner}]", member)


def _check_tool(found: Found, path: str, tool: Any) -> None:
    if not isinstance(tool, dict):
        found.append(wrong_type("OR-12", path, "an object", tool))
        return
    kind = tool.get("type")
    if not require(found, "OR-12", f"{path}.type", kind, str, "a string"):
        return
    if kind == "function":
        schema.check_function(found, _FUNCTION_RULES, path, tool)
    elif kind == "custom":
        schema.check_name(found, "OR-12", f"{path}.name", tool.get("name"), 128)


def _check_tool_choice(found: Found, body: dict[str, Any]) -> None:
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        if require(found, "OR-13", "tool_choice.type", kind, str, "a string") and body.get("prompt") is None:
            members = choice.get("tools") if kind == "allowed_tools" else [choice]
            if require(found, "OR-13", "tool_choice.tools", members, list, "an array of objects"):
                _check_chosen(found, members or [], set(declared_names(body)))
    elif choice is not None and choice not in ("none", "auto", "required"):
        found.append(unsupported("OR-13", "tool_choice", choice, ("none", "auto", "required")))


def _check_chosen(found: Found, chosen: list[Any], declared: set[str]) -> None:
    for tool in chosen:
        if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
            continue  # hosted tools are chosen by their type
        name: Any = tool.get("name")
        if require(found, "OR-13", "tool_choice.name", name, str, "a string") and name not in declared:
            text = f"Tool choice '{shown(name)}' not found in 'tools' parameter."
            found.append(Violation("OR-13", "tool_choice", text))


def _check_settings(found: Found, body: dict[str, Any]) -> None:
    schema.check_ranges(found, "OR-14", body, {"max_output_tokens": Range(16, whole=True)})
    schema.check_ranges(found, "OR-15", body, RANGES)
    schema.check_metadata(found, "OR-15", body.get("metadata"))
    reasoning, model = body.get("reasoning"), body.get("model")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    efforts = ("low", "medium", "high")
    if effort is not None and isinstance(model, str) and _is_o_series(model) and effort not in efforts:
        wanted = f"is not supported with the '{model}' model. Supported values are: {schema.listed(efforts)}."
        found.append(Violation("OR-15", "reasoning.effort", f"Unsupported value: '{shown(effort)}' {wanted}"))
    previous = body.get("previous_response_id")
    if previous is None or not require(found, "OR-16", "previous_response_id", previous, str, "a string"):
        return
    if not previous.startswith("resp"):
        text = f"Invalid 'previous_response_id': '{shown(previous)}'. Expected an ID that begins with 'resp'."
        found.append(Violation("OR-16", "previous_response_id", text))
    if body.get("conversation") is not None:
        one = "Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
        found.append(Violation("OR-16", "previous_response_id", f"Mutually exclusive parameters: {one}"))


def _check_text(found: Found, body: dict[str, Any]) -> None:
    text: Any = body.get("text")
    if text is None or not require(found, "OR-17", "text", text, dict, "an object"):
        return
    wanted = text.get("format")
    if wanted is None or not require(found, "OR-17", "text.format", wanted, dict, "an object"):
        return
    kind = wanted.get("type")
    if kind == "json_schema":
        schema.check_output_schema(found, "OR-17", "OR-20", "text.format", wanted, schema_needed=True)
    elif kind == "json_object":
        if (
            not _is_continued(body)
            and body.get("prompt") is None
            and not any(map(schema.says_json, texts_of(body.get("input"))))
        ):
            needed = "must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
            found.append(Violation("OR-17", "input", f"Response input messages {needed}"))
    elif kind != "text":
        found.append(unsupported("OR-17", "text.format.type", kind, ("json_object", "json_schema", "text")))


def _check_parameters(found: Found, body: dict[str, Any]) -> None:
    for name in body:
        if name in MOVED:
            moved = f"In the Responses API, this parameter has moved to '{MOVED[name]}'."
            found.append(Violation("OR-18", name, f"Unsupported parameter: '{name}'. {moved}"))
        elif name in CHAT_ONLY:
            found.append(schema.unknown("OR-18", name))
    options = body.get("stream_options")
    if isinstance(options, dict) and "include_usage" in options:
        found.append(schema.unknown("OR-18", "stream_options.include_usage"))
