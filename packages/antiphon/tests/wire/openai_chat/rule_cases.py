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
    Case("OC-01", "", [], chat()),
    Case("OC-01", "model", chat(model=1), chat()),
    Case("OC-01", "messages", {"model": "gpt-4o"}, chat()),
    Case("OC-01", "messages", {"model": "gpt-4o", "messages": []}, chat()),
    Case("OC-01", "messages", {"model": "gpt-4o", "messages": "hi"}, chat()),
    Case("OC-01", "messages[1]", chat(USER, 1), chat(USER, USER)),
    Case("OC-02", "messages[0].role", chat({**USER, "role": "model"}), chat()),
    Case("OC-02", "messages[0].role", chat({"content": "hi"}), chat()),
    Case("OC-02", "messages[0].role",
         chat({"role": "system", "content": "x"}, model="o1-mini"),
         chat({"role": "system", "content": "x"}, model="o3-mini")),
    Case("OC-03", "messages[1].tool_calls", chat(USER, asks(call())), round_of(call())),
    Case("OC-03", "messages[0].tool_calls",
         chat(asks(call(), call("c2")), result(), USER), chat(asks(call(), call("c2")), result("c2"), result(), USER)),
    Case("OC-04", "messages[1].role", chat(USER, result()), round_of(call())),
    Case("OC-04", "messages[3].tool_call_id",
         chat(USER, asks(call()), result(), result("c9")), chat(USER, asks(call(), call("c9")), result(), result("c9"))),
    Case("OC-04", "messages[2].tool_call_id",
         chat(asks(call()), result(), result(None)), chat(asks(call()), result())),
    Case("OC-04", "messages[2].tool_call_id",
         chat(asks(call()), result(), result(1)), chat(asks(call()), result())),
    Case("OC-05", "messages[3].tool_call_id",
         chat(USER, asks(call()), result(), result()), chat(USER, asks(call()), result(), asks(call()), result())),
    Case("OC-06", "messages[0].tool_calls", chat(asks()), chat({**SAYS, "tool_calls": None})),
    Case("OC-06", "messages[0].tool_calls", chat({**SAYS, "tool_calls": {}}), chat(SAYS)),
    Case("OC-07", CALL, chat(USER, asks("c1", call()), result()), round_of(call())),
    Case("OC-07", "messages[1].tool_calls[1].id",
         chat(USER, asks(call(), call(None)), result()), chat(USER, asks(call(), call("c2")), result(), result("c2"))),
    Case("OC-07", f"{CALL}.type", round_of({**call(), "type": None}), round_of(call())),
    Case("OC-07", f"{CALL}.type", round_of({**call(), "type": "x"}), round_of(call())),
    Case("OC-07", f"{CALL}.function.arguments",
         round_of(call(arguments={})), round_of(call(arguments=""))),
    Case("OC-07", f"{CALL}.custom.input",
         round_of({"id": "c1", "type": "custom", "custom": {"name": "look"}}),
         round_of({"id": "c1", "type": "custom", "custom": {"name": "look", "input": "x"}})),
    Case("OC-07", f"{CALL}.function", round_of({"id": "c1", "type": "function"}), round_of(call())),
    Case("OC-07", f"{CALL}.function.name", round_of(call(name=None)), round_of(call())),
    Case("OC-08", f"{CALL}.function.name", round_of(call(name="")), round_of(call(name="a"))),
    Case("OC-08", "tools[0].function.name", tools(tool(name="a" * 65)), tools(tool(name="a" * 64))),
    Case("OC-08", "tools[0].function.name", tools(tool(name="a.b")), tools(tool(name="a-b_C9"))),
    Case("OC-10", "messages[0].content", chat({**USER, "content": None}), chat()),
    Case("OC-10", "messages[0].content", chat({"role": "assistant"}), chat({**SAYS, "content": ""})),
    Case("OC-10", "messages[2].content", chat(USER, asks(call()), result(content=None)), round_of(call())),
    Case("OC-10", "messages[0].content", chat({**USER, "content": {}}), chat()),
    Case("OC-11", "messages[0].content", parts(), parts({"type": "text", "text": ""})),
    Case("OC-11", f"{PART}.type", parts({"text": "a"}), parts(TEXT)),
    Case("OC-12", f"{PART}.type", parts({"type": "input_text", "text": "a"}), parts(TEXT)),
    Case("OC-12", PART, parts("hi"), parts(TEXT)),
    Case("OC-12", f"{PART}.text", parts({"type": "text"}), parts(TEXT)),
    Case("OC-12", f"{PART}.file", parts({"type": "file"}), parts({"type": "file", "file": {}})),
    Case("OC-12", f"{PART}.type",
         parts({"type": "refusal", "refusal": "no"}), parts({"type": "refusal", "refusal": "no"}, role="assistant")),
    Case("OC-13", URL, image("ftp://a"), image(PNG)),
    Case("OC-13", URL, image("data:image/tiff;base64,AA=="), image(PNG)),
    Case("OC-13", URL, image("data:image/png;base64,!!"), image("https://a")),
    Case("OC-13", f"{PART}.image_url",
         parts({"type": "image_url", "image_url": "a.png"}), parts({"type": "image_url", "image_url": PNG})),
    Case("OC-13", f"{PART}.image_url", parts({"type": "image_url"}), image(PNG)),
    Case("OC-14", "tools", chat(tools=[]), chat(tools=None)),
    Case("OC-15", "tools", chat(tools={}), tools()),
    Case("OC-15", "tools[0].type", tools({"function": {"name": "a"}}), tools()),
    Case("OC-15", "tools[0].type", tools({"type": "web_search"}), tools()),
    Case("OC-15", "tools[0].function", tools({"type": "function", "name": "a"}), tools()),
    Case("OC-15", "tools[0].function.name", tools(tool(name=None)), tools()),
    Case("OC-15", "tools[0]", tools("look"), tools()),
    Case("OC-16", SCHEMA,
         tools(tool(parameters={"properties": {}})),
         tools(tool(parameters={"type": "object", "properties": {}}))),
    Case("OC-16", SCHEMA, tools(tool(parameters="")), tools(tool(parameters=None))),
    Case("OC-17", SCHEMA,
         tools(tool(strict=True, parameters={**CLOSED, "properties": {"x": {"type": "object"}}, "required": ["x"]})),
         tools(tool(strict=True, parameters={**CLOSED, "properties": {"x": CLOSED}, "required": ["x"]}))),
    Case("OC-17", SCHEMA,
         tools(tool(strict=True, parameters=OPEN)),
         tools(tool(strict=False, parameters=OPEN))),
    Case("OC-17", SCHEMA,
         tools(tool(strict=True, parameters={**CLOSED, "$defs": {"A": {"type": "array", "items": {"allOf": []}}}})),
         tools(tool(strict=True, parameters={**CLOSED, "$defs": {"A": {"type": "array", "items": {"anyOf": []}}}}))),
    Case("OC-17", "response_format.json_schema.schema",
         output({"type": "object"}, strict=True),
         output(CLOSED, strict=True)),
    Case("OC-18", "tool_choice", chat(tool_choice="none"), tools(tool_choice="none")),
    Case("OC-18", "tool_choice", tools(tool_choice="any"), tools(tool_choice="required")),
    Case("OC-18", "tool_choice",
         tools(tool_choice={"type": "function", "function": {"name": "leap"}}),
         tools(tool_choice={"type": "function", "function": {"name": "look"}})),
    Case("OC-18", "tool_choice",
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(name="leap")]}}),
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool()]}})),
    Case("OC-18", "tool_choice.type", tools(tool_choice={"name": "look"}), tools(tool_choice="auto")),
    Case("OC-18", "function_call",
         chat(function_call="auto"), chat(function_call="auto", functions=[{"name": "a"}])),
    Case("OC-18", "tool_choice.type", tools(tool_choice={"type": "tool"}), tools(tool_choice=None)),
    Case("OC-18", "tool_choice.custom", tools(tool_choice={"type": "custom"}), tools(tool_choice="none")),
    Case("OC-18", "tool_choice.allowed_tools.tools",
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {}}),
         tools(tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [tool()]}})),
    Case("OC-19", "parallel_tool_calls",
         chat(parallel_tool_calls=False), tools(parallel_tool_calls=False)),
    Case("OC-19", "parallel_tool_calls", tools(parallel_tool_calls=1), tools(parallel_tool_calls=True)),
    Case("OC-20", "temperature",
         chat(temperature=99.0), chat(temperature=2)),
    Case("OC-20", "temperature",
         chat(temperature=-1), chat(temperature=0)),
    Case("OC-20", "top_p", chat(top_p=1.1), chat(top_p=1.0)),
    Case("OC-20", "presence_penalty", chat(presence_penalty=-2.5), chat(presence_penalty=-2)),
    Case("OC-20", "n", chat(n=0), chat(n=1)),
    Case("OC-20", "n", chat(n=1.5), chat(n=128)),
    Case("OC-20", "top_logprobs", chat(top_logprobs=21), chat(top_logprobs=20)),
    Case("OC-20", "temperature", chat(temperature="1"), chat(temperature=None)),
    Case("OC-20", "temperature", chat(temperature=True), chat(temperature=1)),
    Case("OC-20", "temperature", chat(temperature=float("nan")), chat(temperature=0.5)),
    Case("OC-21", "stop",
         chat(stop=list("abcde")), chat(stop=list("abcd"))),
    Case("OC-21", "stop[0]", chat(stop=[1]), chat(stop="a")),
    Case("OC-21", "stop", chat(stop={}), chat(stop=[])),
    Case("OC-22", "stream_options",
         chat(stream_options={}), chat(stream_options={}, stream=True)),
    Case("OC-22", "stream", chat(stream="yes"), chat(stream=False)),
    Case("OC-23", "max_tokens",
         chat(max_tokens=1, max_completion_tokens=1), chat(max_tokens=1)),
    Case("OC-24", "messages",
         chat(response_format={"type": "json_object"}),
         chat({"role": "user", "content": [{"type": "text", "text": "as JSON"}]}, response_format={"type": "json_object"})),
    Case("OC-24", "response_format.type",
         chat(response_format={"type": "xml"}), output(CLOSED)),
    Case("OC-24", "response_format.json_schema.name", output(CLOSED, name=None), output(CLOSED)),
    Case("OC-24", "response_format", chat(response_format="json"), chat(response_format=None)),
    Case("OC-24", "response_format.json_schema", chat(response_format={"type": "json_schema"}), output(None)),
    Case("OC-25", "messages[0].name",
         chat({**USER, "name": "a b"}), chat({**USER, "name": "a_b"})),
    Case("OC-25", "messages[0].name", chat({**USER, "name": "a" * 65}), chat({**USER, "name": "é" * 64})),
    Case("OC-25", "messages[0].name", chat({**USER, "name": 1}), chat({**USER, "name": None})),
    Case("OC-26", "thinking",
         chat(thinking={}), chat(verbosity="low")),
    Case("OC-26", "reasoning_effort",
         chat(reasoning_effort="low"), chat(reasoning_effort="low", model="o3")),
    Case("OC-26", "max_tokens",
         chat(max_tokens=9, model="gpt-5-2025-08-07"), chat(max_tokens=9)),
    Case("OC-26", "stop",
         chat(stop="a", model="gpt-5-mini"), chat(stop=[], model="gpt-5-mini")),
    Case("OC-26", "web_search_options",
         chat(web_search_options={}), chat(web_search_options={}, model="gpt-4o-search-preview")),
    Case("OC-26", "parallel_tool_calls",
         tools(tool(), parallel_tool_calls=False, model="o3-mini"), tools(tool(), parallel_tool_calls=False)),
    Case("OC-27", "metadata",
         chat(metadata={f"k{n}": "" for n in range(17)}), chat(metadata={"k": ""})),
    Case("OC-27", "metadata.k",
         chat(metadata={"k": 1}), chat(metadata={"k": "1"})),
    Case("OC-27", "metadata.k", chat(metadata={"k": "v" * 513}), chat(metadata={"k": "v" * 512})),
    Case("OC-28", "messages[0].name",
         chat({"role": "function", "content": "1"}), chat({"role": "function", "content": None, "name": "a"})),
]
# fmt: on

MISTRAL = {"model": "mistral-small-latest"}
DEEPSEEK = {"model": "deepseek-v4-flash", "messages": [USER]}
LONG_ID = "c" * 41
# fmt: off
ADVICE = [
    Case("OC-01", "model", {"messages": [USER]}, chat()),
    Case("OC-05", "messages[0].tool_calls[1].id", chat(asks(call(), call()), result()), round_of(call())),
    Case("OC-07", f"{CALL}.function.arguments", round_of(call(arguments='{"a')), round_of(call())),
    Case("OC-09", "messages[0].tool_calls[0].id",
         chat(asks(call(LONG_ID)), result(LONG_ID)), chat(asks(call(LONG_ID[1:])), result(LONG_ID[1:]))),
    Case("OC-10", "messages[0].content", chat(asks(call(), content=None), result()), round_of(call())),
    Case("OC-12", f"{PART}.type", {**image(PNG), "model": "deepseek-v4-flash"}, image(PNG)),
    Case("OC-26", "extra_headers", chat(extra_headers={}), chat()),
    Case("OC-29", "tools", tools(*[tool()] * 129), tools(*[tool()] * 128)),
    Case("OC-29", "tools[0].function.description",
         tools(tool(description="d" * 1025)), tools(tool(description="d" * 1024))),
    Case("OC-30", "messages[0]",
         parts({"type": "image_url", "image_url": {"url": PNG}}, role="assistant"), image(PNG)),
    Case("OC-31", "messages[0].reasoning_content",
         chat({**SAYS, "reasoning_content": "x"}), chat(SAYS)),
    Case("OC-31", "messages[0].content[0].cache_control",
         parts({"type": "text", "text": "a", "cache_control": {}}),
         parts({"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}})),
    Case("OC-32", SCHEMA,
         tools(tool(parameters={**CLOSED, "anyOf": []})), tools(tool(parameters=CLOSED))),
    Case("OC-32", SCHEMA,
         tools(tool(parameters={**CLOSED, "properties": {"x": {"type": "array"}}})),
         tools(tool(parameters={**CLOSED, "properties": {"x": {"type": "array", "items": {}}}}))),
    Case("OC-32", SCHEMA,
         tools(tool(parameters={**CLOSED, "properties": {"x": {"pattern": "("}}})),
         tools(tool(parameters={**CLOSED, "properties": {"x": {"pattern": "()"}}}))),
    Case("MI-01", "messages[0].tool_calls[0].id",
         {**chat(asks(call()), result()), **MISTRAL}, {**chat(asks(call("abcDEF123")), result("abcDEF123")), **MISTRAL}),
    Case("MI-02", "messages[2].role",
         {**chat(asks(call()), result(), USER), **MISTRAL}, {**chat(asks(call()), result(), SAYS, USER), **MISTRAL}),
    Case("MI-02", "messages[1].role",
         {**chat(USER, SAYS), **MISTRAL}, {**chat(USER, {**SAYS, "prefix": True}), **MISTRAL}),
    Case("MI-02", "messages[0]",
         {**chat({**SAYS, "content": ""}, USER), **MISTRAL}, {**chat(SAYS, USER), **MISTRAL}),
    Case("DS-01", "messages[1].reasoning_content",
         {**chat(USER, asks(call()), result(), thinking={"type": "enabled"}), "model": "deepseek-v4-pro"},
         {**chat(USER, asks(call(), reasoning_content=""), result(), thinking={"type": "enabled"}),
         "model": "deepseek-v4-pro",}),
    Case("DS-01", "tools[0].type",
         {**DEEPSEEK, "tools": [{"type": "custom", "custom": {"name": "a"}}]}, {**DEEPSEEK, "tools": [tool()]}),
]
# fmt: on

WORDS = "role content type text tool_calls id name function tool user c1"
"""Names of the format, for arbitrary bodies."""
