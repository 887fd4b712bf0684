"""Bodies of Gemini's API for tests: the recorded ones, generated ones, and when two of them mean the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from support.corpus import CORPUS

# What is the user's or the tool's own, and is spelled as they spell it.
FREE = frozenset(
    {"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels"}
)
OWN_SCHEMAS = ("parameters", "responseSchema")
SCHEMA_KEYWORDS = frozenset(
    {"anyOf", "propertyOrdering", "maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"}
)
EMPTY_IS_ABSENT = ("generationConfig", "toolConfig", "tools")


def lines(folder: str) -> list[dict[str, Any]]:
    path = CORPUS / folder / "gemini.jsonl"
    with path.open(encoding="utf-8") as opened:
        return [json.loads(line) for line in opened]


def accepted_requests() -> list[tuple[str, str, dict[str, Any]]]:
    """Every request the API accepted, every conversation, and what real clients send: name, model and body."""
    found = [
        (record["id"], record["model"] or "", record["request"])
        for record in lines("recorded")
        if 200 <= record["status"] < 300 and isinstance(record["request"], dict)
    ]
    found += [(record["id"], record["model"] or "", record["request"]) for record in lines("conversations")]
    for path in sorted((CORPUS / "clients").glob("*gemini*.json")):
        capture = json.loads(path.read_text(encoding="utf-8"))
        if capture["wire"] == "gemini":
            model = capture["path"].rpartition("/")[2].partition(":")[0]
            found.append((path.name, model, capture["body"]))
    return found


def answers() -> list[tuple[str, dict[str, Any]]]:
    """Every whole response."""
    return [
        (record["id"], record["response"])
        for record in lines("recorded")
        if record["status"] == 200 and isinstance(record["response"], dict)
    ]


def refusals() -> list[tuple[int, dict[str, Any]]]:
    """Every error, with its status."""
    return [
        (record["status"], record["response"])
        for record in lines("recorded")
        if record["status"] >= 400 and isinstance(record["response"], dict)
    ]


def streams() -> list[tuple[str, bytes]]:
    """Every recorded stream as bytes; those kept as a list of chunks once as events and once as the growing array."""
    found = []
    for record in lines("recorded"):
        sse, response = record["sse"], record["response"]
        if record["status"] != 200:
            continue
        if isinstance(sse, str):
            found.append((record["id"], sse.encode()))
        elif isinstance(sse, list):
            found.append((record["id"], as_events(sse)))
            found.append((record["id"] + ".array", as_array(sse)))
        elif isinstance(response, list):
            found.append((record["id"] + ".array", as_array(response)))
            found.append((record["id"], as_events(response)))
    return found


def as_events(chunks: list[Any]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\r\n\r\n" for chunk in chunks)


def as_array(chunks: list[Any]) -> bytes:
    """As the API writes it without `alt=sse`: one array, an object after the other, indented."""
    return (
        "[" + "\n,\r\n".join(json.dumps(chunk, indent=2, ensure_ascii=False) for chunk in chunks) + "\n]\n"
    ).encode()


def decoded(body: Any) -> Any:
    """A written body as it arrives at the other end."""
    return msgspec.json.decode(msgspec.json.encode(body))


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def plain(value: Any) -> Any:
    """Names in camelCase, null absent; what is not Gemini's own is left alone."""
    if isinstance(value, dict):
        return {
            camel(name): same_schema(content)
            if camel(name) in OWN_SCHEMAS
            else content
            if camel(name) in FREE
            else plain(content)
            for name, content in value.items()
            if content is not None
        }
    return [plain(item) for item in value] if isinstance(value, list) else value


def same_schema(schema: Any) -> Any:
    """A Schema of Gemini's own with its keywords in camelCase; the names of properties are the user's."""
    if not isinstance(schema, dict):
        return schema
    result = {}
    for spelled, value in schema.items():
        name = camel(spelled) if camel(spelled) in SCHEMA_KEYWORDS else spelled
        if name == "properties" and isinstance(value, dict):
            value = {key: same_schema(child) for key, child in value.items()}
        elif name == "items":
            value = same_schema(value)
        elif name == "anyOf" and isinstance(value, list):
            value = [same_schema(child) for child in value]
        result[name] = value
    return result


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def same_parts(parts: Any) -> list[Any]:
    return [same_part(part) for part in listed(parts) if part is not None]


def same_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    part = {name: value for name, value in part.items() if name != "thought" or value is not False}
    call = part.get("functionCall")
    if isinstance(call, dict) and call.get("name"):
        part["functionCall"] = {
            "args": {},
            **{name: value for name, value in call.items() if name != "id" or value != ""},
        }
    result = part.get("functionResponse")
    if isinstance(result, dict):
        part["functionResponse"] = {name: value for name, value in result.items() if name != "id" or value != ""}
    return part


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """A request with the documented normalisations applied."""
    result: dict[str, Any] = plain(body)
    result.pop("model", None)
    result["contents"] = [results_first(content) for content in list(merged(listed(result.get("contents"))))]
    system = result.get("systemInstruction")
    if isinstance(system, str):
        result["systemInstruction"] = {"parts": [{"text": system}]}
    elif isinstance(system, dict):
        parts = same_parts(system.get("parts"))
        result["systemInstruction"] = {**system, "parts": parts}
        if result["systemInstruction"].get("role") == "":
            del result["systemInstruction"]["role"]
        if result["systemInstruction"] == {"parts": []}:
            del result["systemInstruction"]
    if isinstance(result.get("tools"), dict | list):
        result["tools"] = [with_object_root(tool) for tool in single_tools(listed(result["tools"]))]
    choice = result.get("toolConfig")
    calling = choice.get("functionCallingConfig") if isinstance(choice, dict) else None
    if isinstance(calling, dict) and calling.get("allowedFunctionNames") == []:
        del calling["allowedFunctionNames"]
    for name, inner in (("generationConfig", "thinkingConfig"), ("toolConfig", "functionCallingConfig")):
        if isinstance(result.get(name), dict) and result[name].get(inner) == {}:
            del result[name][inner]
    config = result.get("generationConfig")
    if isinstance(config, dict) and isinstance(config.get("stopSequences"), str):
        config["stopSequences"] = [config["stopSequences"]]
    for name in EMPTY_IS_ABSENT:
        if result.get(name) in ({}, []):
            del result[name]
    return result


def legal(body: dict[str, Any]) -> dict[str, Any]:
    """A normalised request without what the API refuses and a writer therefore leaves out, and says so."""
    tools, seen = [], set()
    for tool in body.get("tools", ()) if isinstance(body.get("tools"), list) else ():
        if not is_definition(tool):
            tools.append(tool)
        elif tool["name"] not in seen:
            tools.append({name: value for name, value in tool.items() if name != "parametersJsonSchema"})
            seen.add(tool["name"])
    result = {**body, "tools": tools} if tools else body
    config = result.get("toolConfig")
    has_tools = any(isinstance(tool, dict) and tool not in ({}, {"functionDeclarations": []}) for tool in tools)
    if not has_tools and isinstance(config, dict) and isinstance(config.get("functionCallingConfig"), dict):
        result = {**result, "toolConfig": {**config}}
        del result["toolConfig"]["functionCallingConfig"]
        if not result["toolConfig"]:
            del result["toolConfig"]
    generation = result.get("generationConfig")
    if isinstance(generation, dict) and "temperature" in generation:
        result = {**result, "generationConfig": {**generation, "temperature": 0}}
    return result


def is_definition(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str) and isinstance(tool.get("description", ""), str)


def with_object_root(tool: Any) -> Any:
    """A declaration whose JSON Schema says that it is an object, as the arguments of a call are, if it says no type."""
    schema = tool.get("parametersJsonSchema") if is_definition(tool) else None
    if not isinstance(schema, dict) or "parameters" in tool or schema.get("type") is not None:
        return tool
    return {**tool, "parametersJsonSchema": {**schema, "type": "object"}}


def merged(contents: list[Any]) -> Iterator[Any]:
    """Adjacent contents of one role as one; contents without parts left out."""
    last: dict[str, Any] | None = None
    for content in contents:
        if not isinstance(content, dict) or content.get("role", "user") not in ("user", "model", "function", ""):
            last = None
            yield content
            continue
        parts = same_parts(content.get("parts"))
        role = content.get("role", "user") or "user"
        if not parts:
            continue
        extras = {name: value for name, value in content.items() if name not in ("role", "parts")}
        if last is not None and last["role"] == role and not extras:
            last["parts"] += parts
            continue
        last = {**extras, "role": role, "parts": parts}
        yield last
        last = None if extras else last


def results_first(content: Any) -> Any:
    if not isinstance(content, dict) or content.get("role") != "user":
        return content
    parts = sorted(content["parts"], key=lambda part: not (isinstance(part, dict) and "functionResponse" in part))
    return {**content, "parts": parts}


def single_tools(tools: list[Any]) -> Iterator[Any]:
    """Every declaration and every tool of Google's own, one by one; declarations first."""
    others = []
    for tool in tools:
        if not isinstance(tool, dict):
            others.append(tool)
            continue
        declarations = tool.get("functionDeclarations")
        yield from listed(declarations)
        rest = {name: value for name, value in tool.items() if name != "functionDeclarations"}
        if rest:
            others.append(rest)
    yield from others


def normalised_response(body: dict[str, Any]) -> dict[str, Any]:
    """A response with the documented normalisations applied."""
    result: dict[str, Any] = plain(body)
    for name in ("modelVersion", "responseId"):
        if result.get(name) == "":
            del result[name]
    candidates = listed(result.pop("candidates", None))
    if candidates:
        result["candidates"] = [same_candidate(candidate, index) for index, candidate in enumerate(candidates)]
    return result


def same_candidate(candidate: Any, index: int) -> Any:
    if not isinstance(candidate, dict):
        return candidate
    content = candidate.get("content", {})
    if isinstance(content, dict):
        parts = same_parts(content.get("parts"))
        content = {"role": "model", **content, "parts": parts}
    return {"index": index, **candidate, "content": content}


keys = st.text("abcXYZ_-.$ é", max_size=6)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | st.text(max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
names = st.sampled_from(["get_weather", "search.web", "a:b", "_x"])
NAMED = ("name", "allowedFunctionNames")  # an illegal name goes out as a stand-in, and is tested apart
nameless = values.filter(lambda value: not isinstance(value, str | list))
ids = st.sampled_from(["", "call_gm_0", "call_1", "x y"]) | keys


def objects(known: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the known fields, now and then in the wrong type or beside an unknown one."""
    odd = {name: strategy | (nameless if name in NAMED else values) for name, strategy in known.items()}
    extra = st.dictionaries(keys.map(lambda key: f"x{key}"), values, max_size=1)
    return st.one_of(st.fixed_dictionaries({}, optional=known), st.fixed_dictionaries({}, optional=odd)).flatmap(
        lambda fields: extra.map(lambda more: {**more, **fields})
    )


free_objects = st.dictionaries(keys, values, max_size=3)
responses = st.one_of(
    free_objects,
    st.sampled_from(["output", "result", "error"]).flatmap(
        lambda key: (values | st.sampled_from(['{"a": 1}', "{}", "[1]", " {} "])).map(lambda value: {key: value})
    ),
)
blobs = objects(
    {
        "mimeType": st.sampled_from(["image/png", "audio/wav", "application/pdf", "video/mp4", "text/plain"]),
        "data": st.sampled_from(["aGk=", "", "data:x", "é"]),
        "displayName": st.text(max_size=4),
    }
)
files = objects({"fileUri": st.sampled_from(["gs://a/b", "https://x/y.png"]), "mimeType": st.just("image/png")})
function_calls = objects({"name": names, "args": free_objects, "id": ids})
function_responses = objects(
    {
        "name": names,
        "response": responses,
        "id": ids,
        "parts": st.lists(
            objects({"inlineData": blobs}) | objects({"fileData": files}) | values, min_size=1, max_size=2
        ),
    }
)
data_fields: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.text(max_size=6).map(lambda text: {"text": text}),
    function_calls.map(lambda call: {"functionCall": call}),
    function_responses.map(lambda result: {"functionResponse": result}),
    blobs.map(lambda blob: {"inlineData": blob}),
    files.map(lambda file: {"fileData": file}),
    values.map(lambda value: {"executableCode": value}),
    st.just({}),
)
beside = objects({"thought": st.booleans(), "thoughtSignature": st.sampled_from(["c2ln", ""]), "videoMetadata": values})
parts = st.tuples(data_fields, beside).map(lambda both: {**both[1], **both[0]}) | data_fields | values
contents = objects(
    {"role": st.sampled_from(["user", "model", "function", "", "system"]), "parts": st.lists(parts, max_size=4)}
)
schemas: st.SearchStrategy[Any] = st.recursive(
    objects(
        {
            "type": st.sampled_from(["STRING", "string", "INTEGER", "OBJECT", "object", 1, 6, "TYPE_UNSPECIFIED"]),
            "nullable": st.booleans(),
            "enum": st.lists(st.text(max_size=3), max_size=2),
            "minItems": st.sampled_from([1, "2"]),
        }
    ),
    lambda inner: objects(
        {
            "type": st.sampled_from(["OBJECT", "ARRAY", "array"]),
            "properties": st.dictionaries(keys, inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "any_of": st.lists(inner, max_size=2),
        }
    ),
    max_leaves=4,
)
declarations = objects(
    {
        "name": names,
        "description": st.text(max_size=4),
        "parameters": schemas,
        "parametersJsonSchema": schemas,
        "response": values,
    }
)
tools = objects({"functionDeclarations": st.lists(declarations, max_size=2), "googleSearch": free_objects})
generation = objects(
    {
        "temperature": st.floats(0, 2),
        "topK": st.integers(0, 50),
        "stopSequences": st.lists(st.text(max_size=3), max_size=5) | st.text(max_size=3),
        "responseMimeType": st.sampled_from(["application/json", "text/plain", "text/x.enum"]),
        "responseSchema": schemas,
        "responseJsonSchema": schemas,
        "thinkingConfig": objects(
            {
                "thinkingBudget": st.integers(-2, 100),
                "thinkingLevel": st.sampled_from(["LOW", "high", "Low", "THINKING_LEVEL_UNSPECIFIED", 2]),
                "includeThoughts": st.booleans(),
            }
        ),
        "responseModalities": st.just(["TEXT"]),
    }
)
tool_configs = objects(
    {
        "functionCallingConfig": objects(
            {
                "mode": st.sampled_from(["AUTO", "ANY", "NONE", "VALIDATED", "any", 2, "MODE_UNSPECIFIED"]),
                "allowedFunctionNames": st.lists(names, max_size=2),
            }
        ),
        "includeServerSideToolInvocations": st.booleans(),
    }
)
request_bodies = st.tuples(
    objects(
        {
            "systemInstruction": contents | st.text(max_size=4),
            "tools": st.lists(tools | values, max_size=2),
            "toolConfig": tool_configs,
            "generationConfig": generation,
            "safetySettings": values,
            "serviceTier": st.sampled_from(["flex", "auto", "default"]),
            "store": st.booleans(),
            "model": st.sampled_from(["tunedModels/y", "models/x"]),
        }
    ),
    st.lists(contents | values, max_size=4) | contents,
).map(lambda both: {**both[0], "contents": both[1]})

candidates = objects(
    {
        "content": objects({"role": st.just("model"), "parts": st.lists(parts, max_size=3)}),
        "finishReason": st.sampled_from(["STOP", "MAX_TOKENS", "RECITATION", "NEW_ONE", 1, 3]),
        "index": st.integers(0, 2),
        "safetyRatings": values,
        "groundingMetadata": values,
    }
)
response_bodies = st.tuples(
    objects(
        {
            "usageMetadata": objects({"promptTokenCount": st.integers(0, 9), "thoughtsTokenCount": st.integers(0, 9)}),
            "modelVersion": st.text(max_size=4),
            "responseId": st.text(max_size=4),
            "createTime": st.sampled_from(["2026-01-02T03:04:05.123456789Z", "2026-01-02", "soon"]),
            "promptFeedback": objects({"blockReason": st.just("SAFETY")}),
        }
    ),
    st.lists(candidates | values, max_size=3) | candidates,
).map(lambda both: {**both[0], "candidates": both[1]})
