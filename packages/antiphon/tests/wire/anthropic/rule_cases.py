"""Each rule of the Messages API: a body that breaks it, and the nearest body that does not."""

from __future__ import annotations

from typing import Any

from antiphon.wire.format import WriteOptions
from support.rule_cases import Case

NEW = "2026-10-21"

ASK = {"role": "user", "content": "Is it raining in Oslo?"}
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
OBJECT = {"type": "object", "additionalProperties": False}


def body(*messages: Any, **parameters: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 2048, "messages": list(messages) or [ASK], **parameters}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def system(text: str = "Answer in Norwegian.") -> dict[str, Any]:
    return {"role": "system", "content": text}


def text(words: str = "Let me look.", **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def call(call_id: Any = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": {}, **fields}


def result(call_id: Any = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "rain", **fields}


def thinking(signature: Any = "c2ln", words: str = "Hm.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def search(call_id: str = "srvtoolu_1") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {}}


def search_result(call_id: str = "srvtoolu_1") -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def cached(ttl: str = "5m") -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def tools(*changes: dict[str, Any], schema: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [{**TOOL, **({"input_schema": schema} if schema else {}), **change} for change in changes or ({},)]


def strict(count: int, schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": f"tool_{index}", "strict": True, "input_schema": schema} for index in range(count)]


def optional(count: int) -> dict[str, Any]:
    return {**OBJECT, "properties": {f"p{index}": {"type": "string"} for index in range(count)}}


def unions(count: int) -> dict[str, Any]:
    names = [f"p{index}" for index in range(count)]
    return {**OBJECT, "properties": {n: {"type": ["string", "null"]} for n in names}, "required": names}


def output(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "schema": schema}, **fields}


ROUND = (ASK, assistant(call()), user(result()))
ENABLED = {"type": "enabled", "budget_tokens": 1024}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
DOCUMENT = {"type": "document", "source": PDF}
NODE = {**OBJECT, "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
CITATION = {"type": "char_location", "cited_text": "x", "document_index": 0, "start_char_index": 0, "end_char_index": 1}


def case(rule: str, broken: Any, path: str, message: str, legal: Any, version: str = "2023-06-01") -> Case:
    return Case(rule, path, message, broken, legal, WriteOptions(version=version))


# fmt: off
CASES = [
    case("AN-01", [], "", "valid dictionary", body()),
    case("AN-01", {"model": "m", "messages": [ASK]}, "max_tokens", "Field required", body()),
    case("AN-01", body(max_tokens=-1), "max_tokens", "greater than or equal to 0", body(max_tokens=0)),
    case("AN-01", body(max_tokens="9"), "max_tokens", "valid integer", body(max_tokens=9.0)),
    case("AN-01", body(model=7), "model", "valid string", body(model="x")),
    case("AN-01", {"model": "m", "max_tokens": 1}, "messages", "Field required", body()),
    case("AN-01", body(messages={}), "messages", "valid list", body()),
    case("AN-01", body(messages=[]), "messages", "at least one message is required", body()),
    case("AN-01", body(messages=[ASK] * 100_001), "messages", "at most 100000", body(messages=[ASK] * 10)),
    case("AN-02", body("hello"), "messages.0", "does not match the expected shape", body()),
    case("AN-02", body({**ASK, "name": "Ada"}), "messages.0.name", "Extra inputs", body()),
    case("AN-02", body({**ASK, "role": "tool"}), "messages.0.role", "'user', 'assistant'", body()),
    case("AN-02", body({"role": "user"}), "messages.0.content", "Field required", body()),
    case("AN-02", body({"content": "hi"}), "messages.0.role", "Field required",
         body({"role": "user", "content": "hi"})),
    case("AN-02", body({"role": "user", "content": {}}), "messages.0.content", "expected shape", body()),
    case("AN-03", body(system(), ASK, model="claude-opus-4-8"), "messages.0",
         "use the top-level 'system' parameter", body(ASK, system(), model="claude-opus-4-8")),
    case("AN-03", body(ASK, system(), ASK, model="claude-opus-4-8"), "messages.1",
         "must precede an 'assistant' message or end the array",
         body(ASK, system(), system(), assistant(text()), ASK, model="claude-opus-4-8")),
    case("AN-03", body(ASK, assistant(text()), system(), model="claude-opus-4-8"), "messages.2",
         "must follow a 'user' message",
         body(ASK, assistant(search(), search_result()), system(), model="claude-opus-4-8")),
    case("AN-03", body(ASK, system(), model="claude-opus-4-7"), "messages.1",
         "role 'system' is not supported on this model", body(ASK, system(), model="a-model-we-do-not-know")),
    case("AN-03", body(ASK, {"role": "system", "content": [DOCUMENT]}, model="claude-opus-5"),
         "messages.1.content.0", "not permitted in `system`",
         body(ASK, {"role": "system", "content": [text()], "output_config": {"effort": "low"}},
            model="claude-opus-5")),
    case("AN-04", body({"role": "user", "content": ""}), "messages.0",
         "all messages must have non-empty content except for the optional final assistant message",
         body(ASK, {"role": "assistant", "content": ""})),
    case("AN-04", body(user(), ASK), "messages.0", "non-empty content", body(ASK, assistant())),
    case("AN-05", body(user(text(""))), "messages.0.content.0.text", "must be non-empty",
         body(user(text("a")))),
    case("AN-05", body(user(text(" \n"))), "messages.0.content.0.text", "non-whitespace text",
         body(user(text(" a")))),
    case("AN-05", body({"role": "user", "content": " "}), "messages.0.content", "non-whitespace text",
         body()),
    case("AN-06", body(ASK, assistant(text("It is "))), "messages.1", "trailing whitespace",
         body(ASK, assistant(text()))),
    case("AN-06", body(ASK, {"role": "assistant", "content": "It is\n"}), "messages.1",
         "cannot end with trailing whitespace", body(ASK, {"role": "assistant", "content": "It is"})),
    case("AN-07", body(ASK, assistant(text()), model="claude-opus-4-6"), "messages.1",
         "This model does not support assistant message prefill. The conversation must end with a user message.",
         body(ASK, assistant(text()), model="claude-opus-4-5")),
    case("AN-07", body(ASK, assistant(text()), model="us.anthropic.claude-opus-5-5-v1:0"), "messages.1",
         "prefill", body(ASK, assistant(text(), search()), model="us.anthropic.claude-opus-5-5-v1:0")),
    case("AN-08", body(ASK, assistant(call()), ASK, tools=[TOOL]), "messages.1",
         "without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have",
         body(*ROUND, tools=[TOOL])),
    case("AN-08", body(ASK, assistant(call())), "messages.1", "toolu_1", body(*ROUND)),
    case("AN-08", body(ASK, assistant(call("a"), call("b")), user(result("b"))), "messages.1",
         "immediately after: a.", body(ASK, assistant(call("a"), call("b")), user(result("b"), result("a")))),
    case("AN-08", body(ASK, assistant(call()), user(text(), result())), "messages.1", "toolu_1",
         body(ASK, assistant(call()), user(result(), text()))),
    case("AN-08", body(ASK, assistant(call("a")), assistant(call("b")), ASK, user(result("a"), result("b"))),
         "messages.1", "a, b",
         body(ASK, assistant(call("a")), assistant(call("b")), user(result("a")), user(result("b")), ASK)),
    case("AN-09", body(user(result())), "messages.0.content.0",
         "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each `tool_result` block must have",
         body(*ROUND)),
    case("AN-09", body(*ROUND, assistant(text()), user(result())), "messages.4.content.0",
         "unexpected `tool_use_id`", body(*ROUND, assistant(call("again")), user(result("again")))),
    case("AN-10", body(ASK, assistant(call()), user(result(), result())), "messages.2.content.1",
         "each tool_use must have a single result. Found multiple `tool_result` blocks with id: toolu_1",
         body(*ROUND)),
    case("AN-10", body(*ROUND, assistant(call()), user(result())), "messages.3.content.0",
         "`tool_use` ids must be unique", body(*ROUND, assistant(call("toolu_2")), user(result("toolu_2")))),
    case("AN-11",
         body(ASK, assistant({**search(), "type": "mcp_tool_use", "server_name": "s", "id": "eval:301"}),
            ASK), "messages.1.content.0.id", "'^[a-zA-Z0-9_-]+$'",
         body(ASK, assistant({**search(), "type": "mcp_tool_use", "server_name": "s", "id": "eval-301"}),
            ASK)),
    case("AN-12", body(ASK, assistant(call(input="{}")), user(result())), "messages.1.content.0.input",
         "valid dictionary", body(*ROUND)),
    case("AN-12", body(ASK, assistant(call(name="")), user(result())), "messages.1.content.0.name",
         "at least 1 character", body(ASK, assistant(call(name="n" * 200)), user(result()))),
    case("AN-12", body(ASK, assistant(call(name="n" * 201)), user(result())), "messages.1.content.0.name",
         "at most 200 characters", body(ASK, assistant(call(name="n")), user(result()))),
    case("AN-13", body(user("hi")), "messages.0.content.0", "expected shape", body(user(text("hi")))),
    case("AN-13", body(user({"type": "input_text", "text": "hi"})), "messages.0.content.0",
         "Input tag 'input_text' found using 'type' does not match any of the expected tags",
         body(user(text("hi")))),
    case("AN-13", body(user({"text": "hi"})), "messages.0.content.0.type", "Field required",
         body(user(text("hi")))),
    case("AN-13", body(user({"type": "text"})), "messages.0.content.0.text", "Field required",
         body(user(text("hi")))),
    case("AN-13", body(user(text("hi", id=1))), "messages.0.content.0.id", "Extra inputs",
         body(user(text("hi")))),
    case("AN-13", body(user({"type": "text", "text": 5})), "messages.0.content.0.text", "valid string",
         body(user(text()))),
    case("AN-14", body(user(call())), "messages.0.content.0",
         "`tool_use` blocks can only be in `assistant` messages", body(*ROUND)),
    case("AN-14", body(ASK, assistant(result()), ASK), "messages.1.content.0",
         "`tool_result` blocks can only be in `user` messages", body(*ROUND)),
    case("AN-15", body(ASK, assistant(call()), user(result(content=[search_result()]))),
         "messages.2.content.0.content.0", "does not match any of the expected tags",
         body(ASK, assistant(call()), user(result(content=[text()])))),
    case("AN-15", body(ASK, assistant(call()), user(result(content="", is_error=True))),
         "messages.2.content.0.content", "content cannot be empty if `is_error` is true",
         body(ASK, assistant(call()), user(result(content="", is_error=False)))),
    case("AN-15",
         body(ASK, assistant(call()), user(result(content=[image(type="file", file_id="f")], is_error=True))),
         "messages.2.content.0.content.0", "all content must be type `text` if `is_error` is true",
         body(ASK, assistant(call()), user(result(content=[image(type="file", file_id="f")],
            is_error=False)))),
    case("AN-15", body(ASK, assistant(call()), user(result(content={}))), "messages.2.content.0.content",
         "expected shape", body(ASK, assistant(call()), user(result(content=[text("")])))),
    case("AN-15", body(ASK, assistant(call()), user(result(is_error="no"))), "messages.2.content.0.is_error",
         "valid boolean", body(ASK, assistant(call()), user(result(is_error=None)))),
    case("AN-16", body(tools=[1]), "tools.0", "expected shape", body(tools=[])),
    case("AN-16", body(tools=tools({"input_schema": True})), "tools.0.input_schema", "expected shape",
         body(tools=tools())),
    case("AN-16", body(tools={}), "tools", "valid list", body(tools=[TOOL])),
    case("AN-16", body(tools=tools({"name": "a.b"})), "tools.0.name", "{1,128}$'",
         body(tools=tools({"name": "a-b"}))),
    case("AN-16", body(tools=[{"input_schema": OBJECT}]), "tools.0.name", "Field required",
         body(tools=tools())),
    case("AN-16", body(tools=[{"name": "a"}]), "tools.0.input_schema", "Field required", body(tools=tools())),
    case("AN-16", body(tools=tools({"parameters": {}})), "tools.0.parameters", "Extra inputs",
         body(tools=tools())),
    case("AN-16", body(tools=tools({}, {})), "tools", "Tool names must be unique.",
         body(tools=tools({}, {"name": "b"}))),
    case("AN-16", body(tools=[{"type": "function", "function": TOOL}]), "tools.0",
         "Input tag 'function' found using 'type'",
         body(tools=[{"type": "web_search_20250305", "name": "web_search"}])),
    case("AN-16", body(tools=tools(schema={"properties": {}})), "tools.0.input_schema.type", "Field required",
         body(tools=tools(schema={"type": "object", "properties": {}}))),
    case("AN-16", body(tools=tools(schema={"type": "string"})), "tools.0.input_schema.type",
         "Input should be 'object'", body(tools=tools(schema=OBJECT))),
    case("AN-16", body(tools=tools(schema={"type": "object", "anyOf": []})), "tools.0.input_schema",
         "does not support oneOf, allOf, or anyOf at the top level",
         body(tools=tools(schema={"type": "object", "properties": {"a": {"anyOf": []}}}))),
    case("AN-16", body(tools=tools(schema={"type": "object", "properties": {"a b": {}}})),
         "tools.0.input_schema.properties", "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
         body(tools=tools(schema={"type": "object", "properties": {"a.b": {}}}))),
    case("AN-16", body(tools=strict(21, OBJECT)), "tools", "Too many strict tools (21).",
         body(tools=strict(20, OBJECT))),
    case("AN-16", body(tools=strict(1, optional(25))), "tools", "too many optional parameters (25)",
         body(tools=strict(12, optional(2)))),
    case("AN-16", body(tools=strict(1, unions(17))), "tools",
         "union types (17 parameters with type arrays or anyOf)", body(tools=strict(1, unions(16)))),
    case("AN-16", body(tools=strict(1, {**OBJECT, "$defs": {"Node": NODE}})), "tools.0",
         "Circular reference detected in schema definitions: Node -> Node.",
         body(tools=tools({"strict": False, "input_schema": {"type": "object", "$defs": {"Node": NODE}}}))),
    case("AN-17", body(tools=[TOOL], tool_choice="auto"), "tool_choice", "shape",
         body(tools=[TOOL], tool_choice={"type": "auto"})),
    case("AN-17", body(tool_choice={"type": "auto"}), "tool_choice",
         "tool_choice may only be specified while providing tools",
         body(tools=[TOOL], tool_choice={"type": "none"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "tool", "name": "clock"}), "tool_choice.name",
         "Tool 'clock' not found", body(tools=[TOOL], tool_choice={"type": "tool", "name": "weather"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "tool"}), "tool_choice.name", "Field required",
         body(tools=[{"type": "mcp_toolset", "mcp_server_name": "m"}], tool_choice={"type": "tool",
            "name": "any"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "auto", "function": {}}), "tool_choice.function",
         "Extra inputs", body(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "any"}, max_tokens=0), "tool_choice",
         "max_tokens is 0", body(tools=[TOOL], tool_choice={"type": "any"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "any"}, model="claude-opus-5-5"),
         "tool_choice.type", "'any' is not supported on this model",
         body(tools=[TOOL], tool_choice={"type": "any"}, model="claude-opus-5")),
    case("AN-18", body(user(*[text("a", **cached())] * 5)), "",
         "A maximum of 4 blocks with cache_control may be provided. Found 5.",
         body(user(*[text("a", **cached())] * 4, text("a", cache_control=None)))),
    case("AN-18", body(user(text("a", **cached("1h"))), tools=tools(cached())),
         "messages.0.content.0.cache_control.ttl",
         "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.",
         body(user(text("a", **cached())), tools=tools(cached("1h")))),
    case("AN-18", body(ASK, assistant({**thinking(), **cached()}, text()), ASK),
         "messages.1.content.0.cache_control", "Extra inputs",
         body(ASK, assistant(thinking(), text("a", **cached())), ASK)),
    case("AN-18", body(user(text("", **cached()), text())), "messages.0.content.0.text",
         "cache_control cannot be set for empty text blocks", body(user(text("a", **cached()), text()))),
    case("AN-18", body(user(text("a", **cached("1d")))), "messages.0.content.0.cache_control.ttl",
         "'5m' or '1h'", body(user(text("a", cache_control={"type": "ephemeral"})))),
    case("AN-18", body(user(text("a", cache_control=True))), "messages.0.content.0.cache_control",
         "valid dictionary", body(user(text("a", cache_control=None)))),
    case("AN-18", body(tools=tools({"cache_control": {"type": "persistent"}})), "tools.0.cache_control.type",
         "Input should be 'ephemeral'", body(tools=tools(cached()))),
    case("AN-19", body(thinking="on"), "thinking", "shape", body(thinking={"type": "disabled"})),
    case("AN-19", body(thinking={"type": "enabled", "budget_tokens": 1023}), "thinking.budget_tokens",
         "greater than or equal to 1024", body(thinking=ENABLED)),
    case("AN-19", body(thinking={"type": "enabled"}), "thinking.budget_tokens", "Field required",
         body(thinking=ENABLED)),
    case("AN-19", body(thinking=ENABLED, max_tokens=1024), "thinking.budget_tokens",
         "`max_tokens` must be greater than `thinking.budget_tokens`",
         body(thinking=ENABLED, max_tokens=1024, tools=[TOOL])),
    case("AN-19", body(thinking=ENABLED, tools=[TOOL], tool_choice={"type": "any"}), "tool_choice",
         "Thinking may not be enabled when tool_choice forces tool use.",
         body(thinking=ENABLED, tools=[TOOL], tool_choice={"type": "auto"})),
    case("AN-19", body(thinking=ENABLED, temperature=0), "temperature", "set to 1",
         body(thinking=ENABLED, temperature=1)),
    case("AN-19", body(thinking=ENABLED, top_k=5), "top_k", "must be unset", body(thinking=ENABLED)),
    case("AN-19", body(thinking=ENABLED, model="claude-opus-4-7"), "thinking.type",
         "is not supported for this model", body(thinking=ENABLED, model="claude-opus-4-6")),
    case("AN-19", body(thinking={"type": "disabled"}, model="claude-fable-5"), "thinking.type",
         "is not supported for this model", body(thinking={"type": "disabled"}, model="claude-opus-5")),
    case("AN-19", body(thinking={"type": "adaptive"}), "thinking.type", "adaptive thinking is not supported",
         body(thinking={"type": "adaptive"}, model="claude-sonnet-4-6")),
    case("AN-20", body(ASK, assistant({"type": "thinking", "thinking": "Hm."}), ASK),
         "messages.1.content.0.signature", "Field required", body(ASK, assistant(thinking()), ASK)),
    case("AN-20", body(ASK, assistant(thinking(None)), ASK), "messages.1.content.0.signature",
         "Input should be a valid string", body(ASK, assistant(thinking()), ASK)),
    case("AN-20", body(ASK, assistant(thinking("", "")), ASK), "messages.1.content.0",
         "each thinking block must contain thinking", body(ASK, assistant(thinking("c2ln", "")), ASK)),
    case("AN-20", body(ASK, assistant(thinking("")), ASK), "messages.1.content.0",
         "Invalid `signature` in `thinking` block", body(ASK, assistant(thinking()), ASK)),
    case("AN-21", body(temperature=1.5), "temperature", "range: 0..1", body(temperature=1)),
    case("AN-21", body(temperature="0"), "temperature", "valid number", body(temperature=0)),
    case("AN-21", body(top_p=1.01), "top_p", "range: 0..1", body(top_p=-1)),
    case("AN-21", body(top_k=-2), "top_k", "greater than or equal to 0", body(top_k=0)),
    case("AN-21", body(temperature=0.5, model="claude-sonnet-5"), "temperature",
         "is deprecated for this model", body(temperature=1.0, top_p=0.99, model="claude-sonnet-5")),
    case("AN-21", body(top_k=5, model="claude-opus-4-7"), "top_k", "is deprecated",
         body(top_k=5, model="claude-opus-4-6")),
    case("AN-22", body(stop_sequences=["\n"]), "stop_sequences.0", "non-whitespace",
         body(stop_sequences=["\nEND"])),
    case("AN-22", body(stop_sequences="END"), "stop_sequences", "valid list", body(stop_sequences=[])),
    case("AN-22", body(stop_sequences=["a", 1]), "stop_sequences.1", "valid string",
         body(stop_sequences=["a", "1"])),
    case("AN-23", body(metadata={"user": "u"}), "metadata.user", "Extra inputs",
         body(metadata={"user_id": "u"})),
    case("AN-23", body(metadata={"user_id": "u" * 513}), "metadata.user_id", "512",
         body(metadata={"user_id": "u" * 512})),
    case("AN-23", body(metadata={"user_id": 1}), "metadata.user_id", "valid string",
         body(metadata={"user_id": None})),
    case("AN-23", body(metadata=1), "metadata", "valid dictionary", body(metadata={})),
    case("AN-24", body(user(image(type="base64", media_type="image/bmp", data="Qk0="))),
         "messages.0.content.0.source.media_type",
         "'image/jpeg' or 'image/png' or 'image/gif' or 'image/webp'",
         body(user(image(type="base64", media_type="image/png", data="iVBORw0=")))),
    case("AN-24",
         body(user(image(type="base64", media_type="image/png", data="data:image/png;base64,iVBORw0="))),
         "messages.0.content.0.source.data", "invalid base64 data",
         body(user(image(type="url", url="https://example.com/a.png")))),
    case("AN-24", body(user(image(type="base64", data="iVBORw0="))), "messages.0.content.0.source.media_type",
         "Field required", body(user(image(type="file", file_id="file_1")))),
    case("AN-24", body(user({"type": "image", "source": "a.png"})), "messages.0.content.0.source",
         "expected shape", body(user(image(type="url", url="https://example.com/a.png")))),
    case("AN-24", body(user(image(type="url", url=5))), "messages.0.content.0.source.url", "valid string",
         body(user(image(type="url", url="https://example.com/a.png")))),
    case("AN-24", body(user(image(type="blob"))), "messages.0.content.0.source", "Input tag 'blob'",
         body(user(image(type="file", file_id="file_1")))),
    case("AN-24", body(user({"type": "document", "source": {**PDF, "media_type": "text/html"}})),
         "messages.0.content.0.source.media_type", "'application/pdf'", body(user(DOCUMENT))),
    case("AN-24",
         {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [user(image(type="url",
            url="https://example.com/a.png"))]}, "messages.0.content.0.source",
         "URL sources are not supported",
         {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [ASK]}),
    case("AN-25", body(ASK, assistant(search_result(), text()), ASK), "messages.1.content.0",
         "unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1.",
         body(ASK, assistant(search(), search_result(), text()), ASK)),
    case("AN-25", body(ASK, assistant(search("toolu_1"), text()), ASK), "messages.1.content.0.id",
         "'^srvtoolu_[a-zA-Z0-9_]+$'", body(ASK, assistant(search(), text()), ASK)),
    case("AN-26", body(system={"text": "Be brief."}), "system", "shape", body(system="Be brief.")),
    case("AN-26", body(system=[text("")]), "system.0.text", "must be non-empty",
         body(system=[text("Be brief.")])),
    case("AN-26", body(system=[DOCUMENT]), "system.0", "shape", body(system=[])),
    case("AN-27", body(n=1), "n", "Extra inputs are not permitted", body()),
    case("AN-27", body(anthropic_version="vertex-2023-10-16"), "anthropic_version", "Extra inputs",
         {"anthropic_version": "vertex-2023-10-16", "max_tokens": 9, "messages": [ASK]}),
    case("AN-28", body(temperature=1), "temperature", "Extra inputs are not permitted", body(), NEW),
    case("AN-28", body(top_k=5), "top_k", "Extra inputs are not permitted", body(), NEW),
    case("AN-28", body(ASK, assistant(DOCUMENT), ASK), "messages.1.content.0",
         "`document` blocks are not permitted in `assistant` messages",
         body(user(DOCUMENT), assistant(text()), ASK), NEW),
    case("AN-28", body(user(text("a", citations=[CITATION]))), "messages.0.content.0.citations",
         "Extra inputs", body(user(text("a", citations=[])), assistant(text("b", citations=[CITATION])), ASK),
         NEW),
    case("AN-29", body(ASK, assistant(call(), text()), user(result())), "messages.1",
         "without `tool_result` blocks immediately after: toolu_1",
         body(ASK, assistant(text(), call()), user(result()))),
    case("AN-29", body(ASK, assistant(call()), {"role": "assistant", "content": "Wait."}, user(result())),
         "messages.1", "toolu_1", body(ASK, assistant(call(), search()), user(result()))),
    case("AN-30", body(*ROUND, thinking=ENABLED, tools=[TOOL]), "messages.1.content.0.type",
         "Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
         body(ASK, assistant(thinking(), call()), user(result()), thinking=ENABLED, tools=[TOOL])),
    case("AN-30",
         body(*ROUND, assistant(text(), call("b")), user(result("b")), thinking=ENABLED, tools=[TOOL]),
         "messages.3.content.0.type", "but found `text`",
         body(*ROUND, assistant(text()), ASK, thinking=ENABLED, tools=[TOOL])),
    case("AN-31", body(temperature=0.5, top_p=0.5), "top_p", "cannot both be specified", body(temperature=0.5)),
    case("AN-31", body(temperature=0, top_p=1, model="claude-opus-4-1"), "top_p", "cannot both be specified",
         body(temperature=0, top_p=1, model="claude-sonnet-4-0")),
    case("AN-19", body(thinking={"type": "enabled", "budget_tokens": 1024}, model="claude-3-5-haiku-latest"), "thinking.type",
         "is not supported for this model", body(thinking={"type": "disabled"}, model="claude-3-5-haiku-latest")),
    case("AN-19", body(ASK, assistant(text()), thinking=ENABLED), "messages.1.content.0.type",
         "must start with a thinking block", body(ASK, assistant(text()))),
    case("AN-32", body(output_config={"effort": "low"}), "output_config.effort",
         "This model does not support the effort parameter.",
         body(output_config={"effort": "low"}, model="claude-opus-4-5")),
    case("AN-32", body(output_config={"effort": "max"}, thinking={"type": "disabled"}, model="claude-opus-5"),
         "output_config.effort", "does not support effort level 'max'",
         body(output_config={"effort": "max"}, model="claude-opus-5")),
    case("AN-32", body(output_config=output({"type": "object"})), "output_config.format.schema",
         "'additionalProperties' must be explicitly set to false", body(output_config=output(OBJECT))),
    case("AN-32", body(output_config=output({**OBJECT, "properties": {"a": {"type": "array", "minItems": 2}}})),
         "output_config.format.schema", "'minItems' values other than 0 or 1",
         body(output_config=output({**OBJECT, "properties": {"a": {"type": "array", "minItems": 1}}}))),
    case("AN-32", body(output_config=output(OBJECT), model="claude-3-haiku-20240307"), "output_config.format",
         "does not support output formats", body(output_config=output(OBJECT))),
    case("AN-16", body(tools=strict(1, {**OBJECT, "properties": {"n": {"type": "integer", "maximum": 3}}})),
         "tools.0.custom", "property 'maximum' is not supported", body(tools=strict(1, OBJECT))),
    case("AN-16", body(tools=strict(1, OBJECT), model="claude-sonnet-4-0"), "tools.0.strict",
         "does not support strict tools", body(tools=strict(1, OBJECT))),
    case("AN-01", {**body(model="claude-opus-4-1"), "max_tokens": 32_001}, "max_tokens",
         "32001 > 32000, which is the maximum", {**body(model="claude-opus-4-1"), "max_tokens": 32_000}),
    case("AN-32", body(output_config={"effort": "huge"}), "output_config.effort", "'xhigh'",
         body(output_config={"effort": "max"}, model="claude-opus-4-6")),
    case("AN-32", body(output_format="json"), "output_format", "valid dictionary", body(output_format=None)),
    case("AN-32", body(output_config=[1]), "output_config", "valid dictionary", body(output_config={})),
    case("AN-32", body(output_config={"verbosity": 1}), "output_config.verbosity", "Extra",
         body(output_config={})),
    case("AN-32", body(output_config={"effort": "xhigh"}, model="claude-opus-4-6"), "output_config.effort",
         "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium.",
         body(output_config={"effort": "xhigh"}, model="claude-opus-4-7")),
    case("AN-32", body(output_format={"type": "json_schema", "json_schema": {}}), "output_format.schema",
         "Field required", body(output_format={"type": "json_schema", "schema": OBJECT})),
    case("AN-32", body(output_config={"format": {"type": "json_object", "schema": OBJECT}}),
         "output_config.format.type", "Input should be 'json_schema'", body(output_config=output(OBJECT))),
    case("AN-32",
         body(output_config=output({**OBJECT, "properties": {"n": {"type": "integer",
            "minimum": 0}}})), "output_config.format.schema",
         "For 'integer' type, property 'minimum' is not supported",
         body(output_config=output({**OBJECT, "properties": {"minimum": {"type": "integer"}}}))),
    case("AN-32", body(user({**DOCUMENT, "citations": {"enabled": True}}), output_config=output(OBJECT)),
         "output_config.format", "citations",
         body(user({**DOCUMENT, "citations": {"enabled": False}}), output_config=output(OBJECT))),
    case("AN-32", body(user({**DOCUMENT, "citations": {"enabled": True}}), output_format=output(OBJECT)["format"]),
         "output_format", "citations", body(output_format=output(OBJECT)["format"])),
    case("AN-33", body(tools=tools({"defer_loading": True})), "tools", "All tools have defer_loading set",
         body(tools=tools({"defer_loading": True}, {"name": "b"}))),
]

ADVICE = [
    case("AN-01", {"max_tokens": 9, "messages": [ASK]}, "model", "Field required", body()),
    case("AN-03", body(ASK, system(), model="claude-sonnet-5"), "messages.1", "ignored",
         body(model="claude-sonnet-5")),
    case("AN-31", body(*ROUND), "messages.1", "when no tools are given", body(*ROUND, tools=[TOOL])),
]
# fmt: on

WORDS = "user assistant system text tool_use tool_result thinking image document type id input name content source"
"""Names of the format, for arbitrary bodies."""
OPTIONS = [WriteOptions(version=version) for version in ("2023-06-01", NEW)]
