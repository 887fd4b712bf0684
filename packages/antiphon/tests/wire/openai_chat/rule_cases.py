"""Each rule of Chat Completions: a body that breaks it, and the nearest body that does not."""

from __future__ import annotations

from typing import Any

from support.rule_cases import Case

USER: dict[str, Any] = {"role": "user", "content": "hi"}
SAYS: dict[str, Any] = {"role": "assistant", "content": "hello"}
CALL = "messages[1].tool_calls[0]"
PART = "messages[0].content[0]"
URL = f"{PART}.image_url.url"
SCHEMA = "tools[0].function.parameters"
PNG = "data:image/png;base64,iVBORw0KGgo="
TEXT = {"type": "text", "text": "a"}
CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False}


def chat(*messages: Any, **arguments: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": list(messages) or [USER], **arguments}


def call(call_id: Any = "c1", name: Any = "look", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **fields}


def result(call_id: Any = "c1", content: Any = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def round_of(one_call: Any) -> dict[str, Any]:
    return chat(USER, asks(one_call), result())


def parts(*content: Any, role: str = "user") -> dict[str, Any]:
    return chat({"role": role, "content": list(content)})


def image(url: Any) -> dict[str, Any]:
    return parts({"type": "image_url", "image_url": {"url": url}})


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look", **function}}


def tools(*declared: Any, **arguments: Any) -> dict[str, Any]:
    return chat(tools=list(declared) or [tool()], **arguments)


def output(schema: Any, **fields: Any) -> dict[str, Any]:
    wanted = {"name": "answer", "schema": schema, **fields}
    return chat(response_format={"type": "json_schema", "json_schema": wanted})


# fmt: off
CASES = [
    Case("OC-01", "", "expected an object, but got an array", [], chat()),
    Case("OC-01", "model", "expected a string, but got an integer", chat(model=1), chat()),
    Case("OC-01", "messages", "Missing required parameter: 'messages'.", {"model": "gpt-4o"}, chat()),
    Case("OC-01", "messages", "Expected an array with minimum length 1", {"model": "gpt-4o", "messages": []}, chat()),
    Case("OC-01", "messages", "but got a string", {"model": "gpt-4o", "messages": "hi"}, chat()),
    Case("OC-01", "messages[1]", "expected an object, but got an integer", chat(USER, 1), chat(USER, USER)),
    Case("OC-02", "messages[0].role", "Invalid value: 'model'.", chat({**USER, "role": "model"}), chat()),
    Case("OC-02", "messages[0].role", "Missing required", chat({"content": "hi"}), chat()),
    Case("OC-02", "messages[0].role", "does not support 'system' with this model.",
         chat({"role": "system", "content": "x"}, model="o1-mini"),
         chat({"role": "system", "content": "x"}, model="o3-mini")),
    Case("OC-03", "messages[1].tool_calls", "response messages: c1", chat(USER, asks(call())), round_of(call())),
    Case("OC-03", "messages[0].tool_calls", "response messages: c2",
         chat(asks(call(), call("c2")), result(), USER), chat(asks(call(), call("c2")), result("c2"), result(), USER)),
    Case("OC-04", "messages[1].role", "must be a response to a preceeding", chat(USER, result()), round_of(call())),
    Case("OC-04", "messages[3].tool_call_id", "'tool_call_id' of 'c9' not found",
         chat(USER, asks(call()), result(), result("c9")), chat(USER, asks(call(), call("c9")), result(), result("c9"))),
    Case("OC-04", "messages[2].tool_call_id", "messages with role 'tool' must have a 'tool_call_id'.",
         chat(asks(call()), result(), result(None)), chat(asks(call()), result())),
    Case("OC-04", "messages[2].tool_call_id", "a string, but got an integer",
         chat(asks(call()), result(), result(1)), chat(asks(call()), result())),
    Case("OC-05", "messages[3].tool_call_id", "Duplicate value for 'tool_call_id' of 'c1', in messages[2] and messages[3].",
         chat(USER, asks(call()), result(), result()), chat(USER, asks(call()), result(), asks(call()), result())),
    Case("OC-06", "messages[0].tool_calls", "empty array", chat(asks()), chat({**SAYS, "tool_calls": None})),
    Case("OC-06", "messages[0].tool_calls", "an array of objects", chat({**SAYS, "tool_calls": {}}), chat(SAYS)),
    Case("OC-07", CALL, "an object", chat(USER, asks("c1", call()), result()), round_of(call())),
    Case("OC-07", "messages[1].tool_calls[1].id", "Missing",
         chat(USER, asks(call(), call(None)), result()), chat(USER, asks(call(), call("c2")), result(), result("c2"))),
    Case("OC-07", f"{CALL}.type", "Missing", round_of({**call(), "type": None}), round_of(call())),
    Case("OC-07", f"{CALL}.type", "'x'", round_of({**call(), "type": "x"}), round_of(call())),
    Case("OC-07", f"{CALL}.function.arguments", "expected a string, but got an object",
         round_of(call(arguments={})), round_of(call(arguments=""))),
    Case("OC-07", f"{CALL}.custom.input", "Missing",
         round_of({"id": "c1", "type": "custom", "custom": {"name": "look"}}),
         round_of({"id": "c1", "type": "custom", "custom": {"name": "look", "input": "x"}})),
    Case("OC-07", f"{CALL}.function", "Missing", round_of({"id": "c1", "type": "function"}), round_of(call())),
    Case("OC-07", f"{CALL}.function.name", "Missing", round_of(call(name=None)), round_of(call())),
    Case("OC-08", f"{CALL}.function.name", "empty string", round_of(call(name="")), round_of(call(name="a"))),
    Case("OC-08", "tools[0].function.name", "length 65", tools(tool(name="a" * 65)), tools(tool(name="a" * 64))),
    Case("OC-08", "tools[0].function.name", "'^[a-zA-Z0-9_-]+$'", tools(tool(name="a.b")), tools(tool(name="a-b_C9"))),
    Case("OC-10", "messages[0].content", "expected a string, got null.", chat({**USER, "content": None}), chat()),
    Case("OC-10", "messages[0].content", "got null", chat({"role": "assistant"}), chat({**SAYS, "content": ""})),
    Case("OC-10", "messages[2].content", "null", chat(USER, asks(call()), result(content=None)), round_of(call())),
    Case("OC-10", "messages[0].content", "but got an object", chat({**USER, "content": {}}), chat()),
    Case("OC-11", "messages[0].content", "empty array", parts(), parts({"type": "text", "text": ""})),
    Case("OC-11", f"{PART}.type", "Missing", parts({"text": "a"}), parts(TEXT)),
    Case("OC-12", f"{PART}.type", "Invalid value: 'input_text'.", parts({"type": "input_text", "text": "a"}), parts(TEXT)),
    Case("OC-12", PART, "an object, but got a string", parts("hi"), parts(TEXT)),
    Case("OC-12", f"{PART}.text", "Missing", parts({"type": "text"}), parts(TEXT)),
    Case("OC-12", f"{PART}.file", "Missing", parts({"type": "file"}), parts({"type": "file", "file": {}})),
    Case("OC-12", f"{PART}.type", "'refusal'",
         parts({"type": "refusal", "refusal": "no"}), parts({"type": "refusal", "refusal": "no"}, role="assistant")),
    Case("OC-13", URL, "Error while downloading ftp://a.", image("ftp://a"), image(PNG)),
    Case("OC-13", URL, "'webp'", image("data:image/tiff;base64,AA=="), image(PNG)),
    Case("OC-13", URL, "'webp'", image("data:image/png;base64,!!"), image("https://a")),
    Case("OC-13", f"{PART}.image_url", "downloading",
         parts({"type": "image_url", "image_url": "a.png"}), parts({"type": "image_url", "image_url": PNG})),
    Case("OC-13", f"{PART}.image_url", "Missing", parts({"type": "image_url"}), image(PNG)),
    Case("OC-14", "tools", "empty array", chat(tools=[]), chat(tools=None)),
    Case("OC-15", "tools", "expected an array of objects", chat(tools={}), tools()),
    Case("OC-15", "tools[0].type", "Missing", tools({"function": {"name": "a"}}), tools()),
    Case("OC-15", "tools[0].type", "Invalid value: 'web_search'.", tools({"type": "web_search"}), tools()),
    Case("OC-15", "tools[0].function", "Missing", tools({"type": "function", "name": "a"}), tools()),
    Case("OC-15", "tools[0].function.name", "Missing", tools(tool(name=None)), tools()),
    Case("OC-15", "tools[0]", "expected an object", tools("look"), tools()),
    Case("OC-16", SCHEMA, "function 'look': schema must be a JSON Schema of 'type: \"object\"', got 'type: null'.",
         tools(tool(parameters={"properties": {}})),
         tools(tool(parameters={"type": "object", "properties": {}}))),
    Case("OC-16", SCHEMA, "got a string", tools(tool(parameters="")), tools(tool(parameters=None))),
    Case("OC-17", SCHEMA, "In context=('properties', 'x'), 'additionalProperties' is required to be supplied and to be false.",
         tools(tool(strict=True, parameters={**CLOSED, "properties": {"x": {"type": "object"}}, "required": ["x"]})),
         tools(tool(strict=True, parameters={**CLOSED, "properties": {"x": CLOSED}, "required": ["x"]}))),
    Case("OC-17", SCHEMA, "to be an array including every key in properties. Missing 'x'.",
         tools(tool(strict=True, parameters=OPEN)),
         tools(tool(strict=False, parameters=OPEN))),
    Case("OC-17", SCHEMA, "In context=('$defs', 'A', 'items'), 'allOf' is not permitted.",
         tools(tool(strict=True, parameters={**CLOSED, "$defs": {"A": {"type": "array", "items": {"allOf": []}}}})),
         tools(tool(strict=True, parameters={**CLOSED, "$defs": {"A": {"type": "array", "items": {"anyOf": []}}}}))),
    Case("OC-17", "response_format.json_schema.schema", "for response_format 'answer': In context=(), 'additional",
         output({"type": "object"}, strict=True),
         output(CLOSED, strict=True)),
    Case("OC-18", "tool_choice", "only allowed when 'tools' are specified", chat(tool_choice="none"), tools(tool_choice="none")),
    Case("OC-18", "tool_choice", "Invalid value: 'any'.", tools(tool_choice="any"), tools(tool_choice="required")),
    Case("OC-18", "tool_choice", "Tool choice 'leap' not found in 'tools' parameter.",
         tools(tool_choice={"type": "function", "function": {"name": "leap"}}),
         tools(tool_choice={"type": "function", "function": {"name": "look"}})),
    Case("OC-18", "tool_choice", "Tool choice 'leap' not found",
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(name="leap")]}}),
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool()]}})),
    Case("OC-18", "tool_choice.type", "Missing", tools(tool_choice={"name": "look"}), tools(tool_choice="auto")),
    Case("OC-18", "function_call", "when 'functions' are",
         chat(function_call="auto"), chat(function_call="auto", functions=[{"name": "a"}])),
    Case("OC-18", "tool_choice.type", "Invalid value: 'tool'.", tools(tool_choice={"type": "tool"}), tools(tool_choice=None)),
    Case("OC-18", "tool_choice.custom", "Missing", tools(tool_choice={"type": "custom"}), tools(tool_choice="none")),
    Case("OC-18", "tool_choice.allowed_tools.tools", "Missing",
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {}}),
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [tool()]}})),
    Case("OC-19", "parallel_tool_calls", "'tools' are",
         chat(parallel_tool_calls=False), tools(parallel_tool_calls=False)),
    Case("OC-19", "parallel_tool_calls", "a boolean", tools(parallel_tool_calls=1), tools(parallel_tool_calls=True)),
    Case("OC-20", "temperature", "decimal above maximum value. Expected a value <= 2, but got 99.0",
         chat(temperature=99.0), chat(temperature=2)),
    Case("OC-20", "temperature", "Expected a value >= 0, but got -1 instead.",
         chat(temperature=-1), chat(temperature=0)),
    Case("OC-20", "top_p", "Expected a value <= 1", chat(top_p=1.1), chat(top_p=1.0)),
    Case("OC-20", "presence_penalty", ">= -2", chat(presence_penalty=-2.5), chat(presence_penalty=-2)),
    Case("OC-20", "n", "integer below minimum value", chat(n=0), chat(n=1)),
    Case("OC-20", "n", "expected an integer, but got a decimal number", chat(n=1.5), chat(n=128)),
    Case("OC-20", "top_logprobs", "<= 20", chat(top_logprobs=21), chat(top_logprobs=20)),
    Case("OC-20", "temperature", "expected a decimal, but got a string", chat(temperature="1"), chat(temperature=None)),
    Case("OC-20", "temperature", "but got a boolean", chat(temperature=True), chat(temperature=1)),
    Case("OC-20", "temperature", "but got nan", chat(temperature=float("nan")), chat(temperature=0.5)),
    Case("OC-21", "stop", "maximum length 4, but got an array with length 5",
         chat(stop=list("abcde")), chat(stop=list("abcd"))),
    Case("OC-21", "stop[0]", "expected a string", chat(stop=[1]), chat(stop="a")),
    Case("OC-21", "stop", "one of a string or array of strings", chat(stop={}), chat(stop=[])),
    Case("OC-22", "stream_options", "only allowed when 'stream' is enabled.",
         chat(stream_options={}), chat(stream_options={}, stream=True)),
    Case("OC-22", "stream", "expected a boolean", chat(stream="yes"), chat(stream=False)),
    Case("OC-23", "max_tokens", "at the same time is not supported",
         chat(max_tokens=1, max_completion_tokens=1), chat(max_tokens=1)),
    Case("OC-24", "messages", "'messages' must contain the word 'json' in some form",
         chat(response_format={"type": "json_object"}),
         chat({"role": "user", "content": [{"type": "text", "text": "as JSON"}]}, response_format={"type": "json_object"})),
    Case("OC-24", "response_format.type", "'json_schema', and 'text'",
         chat(response_format={"type": "xml"}), output(CLOSED)),
    Case("OC-24", "response_format.json_schema.name", "Missing", output(CLOSED, name=None), output(CLOSED)),
    Case("OC-24", "response_format", "expected an object", chat(response_format="json"), chat(response_format=None)),
    Case("OC-24", "response_format.json_schema", "Missing", chat(response_format={"type": "json_schema"}), output(None)),
    Case("OC-25", "messages[0].name", "does not match pattern",
         chat({**USER, "name": "a b"}), chat({**USER, "name": "a_b"})),
    Case("OC-25", "messages[0].name", "length 65", chat({**USER, "name": "a" * 65}), chat({**USER, "name": "é" * 64})),
    Case("OC-25", "messages[0].name", "expected a string", chat({**USER, "name": 1}), chat({**USER, "name": None})),
    Case("OC-26", "thinking", "Unrecognized request argument supplied: thinking",
         chat(thinking={}), chat(verbosity="low")),
    Case("OC-26", "reasoning_effort", "supplied: reasoning_effort",
         chat(reasoning_effort="low"), chat(reasoning_effort="low", model="o3")),
    Case("OC-26", "max_tokens", "Use 'max_completion_tokens'",
         chat(max_tokens=9, model="gpt-5-2025-08-07"), chat(max_tokens=9)),
    Case("OC-26", "stop", "'stop' is not supported",
         chat(stop="a", model="gpt-5-mini"), chat(stop=[], model="gpt-5-mini")),
    Case("OC-26", "web_search_options", "not supported with this model",
         chat(web_search_options={}), chat(web_search_options={}, model="gpt-4o-search-preview")),
    Case("OC-27", "metadata", "at most 16 properties",
         chat(metadata={f"k{n}": "" for n in range(17)}), chat(metadata={"k": ""})),
    Case("OC-27", "metadata.k", "expected a string, but got an integer",
         chat(metadata={"k": 1}), chat(metadata={"k": "1"})),
    Case("OC-27", "metadata.k", "length 513", chat(metadata={"k": "v" * 513}), chat(metadata={"k": "v" * 512})),
    Case("OC-28", "messages[0].name", "messages with role 'function' must have a 'name'.",
         chat({"role": "function", "content": "1"}), chat({"role": "function", "content": None, "name": "a"})),
]
# fmt: on

MISTRAL = {"model": "mistral-small-latest"}
DEEPSEEK = {"model": "deepseek-v4-flash", "messages": [USER]}
LONG_ID = "c" * 41
# fmt: off
ADVICE = [
    Case("OC-01", "model", "you must provide a model parameter", {"messages": [USER]}, chat()),
    Case("OC-05", "messages[0].tool_calls[1].id", "'c1'", chat(asks(call(), call()), result()), round_of(call())),
    Case("OC-07", f"{CALL}.function.arguments", "not valid JSON", round_of(call(arguments='{"a')), round_of(call())),
    Case("OC-09", "messages[0].tool_calls[0].id", "maximum length 40, but got a string with length 41",
         chat(asks(call(LONG_ID)), result(LONG_ID)), chat(asks(call(LONG_ID[1:])), result(LONG_ID[1:]))),
    Case("OC-10", "messages[0].content", "<nil>", chat(asks(call(), content=None), result()), round_of(call())),
    Case("OC-12", f"{PART}.type", "expected `text`", {**image(PNG), "model": "deepseek-v4-flash"}, image(PNG)),
    Case("OC-26", "extra_headers", "supplied: extra_headers", chat(extra_headers={}), chat()),
    Case("OC-29", "tools", "maximum length 128", tools(*[tool()] * 129), tools(*[tool()] * 128)),
    Case("OC-29", "tools[0].function.description", "length 1025",
         tools(tool(description="d" * 1025)), tools(tool(description="d" * 1024))),
    Case("OC-30", "messages[0]", "but this message with role 'assistant' contains an image URL.",
         parts({"type": "image_url", "image_url": {"url": PNG}}, role="assistant"), image(PNG)),
    Case("OC-31", "messages[0].reasoning_content", "Unknown parameter",
         chat({**SAYS, "reasoning_content": "x"}), chat(SAYS)),
    Case("OC-31", "messages[0].content[0].cache_control", "Unknown parameter: 'messages[0].content[0].cache_control'.",
         parts({"type": "text", "text": "a", "cache_control": {}}),
         parts({"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}})),
    Case("OC-32", SCHEMA, "at the top level",
         tools(tool(parameters={**CLOSED, "anyOf": []})), tools(tool(parameters=CLOSED))),
    Case("OC-32", SCHEMA, "In context=('properties', 'x'), array schema missing items.",
         tools(tool(parameters={**CLOSED, "properties": {"x": {"type": "array"}}})),
         tools(tool(parameters={**CLOSED, "properties": {"x": {"type": "array", "items": {}}}}))),
    Case("OC-32", SCHEMA, "'(' is not a 'regex'",
         tools(tool(parameters={**CLOSED, "properties": {"x": {"pattern": "("}}})),
         tools(tool(parameters={**CLOSED, "properties": {"x": {"pattern": "()"}}}))),
    Case("MI-01", "messages[0].tool_calls[0].id", "Tool call id was c1 but must be a-z, A-Z, 0-9, with a length of 9.",
         {**chat(asks(call()), result()), **MISTRAL}, {**chat(asks(call("abcDEF123")), result("abcDEF123")), **MISTRAL}),
    Case("MI-02", "messages[2].role", "Unexpected role 'user' after role 'tool'",
         {**chat(asks(call()), result(), USER), **MISTRAL}, {**chat(asks(call()), result(), SAYS, USER), **MISTRAL}),
    Case("MI-02", "messages[1].role", "Expected last role",
         {**chat(USER, SAYS), **MISTRAL}, {**chat(USER, {**SAYS, "prefix": True}), **MISTRAL}),
    Case("MI-02", "messages[0]", "either content or tool_calls",
         {**chat({**SAYS, "content": ""}, USER), **MISTRAL}, {**chat(SAYS, USER), **MISTRAL}),
    Case("DS-01", "messages[1].reasoning_content", "The reasoning_content in the thinking mode must be passed back to the API.",
         {**chat(USER, asks(call()), result(), thinking={"type": "enabled"}), "model": "deepseek-v4-pro"},
         {**chat(USER, asks(call(), reasoning_content=""), result(), thinking={"type": "enabled"}), "model": "deepseek-v4-pro",}),
    Case("DS-01", "tools[0].type", "`custom`",
         {**DEEPSEEK, "tools": [{"type": "custom", "custom": {"name": "a"}}]}, {**DEEPSEEK, "tools": [tool()]}),
]
# fmt: on

WORDS = "role content type text tool_calls id name function tool user c1"
"""Names of the format, for arbitrary bodies."""
