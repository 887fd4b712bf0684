"""The rules of generateContent (GM-01 to GM-20) as rows.

The API parses JSON as proto3, and so do the rows: camelCase or snake_case names, null as absent, one object for a list, unknown
names as errors. Paths use the spelling of the body (`contents[1].parts[0].functionCall`). The model is in the URL: rules that
depend on it apply only if the caller passes a name with a known version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import EFFORTS, tool_name_matcher
from antiphon.wire.gemini import FORMAT, SPEC
from antiphon.wire.gemini.limits import MODES, NOT_WITH_CACHED_CONTENT, PARAMETER_TABLE, PARAMETERS
from antiphon.wire.gemini.native import as_list, get_field, spelling_used
from antiphon.wire.gemini.shapes import DATA_FIELDS, OTHER_PART_FIELDS
from antiphon.wire.gemini.tools import check_schema, is_object_root
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules import ANY, STRING, Checked, Items, need, record
from antiphon.wire.rules.book import CrossRule, Finding, RuleBook, Writing, accepted_media, drop_found, find_repeated
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.shared_google import to_snake_case
from antiphon.wire.tools.names import PORTABLE_NAME_LENGTH

_FOREIGN_TOOL_FIELDS = ("type", "function", "name", "description", "parameters", "input_schema")
"""Fields of tools in other formats. Google adds tools often, so unknown names are accepted."""
_TOOL_NAME = rows.String(rule="GM-11", accepts=lambda name: tool_name_matcher(FORMAT)(name), name="is not a legal name")


def both_spellings(fields: dict[str, rows.Check]) -> dict[str, rows.Check]:
    """The rows of fields under both names of each."""
    return {spelling: row for name, row in fields.items() for spelling in (name, to_snake_case(name))}


def proto(rule: str, fields: dict[str, rows.Check], *also: rows.Check, unknown: str | None = None) -> rows.Object:
    """An object of proto3 JSON."""
    return rows.Object(rule=rule, fields=both_spellings(fields), also=also, unknown=unknown)


def _repeated(rule: str, item: rows.Check) -> Items:
    return Items(rule=rule, item=item, accepts_one=True)


def _find_inline_data(data: dict[str, Any], found: Checked) -> Iterator[Finding]:
    base64, mime_type = data.get("data"), get_field(data, "mimeType")
    if not isinstance(base64, str) or base64.startswith("data:") or not base64.isascii():
        yield "data", "must be base64"
    if not isinstance(mime_type, str) or not mime_type:
        yield spelling_used(data, "mimeType"), "is required"
    elif mime_type[:6].lower() == "image/" and not found.model.accepts_image(mime_type.lower()):
        yield spelling_used(data, "mimeType"), f"{mime_type[:80]} is not supported"


def _find_name(data: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if not isinstance(data.get("name"), str) or not data["name"]:
        yield "name", "must not be empty"


def _call(rule: str, arguments: str) -> rows.Object:
    return proto(rule, {arguments: rows.OBJECT}, CrossRule(rule, _find_name), unknown="")


def _find_data(part: dict[str, Any], _: Checked) -> Iterator[Finding]:
    """A part has one kind of data."""
    given = [name for name, value in part.items() if value is not None and name in _DATA_SPELLINGS]
    yield from ((name, f"the part already has {given[0]}") for name in given[1:])
    if all(value is None for value in part.values()) and part.keys() <= _PART.fields.keys():
        yield "", f"must have one of {', '.join(DATA_FIELDS)}"


_DATA_SPELLINGS = both_spellings(dict.fromkeys(DATA_FIELDS, ANY))
_PART = proto(
    "GM-04",
    {
        **dict.fromkeys(DATA_FIELDS, rows.OBJECT),
        **dict.fromkeys(OTHER_PART_FIELDS, ANY),
        "text": STRING,
        "functionCall": _call("GM-08", "args"),
        "functionResponse": _call("GM-09", "response"),
        "inlineData": proto("GM-17", {}, CrossRule("GM-17", _find_inline_data), unknown=""),
    },
    CrossRule("GM-04", _find_data),
)


def _find_role(content: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if content.get("role") not in ("user", "model", "function", None, ""):
        yield "role", "must be user or model"


def _find_empty_content(content: dict[str, Any], _: Checked) -> Iterator[Finding]:
    # An empty model turn, replayed without the key `parts`, was accepted twice.
    if not as_list(content.get("parts")) and not (content.get("role") == "model" and "parts" not in content):
        yield "parts", "must not be empty"


_CONTENT = rows.Object(
    rule="GM-01",
    unknown="GM-18",
    fields={"role": ANY, "parts": _repeated("GM-04", _PART)},
    also=(CrossRule("GM-02", _find_role), CrossRule("GM-03", _find_empty_content)),
)


def _find_not_text(part: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if any(get_field(part, name) is not None for name in DATA_FIELDS[1:]):
        yield "", "must be text"


def _find_schema(name: str) -> CrossRule:
    """A schema in Google's subset of JSON Schema."""

    def find(value: dict[str, Any], _: Checked) -> Iterator[Finding]:
        key = spelling_used(value, name)
        return (((key, *steps), message) for steps, message in check_schema(value.get(key)))

    return CrossRule("GM-12", find)


def _find_parameters(declaration: dict[str, Any], _: Checked) -> Iterator[Finding]:
    json_schema = spelling_used(declaration, "parametersJsonSchema")
    key = "parameters" if declaration.get("parameters") is not None else json_schema
    if isinstance(declaration.get(key), dict) and not is_object_root(declaration[key]):
        yield (key, "type"), "the schema of parameters must be of type OBJECT"
    if key == "parameters" and declaration.get(json_schema) is not None:
        yield json_schema, "parameters and parametersJsonSchema exclude each other"


_DECLARATION = proto(
    "GM-11",
    {"name": need(_TOOL_NAME)},
    _find_schema("parameters"),
    _find_schema("response"),
    CrossRule("GM-12", _find_parameters),
    unknown="",
)


def _find_allowed_names(config: dict[str, Any], _: Checked) -> Iterator[Finding]:
    mode = config.get("mode")
    is_other = mode is None or (
        type(mode) is str and mode.upper() in MODES and mode.upper() not in ("ANY", "VALIDATED")
    )
    if get_field(config, "allowedFunctionNames") and is_other:
        yield spelling_used(config, "allowedFunctionNames"), "is only allowed with mode ANY"


def _find_refused(config: dict[str, Any], found: Checked) -> Iterator[Finding]:
    given = {name: get_field(config, name) for name in PARAMETER_TABLE.keys("generationConfig")}
    refused = refused_fields(found.model, "GM-14", "GM-14", given["temperature"], given["topP"])
    for name, message in PARAMETER_TABLE.find_refused(given, refused, "GM-14"):
        yield spelling_used(config, name), message


def _find_thinking(config: dict[str, Any], found: Checked) -> Iterator[Finding]:
    thinking, model = get_field(config, "thinkingConfig"), found.model
    if not isinstance(thinking, dict):
        return
    key = spelling_used(config, "thinkingConfig")
    budget, level = get_field(thinking, "thinkingBudget"), get_field(thinking, "thinkingLevel")
    if budget is not None and level is not None:
        yield key, "thinkingBudget and thinkingLevel exclude each other"
    if model.thinking == ():
        yield key, "the model does not think"
    elif isinstance(budget, int) and not isinstance(budget, bool):
        path = (key, spelling_used(thinking, "thinkingBudget"))
        if budget == 0 and not model.accepts_thinking("off") and not model.efforts:
            yield path, "the model cannot do without thinking"
        elif budget > 0 and not (model.min_budget or 0) <= budget <= (model.max_budget or budget):
            yield path, f"must be between {model.min_budget or 0} and {model.max_budget}"
    is_stated = isinstance(level, str) and level != "THINKING_LEVEL_UNSPECIFIED"
    if is_stated and model.thinking is not None and level.lower() not in (model.efforts or EFFORTS):
        yield (key, spelling_used(thinking, "thinkingLevel")), "the model does not support this level"


_MODE = rows.either(
    {
        # Some clients encode enums as numbers.
        int: ANY,
        str: rows.String(accepts=lambda mode: mode.upper() in MODES, name=f"must be one of {', '.join(MODES)}"),
    }
)
_CALLING_CONFIG = proto("GM-13", {"mode": _MODE}, CrossRule("GM-13", _find_allowed_names), unknown="")
_CONFIG = proto(
    "GM-14",
    PARAMETER_TABLE.checks("generationConfig"),
    _find_schema("responseSchema"),
    CrossRule("GM-14", _find_refused),
    CrossRule("GM-14", _find_thinking),
    unknown="",
)
_BODY = proto(
    "GM-18",
    {
        **dict.fromkeys(PARAMETERS, ANY),
        "contents": _repeated("GM-01", _CONTENT),
        "systemInstruction": rows.Object(
            rule="GM-15",
            fields={
                "role": ANY,
                "parts": _repeated("GM-15", record("GM-15", CrossRule("GM-15", _find_not_text), text=STRING)),
            },
        ),
        "tools": _repeated(
            "GM-18",
            proto(
                "GM-18",
                {
                    **{name: rows.Refused() for name in _FOREIGN_TOOL_FIELDS},
                    "functionDeclarations": _repeated("GM-11", _DECLARATION),
                },
                unknown="",
            ),
        ),
        "toolConfig": proto("GM-13", {"functionCallingConfig": _CALLING_CONFIG}, unknown=""),
        "generationConfig": _CONFIG,
    },
)


def _contents(body: dict[str, Any]) -> list[Any]:
    return as_list(body.get("contents"))


def _parts(content: Any) -> list[Any]:
    return as_list(content.get("parts")) if isinstance(content, dict) else []


def _is_model(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "model"


def _has(part: Any, name: str) -> bool:
    return isinstance(part, dict) and get_field(part, name) is not None


def _find_no_contents(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if not _contents(body):
        yield "contents", "* GenerateContentRequest.contents: contents is not specified"


def judge_order(contents: list[Any], *, is_continued: bool = False) -> list[Problem]:
    """What is wrong with the order of calls and responses. The API counts them: ids and names do not matter."""
    judge = SequenceJudge(SPEC.sequence_rule, is_continued=is_continued)
    calls = results = 0
    is_model: bool | None = None
    for index, content in enumerate(contents):
        if _is_model(content) is not is_model:
            if is_model is False:
                results = calls  # the next results answer the calls of the next turn
            is_model = _is_model(content)
            judge.turn(is_model)
        for part in _parts(content):
            if not isinstance(part, dict) or part.get("text") is not None:
                continue
            if is_model and get_field(part, "functionCall") is not None:
                judge.call(str(calls), index)
                calls += 1
            elif not is_model and get_field(part, "functionResponse") is not None:
                judge.result(str(results), index)
                results += 1
    if is_model:
        judge.pending.clear()  # a conversation may end with calls
    if judge.opening is not None and not is_continued:
        judge.problems.insert(0, judge.opening)
    return judge.end()


def _judge(body: dict[str, Any], _: Checked) -> list[Problem]:
    return judge_order(_contents(body), is_continued=get_field(body, "cachedContent") is not None)


def _place_of(problem: Problem, body: Any) -> tuple[str | int, ...]:
    index = problem.index
    if problem.kind == "unanswered":  # reported where the results are missing
        contents = _contents(body)
        index = next((after for after in range(index, len(contents)) if not _is_model(contents[after])), index)
    return ("contents", index)


def _find_ending(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    contents = _contents(body)
    if contents and _is_model(contents[-1]):
        parts = _parts(contents[-1])
        if len(contents) == 1 or (not found.model.prefill and not (parts and _has(parts[-1], "functionResponse"))):
            yield ("contents", len(contents) - 1), "the last turn must be the user's"


def _find_signatures(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    """The first call of each step of the current turn carries its signature."""
    if not found.model.call_signatures:
        return
    contents = _contents(body)
    is_same_step = False
    for index in range(_turn_start(contents), len(contents)):
        if not _is_model(contents[index]):
            is_same_step = False
            continue
        for position, part in enumerate(_parts(contents[index])):
            if _has(part, "functionCall") and not is_same_step:
                is_same_step = True
                if not get_field(part, "thoughtSignature"):
                    path = ("contents", index, "parts", position, spelling_used(part, "functionCall"))
                    yield path, "must have its thought signature"


def _turn_start(contents: list[Any]) -> int:
    """The start of the current turn: after the last user content that is not only results."""
    for index in range(len(contents) - 1, -1, -1):
        content = contents[index]
        if not _is_model(content) and any(not _has(part, "functionResponse") for part in _parts(content)):
            return index + 1
    return 0


def _find_cached_content(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if get_field(body, "cachedContent") and any(get_field(body, name) for name in NOT_WITH_CACHED_CONTENT):
        yield spelling_used(body, "cachedContent"), f"excludes {', '.join(NOT_WITH_CACHED_CONTENT)}"


def _declarations(body: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for index, tool in enumerate(as_list(body.get("tools"))):
        if isinstance(tool, dict):
            key = spelling_used(tool, "functionDeclarations")
            for position, declaration in enumerate(as_list(tool.get(key))):
                name = declaration.get("name") if isinstance(declaration, dict) else None
                if isinstance(name, str) and not _TOOL_NAME.problem(name):
                    yield ("tools", index, key, position, "name"), name


def _find_repeated_names(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    return find_repeated(_declarations(body), "is declared twice")


_DECLARATIONS = {"functionDeclarations", "function_declarations"}


def _find_needless_config(body: dict[str, Any], _: Checked) -> Iterator[tuple[tuple[str, str], str]]:
    key = spelling_used(body, "toolConfig")
    config = body.get(key)
    calling = get_field(config, "functionCallingConfig") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(calling, dict):
        return
    tools = [tool for tool in as_list(body.get("tools")) if isinstance(tool, dict)]
    # Accepted together with a tool of Google's own.
    if not any(get_field(tool, "functionDeclarations") or set(tool) - _DECLARATIONS for tool in tools):
        yield (key, spelling_used(config, "functionCallingConfig")), "is set without functionDeclarations"


def _drop_config(body: dict[str, Any], writing: Writing) -> None:
    for (key, name), _ in list(_find_needless_config(body, Checked(body, writing.model))):
        del body[key][name]
        if not body[key]:
            del body[key]
        stated = writing.request.tool_choice
        what = "tool_choice" if stated is None else stated.mode
        writing.losses.append(Loss("tool_choice", what, "requires tools; dropped (GM-13)"))


_ADVISED_CONTENT = record(
    "GM-02",
    CrossRule("GM-03", lambda content, _: _find_no_parts(content)),
    role=rows.String(accepts=lambda role: role != "function", name="the API documents user and model only"),
)


def _find_no_parts(content: dict[str, Any]) -> Iterator[Finding]:
    if content.get("role") == "model" and "parts" not in content:
        yield "parts", "must not be empty"


def _find_long_names(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    for path, name in _declarations(body):
        if len(name) > PORTABLE_NAME_LENGTH:
            yield path, f"older models and hosts accept at most {PORTABLE_NAME_LENGTH} characters"


RULES = RuleBook(
    FORMAT,
    {
        "GM-01": "report vercel/ai#3775",
        "GM-02": "report the-open-agent/openagent#1666",
        "GM-03": "report egoist/chatwise-releases#250",
        "GM-04": "recorded",
        "GM-05": "report google-gemini/gemini-cli#11814",
        "GM-06": "report langchain-ai/langchain#27799",
        "GM-07": "report google-gemini/gemini-cli#16543",
        "GM-08": "vendor: args is a Struct",
        "GM-09": "report vercel/ai#3589",
        "GM-10": "report lbjlaq/Antigravity-Manager#733",
        "GM-11": "reports kaitranntt/ccs#219, smarter-sh/smarter#537; google-genai 3.1.0",
        "GM-12": "reports thClaws/thClaws#172, TableProApp/TablePro#1276",
        "GM-13": "pydantic-ai 2.66.0; recorded",
        "GM-14": "vendor; pydantic-ai 2.66.0",
        "GM-15": "vendor: systemInstruction is a Content of text",
        "GM-16": "reports LibreChat-AI/agents#323, microsoft/semantic-kernel#13288",
        "GM-17": "vendor; recorded",
        "GM-18": "recorded; proto3 JSON refuses unknown names",
        "GM-19": "pydantic-ai 2.66.0",
        "GM-20": "report kaitranntt/ccs#219: 64 until 2025-12",
    },
    _BODY,
    CrossRule("GM-01", _find_no_contents),
    Order(
        broken={"begins with a call": "GM-05", "stray": "GM-06", "orphan": "GM-07", "unanswered": "GM-07"},
        judge=_judge,
        place=_place_of,
    ),
    CrossRule("GM-16", _find_ending),
    CrossRule("GM-10", _find_signatures),
    accepted_media("GM-17", SPEC, entries=as_list),
    drop_found("GM-19", _find_cached_content),
    CrossRule("GM-11", _find_repeated_names),
    CrossRule("GM-13", _find_needless_config, fix=_drop_config),
    advice=(record("GM-01", contents=_repeated("GM-01", _ADVISED_CONTENT)), CrossRule("GM-20", _find_long_names)),
)
check_request = RULES.check_request
