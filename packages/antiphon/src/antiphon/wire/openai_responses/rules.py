"""The rules of Responses (OR-01 to OR-23) as rows.

An error is what api.openai.com certainly refuses; what only some models or hosts refuse is an advisory. A null parameter is
absent. The order of items does not matter: a call and its output are matched by `call_id`, and an output may answer a call that
the server keeps (previous_response_id, conversation, an item_reference, a compaction).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import format_capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.media import parse_data_url
from antiphon.wire.openai_responses import FORMAT, SPEC
from antiphon.wire.openai_responses.content import is_refused_file_url
from antiphon.wire.openai_responses.limits import (
    CALL_ITEMS,
    ID_PREFIXES,
    ITEM_TYPES,
    LOGPROBS,
    PARAMETER_TABLE,
    PARAMETERS,
    REFUSED_FILES,
    RESULT_ITEMS,
    asks_for_logprobs,
)
from antiphon.wire.openai_responses.tools import declared_names
from antiphon.wire.rules import (
    ANY,
    STRING,
    Checked,
    Items,
    Refused,
    String,
    Tagged,
    each,
    either,
    list_of,
    need,
    record,
)
from antiphon.wire.rules.book import (
    CrossRule,
    Finding,
    RuleBook,
    Writing,
    accepted_media,
    excludes,
    find_repeated,
    find_undeclared,
)
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.shared_openai import (
    UNSUPPORTED,
    declared_function,
    find_refused,
    is_name,
    mentions_json,
    output_schema,
    refused_parameters,
    refused_switch,
    texts_of,
    tool_name,
)
from antiphon.wire.tools.names import PORTABLE_NAME_LENGTH

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

_CHAT_ONLY = {name: Refused(rule="OR-19") for name in _CHAT_ONLY_FIELDS}
"""Fields of messages and parts that OpenAI refuses here."""


def _find_file(part: dict[str, Any], _: Checked) -> Iterator[Finding]:
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
    **{kind: record(**_CHAT_ONLY) for kind in _INPUT_PARTS},
    "input_text": record(text=need(STRING), **_CHAT_ONLY),
    "output_text": record(text=need(STRING), **_CHAT_ONLY),
    "input_image": record(image_url=STRING, **_CHAT_ONLY),
    "input_file": record("", CrossRule("OR-05", _find_file), **_CHAT_ONLY),
}


def _parts(rule: str, kinds: tuple[str, ...]) -> rows.Either:
    return either({str: ANY, list: Items(item=Tagged(kinds={kind: _PART_ROWS[kind] for kind in kinds}))}, rule)


def _item(kind: str, rule: str, **fields: rows.Check) -> rows.Object:
    prefix = ID_PREFIXES.get(kind)
    ids: dict[str, rows.Check] = {}
    if prefix is not None:  # other types have ids of any kind
        name = f'must begin with "{prefix}" and have at most 64 letters, digits, - and _'
        ids["id"] = String(rule="OR-09", accepts=lambda text: is_name(text) and text.startswith(prefix), name=name)
    return record(rule, **{**_CHAT_ONLY, **ids, **fields})


def _call_id(shape: str) -> rows.Required:
    longest = lambda: format_capabilities(FORMAT).tool_id_length  # noqa: E731
    return need(String(rule="OR-08", shape=shape, min_length=1, max_length=longest))


_CLIENT_MESSAGE = _item("message", "OR-03", content=need(_parts("OR-03", _INPUT_PARTS)))
_MESSAGE = Tagged(
    tag="role",
    kinds={
        "assistant": _item("message", "OR-03", content=need(_parts("OR-03", _OUTPUT_PARTS))),
        **dict.fromkeys(("system", "developer", "user"), _CLIENT_MESSAGE),
    },
    at_tag=True,
    rule="OR-02",
)


def _call(kind: str, text: str) -> rows.Object:
    return _item(kind, "OR-04", call_id=_call_id("OR-04"), name=need(tool_name(FORMAT)), **{text: need(STRING)})


_ITEM_ROWS: dict[str, rows.Check] = {
    **{kind: _item(kind, "OR-02") for kind in ITEM_TYPES},
    "message": _MESSAGE,
    "function_call": _call("function_call", "arguments"),
    "custom_tool_call": _call("custom_tool_call", "input"),
    **{
        kind: _item(kind, "OR-05", call_id=_call_id("OR-05"), output=need(_parts("OR-05", _RESULT_PARTS)))
        for kind in RESULT_ITEMS
    },
    "reasoning": _item("reasoning", "OR-11", summary=need(rows.ARRAY)),
    "item_reference": _item("item_reference", "OR-09", id=need(STRING)),
}


class _Item(Tagged, frozen=True):
    """An input item, which may omit its type."""

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        if type(value) is dict and value.get("type") is None:
            kind = "message" if "role" in value or "id" not in value else "item_reference"
            self.kinds[kind].check(value, at, found)
        else:
            Tagged.check(self, value, at, found)


_TOOL_NAME = tool_name(FORMAT, "OR-12")
_TOOLS = {
    "function": declared_function(FORMAT, "OR-12", "OR-12", "OR-12", "OR-20"),
    "custom": record("OR-12", name=need(_TOOL_NAME)),
}


def _tools(**more: rows.Check) -> rows.Items:
    return Items(item=Tagged(kinds={**_TOOLS, **more}, at_tag=True, others=ANY), rule="OR-12")


_TEXT_FORMAT = Tagged(
    kinds={
        "text": ANY,
        "json_object": ANY,
        "json_schema": output_schema("OR-17", "OR-20", is_schema_needed=True),
    },
    at_tag=True,
)
_BODY = record(
    "OR-01",
    **{
        **PARAMETER_TABLE.checks(),
        "model": STRING,
        "input": either({str: ANY, list: Items(item=_Item(kinds=_ITEM_ROWS, at_tag=True, rule="OR-02"))}),
        "tools": _tools(namespace=record("OR-12", tools=_tools())),
        "tool_choice": either(
            {
                str: rows.OneOf(values=("none", "auto", "required")),
                dict: Tagged(kinds={"allowed_tools": record(tools=need(rows.ARRAY))}, others=ANY, at_tag=True),
            },
            "OR-13",
        ),
        "previous_response_id": String(
            rule="OR-16", accepts=lambda text: text.startswith("resp"), name='must begin with "resp"'
        ),
        "text": record("OR-17", format=_TEXT_FORMAT),
        **{
            name: Refused(rule="OR-18", message=f"is {new} in the Responses API")
            for name, new in _RENAMED_FROM_CHAT.items()
        },
        **{name: Refused(rule="OR-18") for name in _CHAT_ONLY_PARAMETERS},
        "stream_options": either(
            {
                dict: record("OR-18", include_usage=Refused()),
                **dict.fromkeys((str, int, float, bool, list), ANY),
            }
        ),
    },
)


def _is_continued(body: dict[str, Any]) -> bool:
    return body.get("previous_response_id") is not None or body.get("conversation") is not None


def judge_order(items: list[Any], *, is_continued: bool = False) -> list[Problem]:
    """What is wrong with the pairs of calls and outputs."""
    judge, known = SequenceJudge(SPEC.sequence_rule), set[str]()
    for index, item in enumerate(items):
        kind, call_id = (item.get("type"), item.get("call_id")) if isinstance(item, dict) else (None, None)
        if not isinstance(call_id, str):
            is_continued = is_continued or kind in SPEC.sequence_rule.stored_items
        elif kind in RESULT_ITEMS:
            judge.turn(False)
            judge.result(call_id, index)
        elif kind in CALL_ITEMS:
            judge.turn(True)
            judge.call(call_id, index)
        else:
            known.add(call_id)
    return judge.end(known=known, is_continued=is_continued)


def _judge(body: dict[str, Any], _: Checked) -> list[Problem]:
    return judge_order(list_of(body.get("input")), is_continued=_is_continued(body))


def _place_of(problem: Problem, _: Any) -> tuple[str | int, ...]:
    return ("input", problem.index, "call_id")


def _find_no_input(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    items = body.get("input")
    if not items and isinstance(items, str | list | None) and body.get("prompt") is None and not _is_continued(body):
        yield "input", "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."


def _add_input(body: dict[str, Any], writing: Writing) -> None:
    """Add an empty message where everything was dropped, but input is required; without it where the server has it."""
    if body.get("input"):
        return
    if not any(_find_no_input(body, Checked(body, writing.model))):
        body.pop("input", None)
    elif isinstance(body.get("instructions"), str):
        body["input"] = [{"role": "system", "content": body.pop("instructions")}]
    else:
        body["input"] = [{"role": "user", "content": ""}]


def _find_repeated_ids(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    ids = [
        (("input", index, "id"), item["id"])
        for index, item in enumerate(list_of(body.get("input")))
        if type(item) is dict and type(item.get("id")) is str and item["id"]
    ]
    return find_repeated(ids, "is the id of another item")


def _find_unknown_choice(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict) or body.get("prompt") is not None:
        return
    chosen = list_of(choice.get("tools")) if choice.get("type") == "allowed_tools" else [choice]
    # Hosted tools are chosen by their type.
    named = [tool for tool in chosen if isinstance(tool, dict) and tool.get("type") in ("function", "custom")]
    names = [tool.get("name") for tool in named]
    for name in names:
        if not isinstance(name, str):
            yield ("tool_choice", "name"), rows.expected("a string", name)
    declared = set(declared_names(body)) if names else set()
    strings = (name for name in names if isinstance(name, str))
    yield from (("tool_choice", message) for message in find_undeclared(strings, declared))


def _find_refused_logprobs(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    if asks_for_logprobs(body):
        reasoning = body.get("reasoning")
        effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
        if "logprobs" in find_refused(found.model, "OR-15", body.get("temperature"), body.get("top_p"), effort):
            yield "include", UNSUPPORTED


def _drop_logprobs(body: dict[str, Any], writing: Writing) -> None:
    if any(_find_refused_logprobs(body, Checked(body, writing.model))):
        body["include"] = [name for name in body["include"] if name != LOGPROBS]
        if not body["include"]:
            del body["include"]
        writing.losses.append(Loss("logprobs", "logprobs", f"{UNSUPPORTED}; dropped (OR-15)"))


def _find_unmentioned_json(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, dict) else None
    if not isinstance(wanted, dict) or wanted.get("type") != "json_object":
        return
    is_elsewhere = _is_continued(body) or body.get("prompt") is not None
    if not is_elsewhere and not any(map(mentions_json, texts_of(body.get("input")))):
        yield "input", 'must contain the word "json" for the output format json_object'


def _mention_json(body: dict[str, Any], writing: Writing) -> None:
    """Let the input mention JSON: by the instructions if they do, because those are not searched, else by a sentence."""
    if any(_find_unmentioned_json(body, Checked(body, writing.model))):
        text = body.get("instructions")
        if isinstance(text, str) and mentions_json(text):
            body["input"].insert(0, {"role": "system", "content": body.pop("instructions")})
        else:
            body["input"].insert(0, {"role": "developer", "content": "Answer with a JSON object."})


# Advisories


def _find_unknown_names(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    yield from ((name, "unknown field") for name in body if name not in PARAMETERS and name not in _BODY.fields)


def _find_no_model(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if not body.get("model") and body.get("prompt") is None:  # some hosts name it in the URL (OC-01, errata)
        yield "model", "is required"


def _messages(body: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    return ((place, item) for place, item in each(body, "input") if item.get("type") in (None, "message"))


def _find_unknown_fields(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    for place, message in _messages(body):
        unknown = (name for name in message if name not in _MESSAGE_FIELDS and name not in _CHAT_ONLY_FIELDS)
        yield from (((*place, name), "unknown field") for name in unknown)


def _find_model_parts(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    for place, message in _messages(body):
        for steps, part in each(message, "content") if message.get("role") != "assistant" else ():
            if part.get("type") in _OUTPUT_PARTS:
                yield (*place, *steps), "is a part of the model's messages"


def _find_unstored(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    for place, item in each(body, "input") if body.get("store") is False else ():
        kind = item.get("type")
        is_lost = kind == "item_reference" or (kind == "reasoning" and not item.get("encrypted_content"))
        if is_lost and item.get("id") is not None:
            yield (*place, "id"), "nothing is stored while store is false"


def _find_lone_reasoning(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    items = list_of(body.get("input"))
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "reasoning" and item.get("id") is not None:
            following = items[index + 1] if index + 1 < len(items) else None
            if not isinstance(following, dict) or following.get("id") is None:
                yield ("input", index), "must be followed by the item it belongs to"


def _find_interrupted_pairs(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    """Outputs that a message stands before: OpenAI accepts that, others may not."""
    calls: dict[str, int] = {}
    outputs: set[str] = set()
    last_message = -1
    for index, item in enumerate(list_of(body.get("input"))):
        if not isinstance(item, dict):
            continue
        kind, call_id = item.get("type"), item.get("call_id")
        if kind in (None, "message"):
            last_message = index
        elif isinstance(call_id, str) and kind in CALL_ITEMS:
            calls.setdefault(call_id, index)
        elif isinstance(call_id, str) and kind in RESULT_ITEMS:
            if call_id not in outputs and last_message > calls.get(call_id, index):
                yield ("input", index, "call_id"), "a message stands between the call and its output"
            outputs.add(call_id)


_PORTABLE_NAME = String(
    accepts=lambda name: len(name) <= PORTABLE_NAME_LENGTH or _TOOL_NAME.problem(name),
    name=f"some hosts accept at most {PORTABLE_NAME_LENGTH} characters",
)


RULES = RuleBook(
    FORMAT,
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
    CrossRule("OR-17", _find_unmentioned_json, fix=_mention_json),
    CrossRule("OR-01", _find_no_input, fix=_add_input),
    CrossRule("OR-10", _find_repeated_ids),
    Order(broken={"unanswered": "OR-06", "orphan": "OR-07"}, judge=_judge, place=_place_of),
    accepted_media("OR-05", SPEC, with_types=False),
    CrossRule("OR-13", _find_unknown_choice),
    refused_parameters("OR-15", PARAMETER_TABLE, ("reasoning", "effort")),
    refused_switch("OR-15"),
    CrossRule("OR-15", _find_refused_logprobs, fix=_drop_logprobs),
    excludes("OR-16", "previous_response_id", "conversation"),
    advice=(
        CrossRule("OR-01", _find_no_model),
        CrossRule("OR-18", _find_unknown_names),
        CrossRule("OR-19", _find_unknown_fields),
        CrossRule("OR-22", _find_unstored),
        CrossRule("OR-23", _find_model_parts),
        CrossRule("OR-21", _find_lone_reasoning),
        Order(
            broken={"repeated call": "OR-23", "repeated result": "OR-23", "early result": "OR-07"},
            judge=_judge,
            place=_place_of,
        ),
        CrossRule("OR-06", _find_interrupted_pairs),
        record("OR-12", tools=Items(item=record(name=_PORTABLE_NAME))),
    ),
)
check_request = RULES.check_request
