"""What Responses accepts, as checks of a request body (rules OR-01 to OR-23).

`check_request` checks the parameters, each input item, and the pairs of calls and outputs (OR-06, OR-07, OR-10). Order does not
matter: a call and its output are matched by `call_id`, and an output may answer a call that the server keeps
(previous_response_id, conversation, an item_reference, a compaction). An error is what api.openai.com certainly refuses; what
only some models or hosts refuse is an advisory, in a pass of its own. A null parameter counts as absent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from antiphon.wire.capabilities import Capabilities, format_capabilities, look_up, tool_name_matcher
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.media import parse_data_url
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import is_audio_or_video_url
from antiphon.wire.openai_responses.parameters import PARAMETER_TABLE, asks_for_logprobs
from antiphon.wire.openai_responses.tools import declared_names
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules import Violation, json_type_name, name_list, name_set
from antiphon.wire.vendors import openai
from antiphon.wire.vendors.openai import (
    Violations,
    check_type,
    missing_field,
    quote_value,
    texts_of,
    unsupported_value,
    wrong_type,
)
from antiphon.wire.vendors.openai_parameters import WORDING, check_effort, is_reasoning

ROLES = ("assistant", "system", "developer", "user")
ITEM_TYPES = name_list(
    "additional_tools agent_message apply_patch_call apply_patch_call_output code_interpreter_call compaction"
    " compaction_trigger computer_call computer_call_output configuration_update custom_tool_call"
    " custom_tool_call_output file_search_call function_call function_call_output image_generation_call"
    " item_reference local_shell_call local_shell_call_output mcp_approval_request mcp_approval_response"
    " mcp_call mcp_list_tools message multi_agent_call multi_agent_call_output program program_output reasoning"
    " shell_call shell_call_output tool_search_call tool_search_output web_search_call"
)
INPUT_PARTS = name_list(
    "input_text input_image output_text refusal input_file input_audio computer_screenshot summary_text reasoning_text"
)
OUTPUT_PARTS = ("output_text", "refusal")
RESULT_PARTS = ("input_text", "input_image", "input_file")
PARAMETERS = name_set(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata"
    " model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options"
    " prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text"
    " tool_choice tools top_logprobs top_p truncation user"
)
RENAMED_FROM_CHAT = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
}
CHAT_ONLY_PARAMETERS = name_set(
    "audio frequency_penalty logit_bias logprobs modalities n prediction presence_penalty seed stop web_search_options"
)
CALL_ITEMS = ("function_call", "custom_tool_call")
RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
CHAT_ONLY_FIELDS = name_set("cache_control tool_calls tool_call_id reasoning_content thinking_blocks")
_MESSAGE_FIELDS = name_set("type role content id status phase agent")

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
_ELSEWHERE = ("item_reference", "compaction")  # items that may stand for further calls on the server
_FUNCTION_RULES = openai.FunctionRules(FORMAT, "OR-12", "OR-12", "OR-12", "OR-20")
_is_id_charset = re.compile(r"[a-zA-Z0-9_-]+").fullmatch


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of Responses that a request body breaks; advisories follow the errors, on request."""
    if not isinstance(body, dict):
        return [Violation("OR-01", "", f"Invalid body: expected an object, but got {json_type_name(body)}.")]
    violations: Violations = []
    if body.get("model") is not None:
        check_type(violations, "OR-01", "model", body["model"], str, "a string")
    items = body.get("input")
    _check_input(violations, body, items)
    if isinstance(items, list):
        for index, item in enumerate(items):
            _check_item(violations, index, item)
        violations.extend(check_sequence(items, continued=_is_continued(body)))
    _check_tools(violations, body.get("tools"))
    _check_tool_choice(violations, body)
    model = body.get("model")
    capabilities = look_up(model if isinstance(model, str) else "", FORMAT, options.capabilities)
    violations += [
        Violation("OR-05", path, reason)
        for path, reason in media_problems(items, "input", capabilities, with_types=False)
    ]
    _check_settings(violations, body, capabilities)
    _check_text(violations, body)
    _check_parameters(violations, body)
    if advisories:
        violations.extend(find_advisories(body, items if isinstance(items, list) else []))
    return violations


def check_sequence(messages: list[Any], *, continued: bool = False) -> list[Violation]:
    """Check that calls and outputs match by id and that no item comes twice.

    `continued` says that the server holds earlier items, where the call of an output may be.
    """
    violations: Violations = []
    calls: dict[str, int] = {}
    outputs: dict[str, int] = {}
    known: set[str] = set()
    ids: set[str] = set()
    for index, item in enumerate(messages):
        if not isinstance(item, dict):
            continue
        kind, call_id, item_id = item.get("type"), item.get("call_id"), item.get("id")
        if isinstance(call_id, str):
            if kind in RESULT_ITEMS:
                outputs.setdefault(call_id, index)
            else:
                known.add(call_id)
                if kind in CALL_ITEMS:
                    calls.setdefault(call_id, index)
        elif kind in _ELSEWHERE:
            continued = True
        if item_id and isinstance(item_id, str):
            if item_id in ids:
                remedy = "Remove duplicate items from your input and try again."
                text = f"Duplicate item found with id {quote_value(item_id)}. {remedy}"
                violations.append(Violation("OR-10", f"input[{index}].id", text))
            ids.add(item_id)
    for call_id, index in calls.items():
        if call_id not in outputs:
            text = f"No tool output found for {_CALL_NAMES[messages[index]['type']]} {quote_value(call_id)}."
            violations.append(Violation("OR-06", f"input[{index}].call_id", text))
    for call_id, index in outputs.items():
        if call_id not in known and not continued:
            text = f"No tool call found for function call output with call_id {quote_value(call_id)}."
            violations.append(Violation("OR-07", f"input[{index}].call_id", text))
    return violations


def _is_continued(body: dict[str, Any]) -> bool:
    return body.get("previous_response_id") is not None or body.get("conversation") is not None


def _check_input(violations: Violations, body: dict[str, Any], items: Any) -> None:
    if items is not None and not isinstance(items, (str, list)):
        violations.append(wrong_type("OR-01", "input", "one of a string or array of objects", items))
    elif not items and body.get("prompt") is None and not _is_continued(body):
        text = "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."
        violations.append(Violation("OR-01", "input", text))


def _check_item(violations: Violations, index: int, item: Any) -> None:
    if not isinstance(item, dict):
        violations.append(wrong_type("OR-02", f"input[{index}]", "an object", item))
        return
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item or "id" not in item else "item_reference"
    if not isinstance(kind, str) or kind not in _ITEM_TYPES:
        violations.append(unsupported_value("OR-02", f"input[{index}].type", kind, ITEM_TYPES))
        return
    if kind == "message":
        _check_message(violations, index, item)
    elif kind in _CALL_TEXTS:
        _check_call(violations, index, item, _CALL_TEXTS[kind])
    elif kind in RESULT_ITEMS:
        _check_result(violations, index, item)
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        check_type(violations, "OR-11", f"input[{index}].summary", item.get("summary"), list, "an array of objects")
    elif kind == "item_reference" and not isinstance(item.get("id"), str):
        check_type(violations, "OR-09", f"input[{index}].id", item.get("id"), str, "a string")
    if item.get("id") is not None and kind in _ID_PREFIXES:
        _check_id(violations, f"input[{index}].id", item["id"], _ID_PREFIXES[kind])
    if not CHAT_ONLY_FIELDS.isdisjoint(item):
        violations.extend(
            openai.unknown_field("OR-19", f"input[{index}].{field}") for field in item if field in CHAT_ONLY_FIELDS
        )


def _check_message(violations: Violations, index: int, item: dict[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    if role is None:
        violations.append(missing_field("OR-02", f"input[{index}].role"))
    elif role not in ROLES:
        violations.append(unsupported_value("OR-02", f"input[{index}].role", role, ROLES))
    if isinstance(content, list):
        supported, text_kind = (OUTPUT_PARTS, "output_text") if role == "assistant" else (INPUT_PARTS, "input_text")
        for place, part in enumerate(content):
            if not openai.is_plain_text(part, text_kind):
                _check_part(violations, "OR-03", f"input[{index}].content[{place}]", part, supported)
    elif not isinstance(content, str):
        path = f"input[{index}].content"
        check_type(violations, "OR-03", path, content, str, "one of a string or array of objects")


def _check_part(violations: Violations, rule: str, path: str, part: Any, supported: tuple[str, ...]) -> None:
    if not isinstance(part, dict):
        violations.append(wrong_type(rule, path, "an object", part))
        return
    kind = part.get("type")
    if kind is None:
        violations.append(missing_field(rule, f"{path}.type"))
    elif kind not in supported:
        violations.append(unsupported_value(rule, path, kind, supported))
    elif kind in ("input_text", "output_text"):
        check_type(violations, rule, f"{path}.text", part.get("text"), str, "a string")
    elif kind == "input_image" and part.get("image_url") is not None:
        check_type(violations, rule, f"{path}.image_url", part["image_url"], str, "a string")
    elif kind == "input_file":
        _check_file(violations, path, part)
    if not CHAT_ONLY_FIELDS.isdisjoint(part):
        violations.extend(
            openai.unknown_field("OR-19", f"{path}.{field}") for field in part if field in CHAT_ONLY_FIELDS
        )


def _check_file(violations: Violations, path: str, part: dict[str, Any]) -> None:
    url, data = part.get("file_url"), part.get("file_data")
    if isinstance(url, str) and is_audio_or_video_url(url):
        text = "The file type you uploaded is not supported. Please try again with a pdf"
        violations.append(Violation("OR-05", f"{path}.file_url", text))
    if data is None or not check_type(violations, "OR-05", f"{path}.file_data", data, str, "a string"):
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
        violations.append(Violation("OR-05", f"{path}.file_data", f"Invalid file data: '{path}.file_data'. {wanted}"))
    elif part.get("filename") is None:
        violations.append(missing_field("OR-05", f"{path}.filename"))


def _check_call(violations: Violations, index: int, item: dict[str, Any], text_field: str) -> None:
    _check_call_id(violations, "OR-04", index, item.get("call_id"))
    name = item.get("name")
    if not isinstance(name, str) or not tool_name_matcher(FORMAT)(name):
        openai.check_tool_name(violations, "OR-04", f"input[{index}].name", name, FORMAT)
    if not isinstance(item.get(text_field), str):
        check_type(violations, "OR-04", f"input[{index}].{text_field}", item.get(text_field), str, "a string")


def _check_call_id(violations: Violations, rule: str, index: int, call_id: Any) -> None:
    limit = format_capabilities(FORMAT).tool_id_length or sys.maxsize
    if isinstance(call_id, str) and 0 < len(call_id) <= limit:
        return
    path = f"input[{index}].call_id"
    if check_type(violations, rule, path, call_id, str, "a string"):
        longest = openai.string_too_long("OR-08", path, len(call_id), limit)
        violations.append(longest if call_id else openai.empty_string("OR-08", path))


def _check_result(violations: Violations, index: int, item: dict[str, Any]) -> None:
    _check_call_id(violations, "OR-05", index, item.get("call_id"))
    output = item.get("output")
    if isinstance(output, list):
        for place, part in enumerate(output):
            _check_part(violations, "OR-05", f"input[{index}].output[{place}]", part, RESULT_PARTS)
    elif not isinstance(output, str):
        check_type(violations, "OR-05", f"input[{index}].output", output, str, "one of a string or array of objects")


def _check_id(violations: Violations, path: str, item_id: Any, prefix: str) -> None:
    if not isinstance(item_id, str):
        violations.append(wrong_type("OR-09", path, "a string", item_id))
    elif not _is_id_charset(item_id):
        letters = "contains letters, numbers, underscores, or dashes, but this value contained additional characters."
        violations.append(
            Violation("OR-09", path, f"Invalid '{path}': '{quote_value(item_id)}'. Expected an ID that {letters}")
        )
    elif not item_id.startswith(prefix):
        text = f"Invalid '{path}': '{quote_value(item_id)}'. Expected an ID that begins with '{prefix}'."
        violations.append(Violation("OR-09", path, text))
    elif len(item_id) > 64:
        violations.append(openai.string_too_long("OR-09", path, len(item_id), 64))


def _check_tools(violations: Violations, tools: Any) -> None:
    if tools is None or not check_type(violations, "OR-12", "tools", tools, list, "an array of objects"):
        return
    for place, tool in enumerate(tools):
        _check_tool(violations, f"tools[{place}]", tool)
        members = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
        for inner, member in enumerate(members if isinstance(members, list) else ()):
            _check_tool(violations, f"tools[{place}].tools[{inner}]", member)


def _check_tool(violations: Violations, path: str, tool: Any) -> None:
    if not isinstance(tool, dict):
        violations.append(wrong_type("OR-12", path, "an object", tool))
        return
    kind = tool.get("type")
    if not check_type(violations, "OR-12", f"{path}.type", kind, str, "a string"):
        return
    if kind == "function":
        openai.check_function(violations, _FUNCTION_RULES, path, tool)
    elif kind == "custom":
        openai.check_tool_name(violations, "OR-12", f"{path}.name", tool.get("name"), FORMAT)


def _check_tool_choice(violations: Violations, body: dict[str, Any]) -> None:
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        if check_type(violations, "OR-13", "tool_choice.type", kind, str, "a string") and body.get("prompt") is None:
            members = choice.get("tools") if kind == "allowed_tools" else [choice]
            if check_type(violations, "OR-13", "tool_choice.tools", members, list, "an array of objects"):
                _check_chosen(violations, members or [], set(declared_names(body)))
    elif choice is not None and choice not in ("none", "auto", "required"):
        violations.append(unsupported_value("OR-13", "tool_choice", choice, ("none", "auto", "required")))


def _check_chosen(violations: Violations, chosen: list[Any], declared: set[str]) -> None:
    for tool in chosen:
        if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
            continue  # hosted tools are chosen by their type
        name: Any = tool.get("name")
        if check_type(violations, "OR-13", "tool_choice.name", name, str, "a string") and name not in declared:
            text = f"Tool choice '{quote_value(name)}' not found in 'tools' parameter."
            violations.append(Violation("OR-13", "tool_choice", text))


def _check_settings(violations: Violations, body: dict[str, Any], capabilities: Capabilities) -> None:
    violations.extend(PARAMETER_TABLE.check(body, capabilities, WORDING))
    openai.check_metadata(violations, "OR-15", body.get("metadata"))
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    check_effort(violations, "OR-15", "reasoning.effort", effort, body.get("model"), capabilities)
    reasons = is_reasoning(effort, capabilities)
    refused = refused_fields(
        capabilities, "OR-15", "OR-15", body.get("temperature"), body.get("top_p"), is_reasoning=reasons
    )
    if refused:
        violations.extend(PARAMETER_TABLE.check_refused(body, refused, WORDING))
        if "logprobs" in refused and asks_for_logprobs(body):
            text = "Unsupported parameter: 'include' with log probabilities is not supported with this model."
            violations.append(Violation("OR-15", "include", text))
    if body.get("parallel_tool_calls") is not None and not capabilities.parallel_tool_switch:
        text = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
        violations.append(Violation("OR-15", "parallel_tool_calls", text))
    previous = body.get("previous_response_id")
    if previous is None or not check_type(violations, "OR-16", "previous_response_id", previous, str, "a string"):
        return
    if not previous.startswith("resp"):
        text = f"Invalid 'previous_response_id': '{quote_value(previous)}'. Expected an ID that begins with 'resp'."
        violations.append(Violation("OR-16", "previous_response_id", text))
    if body.get("conversation") is not None:
        one = "Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
        violations.append(Violation("OR-16", "previous_response_id", f"Mutually exclusive parameters: {one}"))


def _check_text(violations: Violations, body: dict[str, Any]) -> None:
    text: Any = body.get("text")
    if text is None or not check_type(violations, "OR-17", "text", text, dict, "an object"):
        return
    wanted = text.get("format")
    if wanted is None or not check_type(violations, "OR-17", "text.format", wanted, dict, "an object"):
        return
    kind = wanted.get("type")
    if kind == "json_schema":
        openai.check_output_schema(violations, "OR-17", "OR-20", "text.format", wanted, schema_needed=True)
    elif kind == "json_object":
        if (
            not _is_continued(body)
            and body.get("prompt") is None
            and not any(map(openai.mentions_json, texts_of(body.get("input"))))
        ):
            needed = "must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
            violations.append(Violation("OR-17", "input", f"Response input messages {needed}"))
    elif kind != "text":
        violations.append(unsupported_value("OR-17", "text.format.type", kind, ("json_object", "json_schema", "text")))


def _check_parameters(violations: Violations, body: dict[str, Any]) -> None:
    for name in body:
        if name in RENAMED_FROM_CHAT:
            moved = f"In the Responses API, this parameter has moved to '{RENAMED_FROM_CHAT[name]}'."
            violations.append(Violation("OR-18", name, f"Unsupported parameter: '{name}'. {moved}"))
        elif name in CHAT_ONLY_PARAMETERS:
            violations.append(openai.unknown_field("OR-18", name))
    options = body.get("stream_options")
    if isinstance(options, dict) and "include_usage" in options:
        violations.append(openai.unknown_field("OR-18", "stream_options.include_usage"))


def _advisory(rule: str, path: str, message: str) -> Violation:
    return Violation(rule, path, message, advisory=True)


def find_advisories(body: dict[str, Any], items: list[Any]) -> Iterator[Violation]:
    """What some models or hosts refuse in a body."""
    if not body.get("model") and body.get("prompt") is None:  # some hosts name it in the URL (OC-01, errata)
        yield _advisory("OR-01", "model", "you must provide a model parameter")
    for name in body:
        if name not in PARAMETERS and name not in RENAMED_FROM_CHAT and name not in CHAT_ONLY_PARAMETERS:
            yield openai.unknown_field("OR-18", quote_value(name), advisory=True)
    entries = [(index, item) for index, item in enumerate(items) if isinstance(item, dict)]
    for index, item in entries:
        yield from _field_advisories(index, item)
        if body.get("store") is False:
            yield from _unstored_advisories(index, item)
    yield from _reasoning_advisories(items)
    yield from _pair_advisories(entries)
    tools = body.get("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        tool_name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(tool_name, str) and 64 < len(tool_name) <= 128:
            yield openai.string_too_long("OR-12", f"tools[{place}].name", len(tool_name), 64, advisory=True)


def _field_advisories(index: int, item: dict[str, Any]) -> Iterator[Violation]:
    if item.get("type") not in (None, "message"):
        return
    for field in item:
        if field not in _MESSAGE_FIELDS and field not in CHAT_ONLY_FIELDS:
            yield openai.unknown_field("OR-19", f"input[{index}].{quote_value(field)}", advisory=True)
    content = item.get("content")
    if item.get("role") != "assistant" and isinstance(content, list):
        for place, part in enumerate(content):
            if isinstance(part, dict) and part.get("type") in OUTPUT_PARTS:
                text = f"Invalid value: '{part['type']}'. Supported values are: {openai.quote_list(RESULT_PARTS)}."
                yield _advisory("OR-23", f"input[{index}].content[{place}]", text)


def _unstored_advisories(index: int, item: dict[str, Any]) -> Iterator[Violation]:
    kind, item_id = item.get("type"), item.get("id")
    lost = kind == "item_reference" or (kind == "reasoning" and not item.get("encrypted_content"))
    if lost and item_id is not None:
        kept = "Items are not persisted when `store` is set to false."
        remedy = "Try again with `store` set to true, or remove this item from your input."
        yield _advisory(
            "OR-22", f"input[{index}].id", f"Item with id '{quote_value(item_id)}' not found. {kept} {remedy}"
        )


def _reasoning_advisories(items: list[Any]) -> Iterator[Violation]:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "reasoning" and item.get("id") is not None:
            following = items[index + 1] if index + 1 < len(items) else None
            if not isinstance(following, dict) or following.get("id") is None:
                of_type = "of type 'reasoning' was provided without its required following item."
                yield _advisory("OR-21", f"input[{index}]", f"Item '{quote_value(item['id'])}' {of_type}")


def _pair_advisories(entries: list[tuple[int, dict[str, Any]]]) -> Iterator[Violation]:
    """Pairs that OpenAI accepts and others may not: repeated ids, outputs before calls or apart from them."""
    calls: dict[str, int] = {}
    outputs: set[str] = set()
    last_message = -1
    for index, item in entries:
        kind, call_id, path = item.get("type"), item.get("call_id"), f"input[{index}].call_id"
        if kind in (None, "message"):
            last_message = index
        elif isinstance(call_id, str) and kind in CALL_ITEMS:
            if call_id in calls:
                yield _advisory("OR-23", path, f"Duplicate value for 'call_id' of '{quote_value(call_id)}'.")
            if call_id in outputs:
                text = f"No tool call found for function call output with call_id {quote_value(call_id)}."
                yield _advisory("OR-07", path, text)
            calls.setdefault(call_id, index)
        elif isinstance(call_id, str) and kind in RESULT_ITEMS:
            if call_id in outputs:
                yield _advisory("OR-23", path, f"Duplicate value for 'call_id' of '{quote_value(call_id)}'.")
            elif last_message > calls.get(call_id, index):
                yield _advisory("OR-06", path, f"No tool output found for tool call {quote_value(call_id)}.")
            outputs.add(call_id)
