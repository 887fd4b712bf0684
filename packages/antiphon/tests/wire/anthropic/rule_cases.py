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


def case(rule: str, broken: Any, path: str, legal: Any, version: str = "2023-06-01") -> Case:
    return Case(rule, path, broken, legal, WriteOptions(version=version))


# fmt: off
CASES = [
    case("AN-01", [], "", body()),
    case("AN-01", {"model": "m", "messages": [ASK]}, "max_tokens", body()),
    case("AN-01", body(max_tokens=-1), "max_tokens", body(max_tokens=0)),
    case("AN-01", body(max_tokens="9"), "max_tokens", body(max_tokens=9.0)),
    case("AN-01", body(model=7), "model", body(model="x")),
    case("AN-01", {"model": "m", "max_tokens": 1}, "messages", body()),
    case("AN-01", body(messages={}), "messages", body()),
    case("AN-01", body(messages=[]), "messages", body()),
    case("AN-01", body(messages=[ASK] * 100_001), "messages", body(messages=[ASK] * 10)),
    case("AN-02", body("hello"), "messages.0", body()),
    case("AN-02", body({**ASK, "name": "Ada"}), "messages.0.name", body()),
    case("AN-02", body({**ASK, "role": "tool"}), "messages.0.role", body()),
    case("AN-02", body({"role": "user"}), "messages.0.content", body()),
    case("AN-02", body({"content": "hi"}), "messages.0.role",
         body({"role": "user", "content": "hi"})),
    case("AN-02", body({"role": "user", "content": {}}), "messages.0.content", body()),
    case("AN-03", body(system(), ASK, model="claude-opus-4-8"), "messages.0", body(ASK, system(), model="claude-opus-4-8")),
    case("AN-03", body(ASK, system(), ASK, model="claude-opus-4-8"), "messages.1",
         body(ASK, system(), system(), assistant(text()), ASK, model="claude-opus-4-8")),
    case("AN-03", body(ASK, assistant(text()), system(), model="claude-opus-4-8"), "messages.2",
         body(ASK, assistant(search(), search_result()), system(), model="claude-opus-4-8")),
    case("AN-03", body(ASK, system(), model="claude-opus-4-7"), "messages.1",
         body(ASK, system(), model="a-model-we-do-not-know")),
    case("AN-03", body(ASK, {"role": "system", "content": [DOCUMENT]}, model="claude-opus-5"),
         "messages.1.content.0",
         body(ASK, {"role": "system", "content": [text()], "output_config": {"effort": "low"}},
            model="claude-opus-5")),
    case("AN-04", body({"role": "user", "content": ""}), "messages.0",
         body(ASK, {"role": "assistant", "content": ""})),
    case("AN-04", body(user(), ASK), "messages.0", body(ASK, assistant())),
    case("AN-05", body(user(text(""))), "messages.0.content.0.text",
         body(user(text("a")))),
    case("AN-05", body(user(text(" \n"))), "messages.0.content.0.text",
         body(user(text(" a")))),
    case("AN-05", body({"role": "user", "content": " "}), "messages.0.content",
         body()),
    case("AN-06", body(ASK, assistant(text("It is "))), "messages.1",
         body(ASK, assistant(text()))),
    case("AN-06", body(ASK, {"role": "assistant", "content": "It is\n"}), "messages.1",
         body(ASK, {"role": "assistant", "content": "It is"})),
    case("AN-07", body(ASK, assistant(text()), model="claude-opus-4-6"), "messages.1",
         body(ASK, assistant(text()), model="claude-opus-4-5")),
    case("AN-07", body(ASK, assistant(text()), model="us.anthropic.claude-opus-5-5-v1:0"), "messages.1",
         body(ASK, assistant(text(), search()), model="us.anthropic.claude-opus-5-5-v1:0")),
    case("AN-08", body(ASK, assistant(call()), ASK, tools=[TOOL]), "messages.1",
         body(*ROUND, tools=[TOOL])),
    case("AN-08", body(ASK, assistant(call())), "messages.1", body(*ROUND)),
    case("AN-08", body(ASK, assistant(call("a"), call("b")), user(result("b"))), "messages.1",
         body(ASK, assistant(call("a"), call("b")), user(result("b"), result("a")))),
    case("AN-08", body(ASK, assistant(call()), user(text(), result())), "messages.1",
         body(ASK, assistant(call()), user(result(), text()))),
    case("AN-08", body(ASK, assistant(call("a")), assistant(call("b")), ASK, user(result("a"), result("b"))),
         "messages.1",
         body(ASK, assistant(call("a")), assistant(call("b")), user(result("a")), user(result("b")), ASK)),
    case("AN-09", body(user(result())), "messages.0.content.0",
         body(*ROUND)),
    case("AN-09", body(*ROUND, assistant(text()), user(result())), "messages.4.content.0",
         body(*ROUND, assistant(call("again")), user(result("again")))),
    case("AN-10", body(ASK, assistant(call()), user(result(), result())), "messages.2.content.1",
         body(*ROUND)),
    case("AN-10", body(*ROUND, assistant(call()), user(result())), "messages.3.content.0",
         body(*ROUND, assistant(call("toolu_2")), user(result("toolu_2")))),
    case("AN-11",
         body(ASK, assistant({**search(), "type": "mcp_tool_use", "server_name": "s", "id": "eval:301"}),
            ASK), "messages.1.content.0.id",
         body(ASK, assistant({**search(), "type": "mcp_tool_use", "server_name": "s", "id": "eval-301"}),
            ASK)),
    case("AN-12", body(ASK, assistant(call(input="{}")), user(result())), "messages.1.content.0.input", body(*ROUND)),
    case("AN-12", body(ASK, assistant(call(name="")), user(result())), "messages.1.content.0.name",
         body(ASK, assistant(call(name="n" * 200)), user(result()))),
    case("AN-12", body(ASK, assistant(call(name="n" * 201)), user(result())), "messages.1.content.0.name",
         body(ASK, assistant(call(name="n")), user(result()))),
    case("AN-13", body(user("hi")), "messages.0.content.0", body(user(text("hi")))),
    case("AN-13", body(user({"type": "input_text", "text": "hi"})), "messages.0.content.0",
         body(user(text("hi")))),
    case("AN-13", body(user({"text": "hi"})), "messages.0.content.0.type",
         body(user(text("hi")))),
    case("AN-13", body(user({"type": "text"})), "messages.0.content.0.text",
         body(user(text("hi")))),
    case("AN-13", body(user(text("hi", id=1))), "messages.0.content.0.id",
         body(user(text("hi")))),
    case("AN-13", body(user({"type": "text", "text": 5})), "messages.0.content.0.text",
         body(user(text()))),
    case("AN-14", body(user(call())), "messages.0.content.0", body(*ROUND)),
    case("AN-14", body(ASK, assistant(result()), ASK), "messages.1.content.0", body(*ROUND)),
    case("AN-15", body(ASK, assistant(call()), user(result(content=[search_result()]))),
         "messages.2.content.0.content.0",
         body(ASK, assistant(call()), user(result(content=[text()])))),
    case("AN-15", body(ASK, assistant(call()), user(result(content="", is_error=True))),
         "messages.2.content.0.content",
         body(ASK, assistant(call()), user(result(content="", is_error=False)))),
    case("AN-15",
         body(ASK, assistant(call()), user(result(content=[image(type="file", file_id="f")], is_error=True))),
         "messages.2.content.0.content.0",
         body(ASK, assistant(call()), user(result(content=[image(type="file", file_id="f")],
            is_error=False)))),
    case("AN-15", body(ASK, assistant(call()), user(result(content={}))), "messages.2.content.0.content",
         body(ASK, assistant(call()), user(result(content=[text("")])))),
    case("AN-15", body(ASK, assistant(call()), user(result(is_error="no"))), "messages.2.content.0.is_error",
         body(ASK, assistant(call()), user(result(is_error=None)))),
    case("AN-16", body(tools=[1]), "tools.0", body(tools=[])),
    case("AN-16", body(tools=tools({"input_schema": True})), "tools.0.input_schema",
         body(tools=tools())),
    case("AN-16", body(tools={}), "tools", body(tools=[TOOL])),
    case("AN-16", body(tools=tools({"name": "a.b"})), "tools.0.name",
         body(tools=tools({"name": "a-b"}))),
    case("AN-16", body(tools=[{"input_schema": OBJECT}]), "tools.0.name",
         body(tools=tools())),
    case("AN-16", body(tools=[{"name": "a"}]), "tools.0.input_schema", body(tools=tools())),
    case("AN-16", body(tools=tools({"parameters": {}})), "tools.0.parameters",
         body(tools=tools())),
    case("AN-16", body(tools=tools({}, {})), "tools",
         body(tools=tools({}, {"name": "b"}))),
    case("AN-16", body(tools=[{"type": "function", "function": TOOL}]), "tools.0",
         body(tools=[{"type": "web_search_20250305", "name": "web_search"}])),
    case("AN-16", body(tools=tools(schema={"properties": {}})), "tools.0.input_schema.type",
         body(tools=tools(schema={"type": "object", "properties": {}}))),
    case("AN-16", body(tools=tools(schema={"type": "string"})), "tools.0.input_schema.type",
         body(tools=tools(schema=OBJECT))),
    case("AN-16", body(tools=tools(schema={"type": "object", "anyOf": []})), "tools.0.input_schema",
         body(tools=tools(schema={"type": "object", "properties": {"a": {"anyOf": []}}}))),
    case("AN-16", body(tools=tools(schema={"type": "object", "properties": {"a b": {}}})),
         "tools.0.input_schema.properties",
         body(tools=tools(schema={"type": "object", "properties": {"a.b": {}}}))),
    case("AN-16", body(tools=strict(21, OBJECT)), "tools",
         body(tools=strict(20, OBJECT))),
    case("AN-16", body(tools=strict(1, optional(25))), "tools",
         body(tools=strict(12, optional(2)))),
    case("AN-16", body(tools=strict(1, unions(17))), "tools", body(tools=strict(1, unions(16)))),
    case("AN-16", body(tools=strict(1, {**OBJECT, "$defs": {"Node": NODE}})), "tools.0",
         body(tools=tools({"strict": False, "input_schema": {"type": "object", "$defs": {"Node": NODE}}}))),
    case("AN-17", body(tools=[TOOL], tool_choice="auto"), "tool_choice",
         body(tools=[TOOL], tool_choice={"type": "auto"})),
    case("AN-17", body(tool_choice={"type": "auto"}), "tool_choice",
         body(tools=[TOOL], tool_choice={"type": "none"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "tool", "name": "clock"}), "tool_choice.name",
         body(tools=[TOOL], tool_choice={"type": "tool", "name": "weather"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "tool"}), "tool_choice.name",
         body(tools=[{"type": "mcp_toolset", "mcp_server_name": "m"}], tool_choice={"type": "tool",
            "name": "any"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "auto", "function": {}}), "tool_choice.function",
         body(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "any"}, max_tokens=0), "tool_choice",
         body(tools=[TOOL], tool_choice={"type": "any"})),
    case("AN-17", body(tools=[TOOL], tool_choice={"type": "any"}, model="claude-opus-5-5"),
         "tool_choice.type",
         body(tools=[TOOL], tool_choice={"type": "any"}, model="claude-opus-5")),
    case("AN-18", body(user(*[text("a", **cached())] * 5)), "",
         body(user(*[text("a", **cached())] * 4, text("a", cache_control=None)))),
    case("AN-18", body(user(text("a", **cached("1h"))), tools=tools(cached())),
         "messages.0.content.0.cache_control.ttl",
         body(user(text("a", **cached())), tools=tools(cached("1h")))),
    case("AN-18", body(ASK, assistant({**thinking(), **cached()}, text()), ASK),
         "messages.1.content.0.cache_control",
         body(ASK, assistant(thinking(), text("a", **cached())), ASK)),
    case("AN-18", body(user(text("", **cached()), text())), "messages.0.content.0.text",
         body(user(text("a", **cached()), text()))),
    case("AN-18", body(user(text("a", **cached("1d")))), "messages.0.content.0.cache_control.ttl",
         body(user(text("a", cache_control={"type": "ephemeral"})))),
    case("AN-18", body(user(text("a", cache_control=True))), "messages.0.content.0.cache_control",
         body(user(text("a", cache_control=None)))),
    case("AN-18", body(tools=tools({"cache_control": {"type": "persistent"}})), "tools.0.cache_control.type",
         body(tools=tools(cached()))),
    case("AN-19", body(thinking="on"), "thinking", body(thinking={"type": "disabled"})),
    case("AN-19", body(thinking={"type": "enabled", "budget_tokens": 1023}), "thinking.budget_tokens",
         body(thinking=ENABLED)),
    case("AN-19", body(thinking={"type": "enabled"}), "thinking.budget_tokens",
         body(thinking=ENABLED)),
    case("AN-19", body(thinking=ENABLED, max_tokens=1024), "thinking.budget_tokens",
         body(thinking=ENABLED, max_tokens=1024, tools=[TOOL])),
    case("AN-19", body(thinking=ENABLED, tools=[TOOL], tool_choice={"type": "any"}), "tool_choice",
         body(thinking=ENABLED, tools=[TOOL], tool_choice={"type": "auto"})),
    case("AN-19", body(thinking=ENABLED, temperature=0), "temperature",
         body(thinking=ENABLED, temperature=1)),
    case("AN-19", body(thinking=ENABLED, top_k=5), "top_k", body(thinking=ENABLED)),
    case("AN-19", body(thinking=ENABLED, model="claude-opus-4-7"), "thinking.type",
         body(thinking=ENABLED, model="claude-opus-4-6")),
    case("AN-19", body(thinking={"type": "disabled"}, model="claude-fable-5"), "thinking.type",
         body(thinking={"type": "disabled"}, model="claude-opus-5")),
    case("AN-19", body(thinking={"type": "adaptive"}), "thinking.type",
         body(thinking={"type": "adaptive"}, model="claude-sonnet-4-6")),
    case("AN-20", body(ASK, assistant({"type": "thinking", "thinking": "Hm."}), ASK),
         "messages.1.content.0.signature", body(ASK, assistant(thinking()), ASK)),
    case("AN-20", body(ASK, assistant(thinking(None)), ASK), "messages.1.content.0.signature",
         body(ASK, assistant(thinking()), ASK)),
    case("AN-20", body(ASK, assistant(thinking("", "")), ASK), "messages.1.content.0",
         body(ASK, assistant(thinking("c2ln", "")), ASK)),
    case("AN-20", body(ASK, assistant(thinking("")), ASK), "messages.1.content.0", body(ASK, assistant(thinking()), ASK)),
    case("AN-21", body(temperature=1.5), "temperature", body(temperature=1)),
    case("AN-21", body(temperature="0"), "temperature", body(temperature=0)),
    case("AN-21", body(top_p=1.01), "top_p", body(top_p=-1)),
    case("AN-21", body(top_k=-2), "top_k", body(top_k=0)),
    case("AN-21", body(temperature=0.5, model="claude-sonnet-5"), "temperature",
         body(temperature=1.0, top_p=0.99, model="claude-sonnet-5")),
    case("AN-21", body(top_k=5, model="claude-opus-4-7"), "top_k",
         body(top_k=5, model="claude-opus-4-6")),
    case("AN-22", body(stop_sequences=["\n"]), "stop_sequences.0",
         body(stop_sequences=["\nEND"])),
    case("AN-22", body(stop_sequences="END"), "stop_sequences", body(stop_sequences=[])),
    case("AN-22", body(stop_sequences=["a", 1]), "stop_sequences.1",
         body(stop_sequences=["a", "1"])),
    case("AN-23", body(metadata={"user": "u"}), "metadata.user",
         body(metadata={"user_id": "u"})),
    case("AN-23", body(metadata={"user_id": "u" * 513}), "metadata.user_id",
         body(metadata={"user_id": "u" * 512})),
    case("AN-23", body(metadata={"user_id": 1}), "metadata.user_id",
         body(metadata={"user_id": None})),
    case("AN-23", body(metadata=1), "metadata", body(metadata={})),
    case("AN-24", body(user(image(type="base64", media_type="image/bmp", data="Qk0="))),
         "messages.0.content.0.source.media_type",
         body(user(image(type="base64", media_type="image/png", data="iVBORw0=")))),
    case("AN-24",
         body(user(image(type="base64", media_type="image/png", data="data:image/png;base64,iVBORw0="))),
         "messages.0.content.0.source.data",
         body(user(image(type="url", url="https://example.com/a.png")))),
    case("AN-24", body(user(image(type="base64", data="iVBORw0="))), "messages.0.content.0.source.media_type",
         body(user(image(type="file", file_id="file_1")))),
    case("AN-24", body(user({"type": "image", "source": "a.png"})), "messages.0.content.0.source",
         body(user(image(type="url", url="https://example.com/a.png")))),
    case("AN-24", body(user(image(type="url", url=5))), "messages.0.content.0.source.url",
         body(user(image(type="url", url="https://example.com/a.png")))),
    case("AN-24", body(user(image(type="blob"))), "messages.0.content.0.source",
         body(user(image(type="file", file_id="file_1")))),
    case("AN-24", body(user({"type": "document", "source": {**PDF, "media_type": "text/html"}})),
         "messages.0.content.0.source.media_type", body(user(DOCUMENT))),
    case("AN-24",
         {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [user(image(type="url",
            url="https://example.com/a.png"))]}, "messages.0.content.0.source",
         {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [ASK]}),
    case("AN-25", body(ASK, assistant(search_result(), text()), ASK), "messages.1.content.0",
         body(ASK, assistant(search(), search_result(), text()), ASK)),
    case("AN-25", body(ASK, assistant(search("toolu_1"), text()), ASK), "messages.1.content.0.id",
         body(ASK, assistant(search(), text()), ASK)),
    case("AN-26", body(system={"text": "Be brief."}), "system", body(system="Be brief.")),
    case("AN-26", body(system=[text("")]), "system.0.text",
         body(system=[text("Be brief.")])),
    case("AN-26", body(system=[DOCUMENT]), "system.0", body(system=[])),
    case("AN-27", body(n=1), "n", body()),
    case("AN-27", body(anthropic_version="vertex-2023-10-16"), "anthropic_version",
         {"anthropic_version": "vertex-2023-10-16", "max_tokens": 9, "messages": [ASK]}),
    case("AN-28", body(temperature=1), "temperature", body(), NEW),
    case("AN-28", body(top_k=5), "top_k", body(), NEW),
    case("AN-28", body(ASK, assistant(DOCUMENT), ASK), "messages.1.content.0",
         body(user(DOCUMENT), assistant(text()), ASK), NEW),
    case("AN-28", body(user(text("a", citations=[CITATION]))), "messages.0.content.0.citations",
         body(user(text("a", citations=[])), assistant(text("b", citations=[CITATION])), ASK),
         NEW),
    case("AN-29", body(ASK, assistant(call(), text()), user(result())), "messages.1",
         body(ASK, assistant(text(), call()), user(result()))),
    case("AN-29", body(ASK, assistant(call()), {"role": "assistant", "content": "Wait."}, user(result())),
         "messages.1", body(ASK, assistant(call(), search()), user(result()))),
    case("AN-30", body(*ROUND, thinking=ENABLED, tools=[TOOL]), "messages.1.content.0.type",
         body(ASK, assistant(thinking(), call()), user(result()), thinking=ENABLED, tools=[TOOL])),
    case("AN-30",
         body(*ROUND, assistant(text(), call("b")), user(result("b")), thinking=ENABLED, tools=[TOOL]),
         "messages.3.content.0.type",
         body(*ROUND, assistant(text()), ASK, thinking=ENABLED, tools=[TOOL])),
    case("AN-31", body(temperature=0.5, top_p=0.5), "top_p", body(temperature=0.5)),
    case("AN-31", body(temperature=0, top_p=1, model="claude-opus-4-1"), "top_p",
         body(temperature=0, top_p=1, model="claude-sonnet-4-0")),
    case("AN-19", body(thinking={"type": "enabled", "budget_tokens": 1024}, model="claude-3-5-haiku-latest"),
         "thinking.type", body(thinking={"type": "disabled"}, model="claude-3-5-haiku-latest")),
    case("AN-19", body(ASK, assistant(text()), thinking=ENABLED), "messages.1.content.0.type", body(ASK, assistant(text()))),
    case("AN-32", body(output_config={"effort": "low"}), "output_config.effort",
         body(output_config={"effort": "low"}, model="claude-opus-4-5")),
    case("AN-32", body(output_config={"effort": "max"}, thinking={"type": "disabled"}, model="claude-opus-5"),
         "output_config.effort",
         body(output_config={"effort": "max"}, model="claude-opus-5")),
    case("AN-32", body(output_config=output({"type": "object"})), "output_config.format.schema",
         body(output_config=output(OBJECT))),
    case("AN-32", body(output_config=output({**OBJECT, "properties": {"a": {"type": "array", "minItems": 2}}})),
         "output_config.format.schema",
         body(output_config=output({**OBJECT, "properties": {"a": {"type": "array", "minItems": 1}}}))),
    case("AN-32", body(output_config=output(OBJECT), model="claude-3-haiku-20240307"), "output_config.format",
         body(output_config=output(OBJECT))),
    case("AN-16", body(tools=strict(1, {**OBJECT, "properties": {"n": {"type": "integer", "maximum": 3}}})),
         "tools.0.custom", body(tools=strict(1, OBJECT))),
    case("AN-16", body(tools=strict(1, OBJECT), model="claude-sonnet-4-0"), "tools.0.strict", body(tools=strict(1, OBJECT))),
    case("AN-01", {**body(model="claude-opus-4-1"), "max_tokens": 32_001}, "max_tokens",
         {**body(model="claude-opus-4-1"), "max_tokens": 32_000}),
    case("AN-32", body(output_config={"effort": "huge"}), "output_config.effort",
         body(output_config={"effort": "max"}, model="claude-opus-4-6")),
    case("AN-32", body(output_format="json"), "output_format", body(output_format=None)),
    case("AN-32", body(output_config=[1]), "output_config", body(output_config={})),
    case("AN-32", body(output_config={"verbosity": 1}), "output_config.verbosity",
         body(output_config={})),
    case("AN-32", body(output_config={"effort": "xhigh"}, model="claude-opus-4-6"), "output_config.effort",
         body(output_config={"effort": "xhigh"}, model="claude-opus-4-7")),
    case("AN-32", body(output_format={"type": "json_schema", "json_schema": {}}), "output_format.schema",
         body(output_format={"type": "json_schema", "schema": OBJECT})),
    case("AN-32", body(output_config={"format": {"type": "json_object", "schema": OBJECT}}),
         "output_config.format.type", body(output_config=output(OBJECT))),
    case("AN-32",
         body(output_config=output({**OBJECT, "properties": {"n": {"type": "integer",
            "minimum": 0}}})), "output_config.format.schema",
         body(output_config=output({**OBJECT, "properties": {"minimum": {"type": "integer"}}}))),
    case("AN-32", body(user({**DOCUMENT, "citations": {"enabled": True}}), output_config=output(OBJECT)),
         "output_config.format",
         body(user({**DOCUMENT, "citations": {"enabled": False}}), output_config=output(OBJECT))),
    case("AN-32", body(user({**DOCUMENT, "citations": {"enabled": True}}), output_format=output(OBJECT)["format"]),
         "output_format", body(output_format=output(OBJECT)["format"])),
    case("AN-33", body(tools=tools({"defer_loading": True})), "tools",
         body(tools=tools({"defer_loading": True}, {"name": "b"}))),
]

ADVICE = [
    case("AN-01", {"max_tokens": 9, "messages": [ASK]}, "model", body()),
    case("AN-03", body(ASK, system(), model="claude-sonnet-5"), "messages.1",
         body(model="claude-sonnet-5")),
    case("AN-31", body(*ROUND), "messages.1", body(*ROUND, tools=[TOOL])),
]
# fmt: on

WORDS = "user assistant system text tool_use tool_result thinking image document type id input name content source"
"""Names of the format, for arbitrary bodies."""
OPTIONS = [WriteOptions(version=version) for version in ("2023-06-01", NEW)]
