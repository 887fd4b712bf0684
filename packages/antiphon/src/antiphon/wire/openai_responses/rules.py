"""The rules of Responses (OR-01 to OR-23) as rows, and the check of a request body.

An error is what api.openai.com certainly refuses; what only some models or hosts refuse is an advisory. A null parameter is
absent. The order of items does not matter: a call and its output are matched by `call_id`, and an output may answer a call that
the server keeps (previous_response_id, conversation, an item_reference, a compaction).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import format_capabilities, look_up
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.media import parse_data_url
from antiphon.wire.openai_responses import FORMAT, SPEC
from antiphon.wire.openai_responses.content import is_refused_file_url
from antiphon.wire.openai_responses.limits import (
    CALL_ITEMS,
    ID_PREFIXES,
    ITEM_TYPES,
    PARAMETERS,
    REFUSED_FILES,
    RESULT_ITEMS,
    STORED_ITEMS,
)
from antiphon.wire.openai_responses.parameters import LOGPROBS, PARAMETER_TABLE, asks_for_logprobs
from antiphon.wire.openai_responses.tools import declared_names
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.tools.names import PORTABLE_NAME_LENGTH
from antiphon.wire.vendors.openai import is_name, mentions_json, texts_of
from antiphon.wire.vendors.openai_parameters import find_refused
from antiphon.wire.vendors.openai_rules import (
    UNSUPPORTED,
    declared_function,
    output_schema,
    refused_parameters,
    refused_switch,
    tool_name,
)

_INPUT_PARTS = rows.name_list(
    "input_text input_image output_text refusal input_file input_audio computer_screenshot summary_text reasoning_text"
)
_OUTPUT_PARTS = ("output_text", "refusal")
_RESULT_PARTS = ("input_text", "input_image", "input_file")
_MESSAGE_FIELDS = rows.name_set("type role content id status phase agent")
_CHAT_ONLY_FIELDS = rows.name_list("cache_control tool_calls tool_call_id reasoning_content thinking_blocks")
_RENAMED_FROM_CHAT = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
}
_CHAT_ONLY_PARAMETERS = rows.name_set(
    "audio frequency_penalty logit_bias logprobs modalities n prediction presence_penalty seed stop web_search_options"
)
_CHOICES = ("none", "auto", "required")
_PREVIOUS_ID_PREFIX = "resp"


_CHAT_ONLY = {name: rows.Refused(rule="OR-19") for name in _CHAT_ONLY_FIELDS}
"""Fields of messages and parts that OpenAI refuses here."""


def _part(*also: rows.CrossRule, **fields: rows.Check) -> rows.Object:
    return rows.Object(fields={**_CHAT_ONLY, **fields}, unknown="", also=also)


def _find_file(part: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    url, data = part.get("file_url"), part.get("file_data")
    if isinstance(url, str) and is_refused_file_url(url):
        yield "file_url", "audio and video are not accepted as files"
    if data is None:
        return
    parsed = parse_data_url(data) if isinstance(data, str) else None
    if parsed is None:
        yield "file_data", "must be a data URL"
    elif parsed.media_type.startswith(REFUSED_FILES):
        yield "file_data", "audio and video are not accepted as files"
    elif part.get("filename") is None:
        yield "filename", "is required"


_PART_ROWS: dict[str, rows.Check] = {
    **{kind: _part() for kind in _INPUT_PARTS},
    "input_text": _part(text=rows.need(rows.STRING)),
    "output_text": _part(text=rows.need(rows.STRING)),
    "input_image": _part(image_url=rows.STRING),
    "input_file": _part(rows.CrossRule("OR-05", _find_file)),
}


def _parts(rule: str, kinds: tuple[str, ...]) -> rows.Either:
    part = rows.Tagged(kinds={kind: _PART_ROWS[kind] for kind in kinds}, rule=rule)
    return rows.Either(
        rows={str: rows.ANY, list: rows.Items(item=part)}, name="a string or an array of objects", rule=rule
    )


class _ItemId(rows.Check, frozen=True):
    """The id of an item; other types have ids of any kind."""

    prefix: str

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is not str:
            found.add(self.rule, at, rows.expected("a string", value))
        elif not is_name(value) or not value.startswith(self.prefix):
            found.add(self.rule, at, f'must begin with "{self.prefix}" and have at most 64 letters, digits, - and _')


def _item(kind: str, rule: str, *also: rows.CrossRule, **fields: rows.Check) -> rows.Object:
    ids = {"id": _ItemId(rule="OR-09", prefix=ID_PREFIXES[kind])} if kind in ID_PREFIXES else {}
    return rows.Object(rule=rule, fields={**_CHAT_ONLY, **ids, **fields}, unknown="", also=also)


def _call_id(shape: str) -> rows.String:
    longest = lambda: format_capabilities(FORMAT).tool_id_length  # noqa: E731
    return rows.String(rule="OR-08", shape=shape, min_length=1, max_length=longest)


_INPUT_CONTENT, _MODEL_CONTENT = _parts("OR-03", _INPUT_PARTS), _parts("OR-03", _OUTPUT_PARTS)
_CLIENT_MESSAGE = _item("message", "OR-03", content=rows.need(_INPUT_CONTENT))
_MESSAGE = rows.Tagged(
    tag="role",
    kinds={
        "assistant": _item("message", "OR-03", content=rows.need(_MODEL_CONTENT)),
        **dict.fromkeys(("system", "developer", "user"), _CLIENT_MESSAGE),
    },
    at_tag=True,
    rule="OR-02",
)


def _call(kind: str, text: str) -> rows.Object:
    name = tool_name(FORMAT)
    return _item(
        kind, "OR-04", call_id=rows.need(_call_id("OR-04")), name=rows.need(name), **{text: rows.need(rows.STRING)}
    )


_RESULT_ROWS = {
    kind: _item(kind, "OR-05", call_id=rows.need(_call_id("OR-05")), output=rows.need(_parts("OR-05", _RESULT_PARTS)))
    for kind in RESULT_ITEMS
}
_ITEM_ROWS: dict[str, rows.Check] = {
    **{kind: _item(kind, "OR-02") for kind in ITEM_TYPES},
    "message": _MESSAGE,
    "function_call": _call("function_call", "arguments"),
    "custom_tool_call": _call("custom_tool_call", "input"),
    **_RESULT_ROWS,
    "reasoning": _item("reasoning", "OR-11", summary=rows.need(rows.ARRAY)),
    "item_reference": _item("item_reference", "OR-09", id=rows.need(rows.STRING)),
}


class _Item(rows.Tagged, frozen=True):
    """An input item, which may omit its type."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is dict and value.get("type") is None:
            kind = "message" if "role" in value or "id" not in value else "item_reference"
            self.kinds[kind].check(value, at, found)
        else:
            rows.Tagged.check(self, value, at, found)


_TOOL_NAME = tool_name(FORMAT, "OR-12")
_FUNCTION = declared_function(FORMAT, "OR-12", "OR-12", "OR-12", "OR-20")
_TOOL = rows.Tagged(
    kinds={
        "function": _FUNCTION,
        "custom": rows.Object(rule="OR-12", fields={"name": rows.need(_TOOL_NAME)}, unknown=""),
    },
    at_tag=True,
    is_open=True,
    rule="OR-12",
)
_NAMESPACE = rows.Object(
    rule="OR-12", fields={"tools": rows.Either(rows={list: rows.Items(item=_TOOL)}, name="an array")}, unknown=""
)
_TEXT_FORMAT = rows.Tagged(
    kinds={
        "text": rows.ANY,
        "json_object": rows.ANY,
        "json_schema": output_schema("OR-17", "OR-20", is_schema_needed=True),
    },
    at_tag=True,
    rule="OR-17",
)
_BODY = rows.Object(
    rule="OR-01",
    unknown="",
    fields={
        **PARAMETER_TABLE.checks(),
        "model": rows.STRING,
        "input": rows.Either(
            rows={str: rows.ANY, list: rows.Items(item=_Item(kinds=_ITEM_ROWS, at_tag=True, rule="OR-02"))},
            name="a string or an array of objects",
        ),
        "tools": rows.Items(
            item=rows.Tagged(kinds={**_TOOL.kinds, "namespace": _NAMESPACE}, at_tag=True, is_open=True, rule="OR-12"),
            rule="OR-12",
        ),
        "tool_choice": rows.Either(
            rows={str: rows.OneOf(values=_CHOICES), dict: rows.ANY}, name="a string or an object", rule="OR-13"
        ),
        "previous_response_id": rows.String(
            rule="OR-16",
            accepts=lambda text: text.startswith(_PREVIOUS_ID_PREFIX),
            name=f'must begin with "{_PREVIOUS_ID_PREFIX}"',
        ),
        "text": rows.Object(rule="OR-17", fields={"format": _TEXT_FORMAT}, unknown=""),
        **{
            name: rows.Refused(rule="OR-18", message=f"is {new} in the Responses API")
            for name, new in _RENAMED_FROM_CHAT.items()
        },
        **{name: rows.Refused(rule="OR-18") for name in _CHAT_ONLY_PARAMETERS},
        "stream_options": rows.Either(
            rows={
                dict: rows.Object(rule="OR-18", fields={"include_usage": rows.Refused()}, unknown=""),
                **dict.fromkeys((str, int, float, bool, list), rows.ANY),
            },
            name="an object",
        ),
    },
)


def check_request(
    body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False
) -> list[rows.Violation]:
    """The rules of Responses that a request body breaks; advisories follow the errors, on request."""
    if not isinstance(body, dict):
        return [rows.Violation("OR-01", "", rows.expected("an object", body))]
    model = body.get("model")
    capabilities = look_up(model if isinstance(model, str) else "", FORMAT, options.capabilities)
    return RULES.check(rows.Checked(body, capabilities, advisories))


def _is_continued(body: dict[str, Any]) -> bool:
    return body.get("previous_response_id") is not None or body.get("conversation") is not None


def _items(body: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    items = body.get("input")
    return [(index, it) for index, it in enumerate(items) if isinstance(it, dict)] if isinstance(items, list) else []


def judge_order(items: list[Any], *, is_continued: bool = False) -> list[Problem]:
    """What is wrong with the pairs of calls and outputs."""
    judge, known = SequenceJudge(SPEC.sequence_rule), set[str]()
    for index, item in enumerate(items):
        kind, call_id = (item.get("type"), item.get("call_id")) if isinstance(item, dict) else (None, None)
        if not isinstance(call_id, str):
            is_continued = is_continued or kind in STORED_ITEMS
        elif kind in RESULT_ITEMS:
            judge.turn(False)
            judge.result(call_id, index)
        elif kind in CALL_ITEMS:
            judge.turn(True)
            judge.call(call_id, index)
        else:
            known.add(call_id)
    return judge.end(known=known, is_continued=is_continued)


def _judge(body: dict[str, Any], _: rows.Checked) -> list[Problem]:
    items = body.get("input")
    return judge_order(items, is_continued=_is_continued(body)) if isinstance(items, list) else []


def _place_of(problem: Problem, _: Any) -> tuple[str | int, ...]:
    return ("input", problem.index, "call_id")


def _find_no_input(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    items = body.get("input")
    if not items and isinstance(items, str | list | None) and body.get("prompt") is None and not _is_continued(body):
        yield "input", "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."


def _add_input(body: dict[str, Any], writing: rows.Writing) -> None:
    """Add an empty message where everything was dropped, but input is required; without it where the server has it."""
    if body.get("input"):
        return
    if not any(_find_no_input(body, rows.Checked(body, writing.model))):
        body.pop("input", None)
    elif isinstance(body.get("instructions"), str):
        body["input"] = [{"role": "system", "content": body.pop("instructions")}]
    else:
        body["input"] = [{"role": "user", "content": ""}]


def _find_repeated_ids(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    ids: set[str] = set()
    for index, item in _items(body):
        item_id = item.get("id")
        if item_id and isinstance(item_id, str):
            if item_id in ids:
                yield ("input", index, "id"), "is the id of another item too"
            ids.add(item_id)


def _find_media(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    yield from media_problems(body.get("input"), "input", found.model, SPEC.media_blocks, with_types=False)


def _find_unknown_choice(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return
    if not isinstance(choice.get("type"), str):
        yield ("tool_choice", "type"), rows.expected("a string", choice.get("type"))
    elif body.get("prompt") is None:
        chosen = choice.get("tools") if choice["type"] == "allowed_tools" else [choice]
        if not isinstance(chosen, list):
            yield ("tool_choice", "tools"), rows.expected("an array", chosen)
            return
        declared = set(declared_names(body))
        for tool in chosen:
            if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom"):
                continue  # hosted tools are chosen by their type
            name = tool.get("name")
            if not isinstance(name, str):
                yield ("tool_choice", "name"), rows.expected("a string", name)
            elif name not in declared:
                yield "tool_choice", f'no tool "{name[:80]}" is declared'


def _find_refused_logprobs(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    if asks_for_logprobs(body):
        reasoning = body.get("reasoning")
        effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
        if "logprobs" in find_refused(found.model, "OR-15", body.get("temperature"), body.get("top_p"), effort):
            yield "include", UNSUPPORTED


def _drop_logprobs(body: dict[str, Any], writing: rows.Writing) -> None:
    if any(_find_refused_logprobs(body, rows.Checked(body, writing.model))):
        body["include"] = [name for name in body["include"] if name != LOGPROBS]
        if not body["include"]:
            del body["include"]
        writing.losses.append(Loss("logprobs", "logprobs", f"{UNSUPPORTED}; dropped (OR-15)"))


def _find_two_states(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if isinstance(body.get("previous_response_id"), str) and body.get("conversation") is not None:
        yield "previous_response_id", "previous_response_id and conversation exclude each other"


def _find_unmentioned_json(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, dict) else None
    if not isinstance(wanted, dict) or wanted.get("type") != "json_object":
        return
    is_elsewhere = _is_continued(body) or body.get("prompt") is not None
    if not is_elsewhere and not any(map(mentions_json, texts_of(body.get("input")))):
        yield "input", 'must contain the word "json" for the output format json_object'


def _mention_json(body: dict[str, Any], writing: rows.Writing) -> None:
    """Let the input mention JSON: by the instructions if they do, because those are not searched, else by a sentence."""
    if any(_find_unmentioned_json(body, rows.Checked(body, writing.model))):
        text = body.get("instructions")
        if isinstance(text, str) and mentions_json(text):
            body["input"].insert(0, {"role": "system", "content": body.pop("instructions")})
        else:
            body["input"].insert(0, {"role": "developer", "content": "Answer with a JSON object."})


# Advisories


def _find_names(body: dict[str, Any], _: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    if not body.get("model") and body.get("prompt") is None:  # some hosts name it in the URL (OC-01, errata)
        yield "OR-01", ("model", "is required")
    for name in body:
        if name not in PARAMETERS and name not in _BODY.fields:
            yield "OR-18", (name, "unknown field")


def _find_risky_items(body: dict[str, Any], _: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    for index, item in _items(body):
        kind, place = item.get("type"), ("input", index)
        if kind in (None, "message"):
            for field in item:
                if field not in _MESSAGE_FIELDS and field not in _CHAT_ONLY_FIELDS:
                    yield "OR-19", ((*place, field), "unknown field")
            content = item.get("content") if item.get("role") != "assistant" else None
            for position, part in enumerate(content if isinstance(content, list) else ()):
                if isinstance(part, dict) and part.get("type") in _OUTPUT_PARTS:
                    yield "OR-23", ((*place, "content", position), "is a part of the model's messages")
        is_lost = kind == "item_reference" or (kind == "reasoning" and not item.get("encrypted_content"))
        if body.get("store") is False and is_lost and item.get("id") is not None:
            yield "OR-22", ((*place, "id"), "nothing is stored while store is false")


def _find_lone_reasoning(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    items = body.get("input")
    for index, item in _items(body):
        if item.get("type") == "reasoning" and item.get("id") is not None and isinstance(items, list):
            following = items[index + 1] if index + 1 < len(items) else None
            if not isinstance(following, dict) or following.get("id") is None:
                yield ("input", index), "must be followed by the item it belongs to"


def _find_interrupted_pairs(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    """Outputs that a message stands before: OpenAI accepts that, others may not."""
    calls: dict[str, int] = {}
    outputs: set[str] = set()
    last_message = -1
    for index, item in _items(body):
        kind, call_id = item.get("type"), item.get("call_id")
        if kind in (None, "message"):
            last_message = index
        elif isinstance(call_id, str) and kind in CALL_ITEMS:
            calls.setdefault(call_id, index)
        elif isinstance(call_id, str) and kind in RESULT_ITEMS:
            if call_id not in outputs and last_message > calls.get(call_id, index):
                yield ("input", index, "call_id"), "a message stands between the call and its output"
            outputs.add(call_id)


def _find_long_names(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and len(name) > PORTABLE_NAME_LENGTH and not _TOOL_NAME.problem(name):
            yield ("tools", index, "name"), f"some hosts accept at most {PORTABLE_NAME_LENGTH} characters"


RULES = rows.RuleBook(
    {
        "OR-01": "OpenAPI; pydantic-ai 2.66.0",
        "OR-02": "OpenAPI",
        "OR-03": "OpenAPI; report jeremychone/rust-genai#119",
        "OR-04": "OpenAPI",
        "OR-05": "OpenAPI; recorded",
        "OR-06": "report openai/codex#93",
        "OR-07": "report microsoft/vscode#320060",
        "OR-08": "OpenAPI",
        "OR-09": "reports nodetool-ai/nodetool#4252, openai/codex#33176",
        "OR-10": "report vercel/ai#13307",
        "OR-11": "OpenAPI; recorded",
        "OR-12": "OpenAPI",
        "OR-13": "OpenAPI; pydantic-ai 2.66.0",
        "OR-14": "OpenAPI; litellm 1.106.2",
        "OR-15": "OpenAPI",
        "OR-16": "OpenAPI; pydantic-ai 2.66.0",
        "OR-17": "OpenAPI; pydantic-ai 2.66.0",
        "OR-18": "OpenAPI",
        "OR-19": "litellm 1.106.2",
        "OR-20": "as OC-17",
        "OR-21": "recorded; report continuedev/continue#11994",
        "OR-22": "report vercel/ai#7543",
        "OR-23": "recorded: accepted by OpenAI",
    },
    _BODY,
    rows.CrossRule("OR-17", _find_unmentioned_json, fix=_mention_json),
    rows.CrossRule("OR-01", _find_no_input, fix=_add_input),
    rows.CrossRule("OR-10", _find_repeated_ids),
    Order({"unanswered": "OR-06", "orphan": "OR-07"}, _judge, _place_of),
    rows.CrossRule("OR-05", _find_media),
    rows.CrossRule("OR-13", _find_unknown_choice),
    refused_parameters("OR-15", PARAMETER_TABLE, ("reasoning", "effort")),
    refused_switch("OR-15"),
    rows.CrossRule("OR-15", _find_refused_logprobs, fix=_drop_logprobs),
    rows.CrossRule("OR-16", _find_two_states),
    rows.CrossRules(("OR-01", "OR-18"), _find_names, advisory=True),
    rows.CrossRules(("OR-19", "OR-22", "OR-23"), _find_risky_items, advisory=True),
    rows.CrossRule("OR-21", _find_lone_reasoning, advisory=True),
    Order(
        {"repeated call": "OR-23", "repeated result": "OR-23", "early result": "OR-07"},
        _judge,
        _place_of,
        advisory=True,
    ),
    rows.CrossRule("OR-06", _find_interrupted_pairs, advisory=True),
    rows.CrossRule("OR-12", _find_long_names, advisory=True),
)
