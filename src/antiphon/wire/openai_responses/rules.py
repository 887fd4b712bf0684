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

from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
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
from antiphon.wire.rules import Violation
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Range,
    Violations,
    check_type,
    missing_field,
    quote_value,
    unsupported_value,
    wrong_type,
)

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
_FUNCTION_RULES = openai.FunctionRules("OR-12", "OR-12", "OR-12", "OR-20", 128)
_is_call_name = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch
_of_id_letters = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_is_o_series = openai.model_family("o1|o3|o3-mini|o4-mini")


def check_request(body: Any, _options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """Say which rules of Responses a request body breaks, before OpenAI does.

    Advisories (what only some models or hosts refuse) follow the errors, on demand.
    """
    if not isinstance(body, dict):
        return [Violation("OR-01", "", f"Invalid body: expected an object, but got {openai.json_type_name(body)}.")]
    found: Violations = []
    if body.get("model") is not None:
        check_type(found, "OR-01", "model", body["model"], str, "a string")
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
    found: Violations = []
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
                text = f"Duplicate item found with id {quote_value(item_id)}. {remedy}"
                found.append(Violation("OR-10", f"input[{index}].id", text))
            ids.add(item_id)
    for call_id, index in calls.items():
        if call_id not in outputs:
            text = f"No tool output found for {_CALL_NAMES[messages[index]['type']]} {quote_value(call_id)}."
            found.append(Violation("OR-06", f"input[{index}].call_id", text))
    for call_id, index in outputs.items():
        if call_id not in known and not continued:
            text = f"No tool call found for function call output with call_id {quote_value(call_id)}."
            found.append(Violation("OR-07", f"input[{index}].call_id", text))
    return found


def _is_continued(body: dict[str, Any]) -> bool:
    return body.get("previous_response_id") is not None or body.get("conversation") is not None


def _check_input(found: Violations, body: dict[str, Any], items: Any) -> None:
    if items is not None and not isinstance(items, (str, list)):
        found.append(wrong_type("OR-01", "input", "one of a string or array of objects", items))
    elif not items and body.get("prompt") is None and not _is_continued(body):
        text = "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."
        found.append(Violation("OR-01", "input", text))


def _check_item(found: Violations, index: int, item: Any) -> None:
    if not isinstance(item, dict):
        found.append(wrong_type("OR-02", f"input[{index}]", "an object", item))
        return
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item or "id" not in item else "item_reference"
    if not isinstance(kind, str) or kind not in _ITEM_TYPES:
        found.append(unsupported_value("OR-02", f"input[{index}].type", kind, ITEM_TYPES))
        return
    if kind == "message":
        _check_message(found, index, item)
    elif kind in _CALL_TEXTS:
        _check_call(found, index, item, _CALL_TEXTS[kind])
    elif kind in RESULTS:
        _check_result(found, index, item)
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        check_type(found, "OR-11", f"input[{index}].summary", item.get("summary"), list, "an array of objects")
    elif kind == "item_reference" and not isinstance(item.get("id"), str):
        check_type(found, "OR-09", f"input[{index}].id", item.get("id"), str, "a string")
    if item.get("id") is not None and kind in _ID_PREFIXES:
        _check_id(found, f"input[{index}].id", item["id"], _ID_PREFIXES[kind])
    if not FOREIGN_FIELDS.isdisjoint(item):
        found.extend(
            openai.unknown_field("OR-19", f"input[{index}].{field}") for field in item if field in FOREIGN_FIELDS
        )


def _check_message(found: Violations, index: int, item: dict[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    if role is None:
        found.append(missing_field("OR-02", f"input[{index}].role"))
    elif role not in ROLES:
        found.append(unsupported_value("OR-02", f"input[{index}].role", role, ROLES))
    if isinstance(content, list):
        supported, text_kind = (OUTPUT_PARTS, "output_text") if role == "assistant" else (INPUT_PARTS, "input_text")
        for place, part in enumerate(content):
            if not openai.is_plain_text(part, text_kind):
                _check_part(found, "OR-03", f"input[{index}].content[{place}]", part, supported)
    elif not isinstance(content, str):
        path = f"input[{index}].content"
        check_type(found, "OR-03", path, content, str, "one of a string or array of objects")


def _check_part(found: Violations, rule: str, path: str, part: Any, supported: tuple[str, ...]) -> None:
    if not isinstance(part, dict):
        found.append(wrong_type(rule, path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        found.append(missing_field(rule, f"{path}.type"))
    elif kind not in supported:
        found.append(unsupported_value(rule, path, kind, supported))
    elif kind in ("input_text", "output_text"):
        check_type(found, rule, f"{path}.text", part.get("text"), str, "a string")
    elif kind == "input_image" and part.get("image_url") is not None:
        check_type(found, rule, f"{path}.image_url", part["image_url"], str, "a string")
    elif kind == "input_file":
        _check_file(found, path, part)
    if not FOREIGN_FIELDS.isdisjoint(part):
        found.extend(openai.unknown_field("OR-19", f"{path}.{field}") for field in part if field in FOREIGN_FIELDS)


def _check_file(found: Violations, path: str, part: dict[str, Any]) -> None:
    url, data = part.get("file_url"), part.get("file_data")
    if isinstance(url, str) and is_recording(url):
        text = "The file type you uploaded is not supported. Please try again with a pdf"
        found.append(Violation("OR-05", f"{path}.file_url", text))
    if data is None or not check_type(found, "OR-05", f"{path}.file_data", data, str, "a string"):
        return
    parsed = parse_data_url(data)
    if parsed is None or parsed.media_type.startswith(("audio/", "video/")):
        got = (
            f"unsupported MIME type '{quote_value(parsed.media_type)}'"
            if parsed
            else "a value without the 'data:' prefix"
        )
        example = "(e.g. 'data:text/plain;base64,SGVsbG8sIFdvcmxkIQ==')"
        wanted = f"Expected a base64-encoded data URL with a valid file MIME type {example}, but got {got}."
        found.append(Violation("OR-05", f"{path}.file_data", f"Invalid file data: '{path}.file_data'. {wanted}"))
    elif part.get("filename") is None:
        found.append(missing_field("OR-05", f"{path}.filename"))


def _check_call(found: Violations, index: int, item: dict[str, Any], text_field: str) -> None:
    _check_call_id(found, "OR-04", index, item.get("call_id"))
    name = item.get("name")
    if not isinstance(name, str) or not _is_call_name(name):
        openai.check_name(found, "OR-04", f"input[{index}].name", name, 128)
    if not isinstance(item.get(text_field), str):
        check_type(found, "OR-04", f"input[{index}].{text_field}", item.get(text_field), str, "a string")


def _check_call_id(found: Violations, rule: str, index: int, call_id: Any) -> None:
    if isinstance(call_id, str) and 0 < len(call_id) <= 64:
        return
    path = f"input[{index}].call_id"
    if check_type(found, rule, path, call_id, str, "a string"):
        longest = openai.string_too_long("OR-08", path, len(call_id), 64)
        found.append(longest if call_id else openai.empty_string("OR-08", path))


def _check_result(found: Violations, index: int, item: dict[str, Any]) -> None:
    _check_call_id(found, "OR-05", index, item.get("call_id"))
    output = item.get("output")
    if isinstance(output, list):
        for place, part in enumerate(output):
            _check_part(found, "OR-05", f"input[{index}].output[{place}]", part, RESULT_PARTS)
    elif not isinstance(output, str):
        check_type(found, "OR-05", f"input[{index}].output", output, str, "one of a string or array of objects")


def _check_id(found: Violations, path: str, item_id: Any, prefix: str) -> None:
    if not isinstance(item_id, str):
        found.append(wrong_type("OR-09", path, "a string", item_id))
    elif not _of_id_letters(item_id):
        letters = "contains letters, numbers, underscores, or dashes, but this value contained additional characters."
        found.append(
            Violation("OR-09", path, f"Invalid '{path}': '{quote_value(item_id)}'. Expected an ID that {letters}")
        )
    elif not item_id.startswith(prefix):
        text = f"Invalid '{path}': '{quote_value(item_id)}'. Expected an ID that begins with '{prefix}'."
        found.append(Violation("OR-09", path, text))
    elif len(item_id) > 64:
        found.append(openai.string_too_long("OR-09", path, len(item_id), 64))


def _check_tools(found: Violations, tools: Any) -> None:
    if tools is None or not check_type(found, "OR-12", "tools", tools, list, "an array of objects"):
        return
    for place, tool in enumerate(tools):
        _check_tool(found, f"tools[{place}]", tool)
        members = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
        for inner, member in enumerate(members if isinstance(members, list) else ()):
            _check_tool(found, f"tools[{place}].tools[{inner}]", member)


def _check_tool(found: Violations, path: str, tool: Any) -> None:
    if not isinstance(tool, dict):
        found.append(wrong_type("OR-12", path, "an object", tool))
        return
    kind = tool.get("type")
    if not check_type(found, "OR-12", f"{path}.type", kind, str, "a string"):
        return
    if kind == "function":
        openai.check_function(found, _FUNCTION_RULES, path, tool)
    elif kind == "custom":
        openai.check_name(found, "OR-12", f"{path}.name", tool.get("name"), 128)


def _check_tool_choice(found: Violations, body: dict[str, Any]) -> None:
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        if check_type(found, "OR-13", "tool_choice.type", kind, str, "a string") and body.get("prompt") is None:
            members = choice.get("tools") if kind == "allowed_tools" else [choice]
            if check_type(found, "OR-13", "tool_choice.tools", members, list, "an array of objects"):
                _check_chosen(found, members or [], set(declared_names(body)))
    elif choice is not None and choice not in ("none", "auto", "required"):
        found.append(unsupported_value("OR-13", "tool_choice", choice, ("none", "auto", "required")))


def _check_chosen(found: Violations, chosen: list[Any], declared: set[str]) -> None:
    for tool in chosen:
        if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
            continue  # hosted tools are chosen by their type
        name: Any = tool.get("name")
        if check_type(found, "OR-13", "tool_choice.name", name, str, "a string") and name not in declared:
            text = f"Tool choice '{quote_value(name)}' not found in 'tools' parameter."
            found.append(Violation("OR-13", "tool_choice", text))


def _check_settings(found: Violations, body: dict[str, Any]) -> None:
    openai.check_ranges(found, "OR-14", body, {"max_output_tokens": Range(16, integer=True)})
    openai.check_ranges(found, "OR-15", body, RANGES)
    openai.check_metadata(found, "OR-15", body.get("metadata"))
    reasoning, model = body.get("reasoning"), body.get("model")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    efforts = ("low", "medium", "high")
    if effort is not None and isinstance(model, str) and _is_o_series(model) and effort not in efforts:
        wanted = f"is not supported with the '{model}' model. Supported values are: {openai.quote_list(efforts)}."
        found.append(Violation("OR-15", "reasoning.effort", f"Unsupported value: '{quote_value(effort)}' {wanted}"))
    previous = body.get("previous_response_id")
    if previous is None or not check_type(found, "OR-16", "previous_response_id", previous, str, "a string"):
        return
    if not previous.startswith("resp"):
        text = f"Invalid 'previous_response_id': '{quote_value(previous)}'. Expected an ID that begins with 'resp'."
        found.append(Violation("OR-16", "previous_response_id", text))
    if body.get("conversation") is not None:
        one = "Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
        found.append(Violation("OR-16", "previous_response_id", f"Mutually exclusive parameters: {one}"))


def _check_text(found: Violations, body: dict[str, Any]) -> None:
    text: Any = body.get("text")
    if text is None or not check_type(found, "OR-17", "text", text, dict, "an object"):
        return
    wanted = text.get("format")
    if wanted is None or not check_type(found, "OR-17", "text.format", wanted, dict, "an object"):
        return
    kind = wanted.get("type")
    if kind == "json_schema":
        openai.check_output_schema(found, "OR-17", "OR-20", "text.format", wanted, schema_needed=True)
    elif kind == "json_object":
        if (
            not _is_continued(body)
            and body.get("prompt") is None
            and not any(map(openai.mentions_json, texts_of(body.get("input"))))
        ):
            needed = "must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
            found.append(Violation("OR-17", "input", f"Response input messages {needed}"))
    elif kind != "text":
        found.append(unsupported_value("OR-17", "text.format.type", kind, ("json_object", "json_schema", "text")))


def _check_parameters(found: Violations, body: dict[str, Any]) -> None:
    for name in body:
        if name in MOVED:
            moved = f"In the Responses API, this parameter has moved to '{MOVED[name]}'."
            found.append(Violation("OR-18", name, f"Unsupported parameter: '{name}'. {moved}"))
        elif name in CHAT_ONLY:
            found.append(openai.unknown_field("OR-18", name))
    options = body.get("stream_options")
    if isinstance(options, dict) and "include_usage" in options:
        found.append(openai.unknown_field("OR-18", "stream_options.include_usage"))
