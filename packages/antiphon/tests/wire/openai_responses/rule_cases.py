"""Each rule of Responses: a body that breaks it, and the nearest body that does not."""

from __future__ import annotations

from typing import Any

from support.rule_cases import Case

USER: dict[str, Any] = {"role": "user", "content": "hi"}
PART = "input[0].content[0]"
PDF = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False}


def ask(*items: Any, **parameters: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "input": list(items) or [USER], **parameters}


def call(call_id: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **fields}


def result(call_id: Any = "c1", output: Any = "seen", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **fields}


def custom(call_id: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "look", "input": "x", **fields}


def user_item(*content: Any, role: Any = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content), **fields}


def text(kind: str = "input_text", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "text": "a", **fields}


def thinks(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], **fields}


def tool(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": "look", **fields}


def chosen(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def wanted(**fields: Any) -> dict[str, Any]:
    return ask(text={"format": {"type": "json_schema", "name": "answer", "schema": CLOSED, **fields}})


# fmt: off
CASES = [
    Case("OR-01", "", None, ask()),
    Case("OR-01", "model", ask(model=[]), ask()),
    Case("OR-01", "input",
         {"model": "gpt-4o", "instructions": "be kind"}, ask(instructions="be kind")),
    Case("OR-01", "input", ask(input=[]), ask(input=[], previous_response_id="resp_1")),
    Case("OR-01", "input", ask(input=""), ask(input="hi")),
    Case("OR-01", "input",
         ask(input={}), ask(input=None, prompt={"id": "p"})),
    Case("OR-02", "input[0].role",
         ask({**USER, "role": "tool"}), ask({**USER, "role": "developer"})),
    Case("OR-02", "input[0].role", ask({"content": "hi"}), ask()),
    Case("OR-02", "input[0].type",
         ask({"type": "tool_result"}), ask({**USER, "type": "message"})),
    Case("OR-02", "input[0]", ask("hi"), ask()),
    Case("OR-03", "input[1].content[0]",
         ask(USER, user_item(text(), role="assistant")), ask(USER, user_item(text("output_text"), role="assistant"))),
    Case("OR-03", PART,
         ask(user_item({"type": "image_url"})), ask(user_item({"type": "input_image"}))),
    Case("OR-03", f"{PART}.image_url",
         ask(user_item({"type": "input_image", "image_url": {"url": "https://a"}})),
         ask(user_item({"type": "input_image", "image_url": "https://a"}))),
    Case("OR-03", f"{PART}.type", ask(user_item({"text": "a"})), ask(user_item(text()))),
    Case("OR-03", f"{PART}.text", ask(user_item({"type": "input_text"})), ask(user_item(text()))),
    Case("OR-03", PART, ask(user_item("a")), ask(user_item(text()))),
    Case("OR-03", "input[0].content", ask({"role": "user"}), ask()),
    Case("OR-03", "input[0].content", ask({**USER, "content": 1}), ask({**USER, "content": ""})),
    Case("OR-04", "input[0].name", ask(call(name=None), result()), ask(call(), result())),
    Case("OR-04", "input[0].name",
         ask(call(name="a.b"), result()), ask(call(name="a-b"), result())),
    Case("OR-04", "input[0].arguments",
         ask(call(arguments={}), result()), ask(call(arguments=""), result())),
    Case("OR-04", "input[0].call_id", ask(call(None)), ask(call(), result())),
    Case("OR-04", "input[0].input",
         ask(custom(input=None), result(type="custom_tool_call_output")),
         ask(custom(), result(type="custom_tool_call_output"))),
    Case("OR-05", "input[1].output", ask(call(), result(output=None)), ask(call(), result(output=""))),
    Case("OR-05", "input[1].output",
         ask(call(), result(output={})), ask(call(), result(output=[text()]))),
    Case("OR-05", "input[1].call_id", ask(USER, result(None)), ask(call(), result())),
    Case("OR-05", "input[1].output[0]",
         ask(call(), result(output=[text("output_text")])), ask(call(), result(output=[text()]))),
    Case("OR-05", f"{PART}.file_data",
         ask(user_item({**PDF, "file_data": "data:audio/mpeg;base64,AA=="})), ask(user_item(PDF))),
    Case("OR-05", f"{PART}.file_data",
         ask(user_item({**PDF, "file_data": "JVBERi0="})), ask(user_item(PDF))),
    Case("OR-05", f"{PART}.filename", ask(user_item({**PDF, "filename": None})), ask(user_item(PDF))),
    Case("OR-05", f"{PART}.file_url",
         ask(user_item({"type": "input_file", "file_url": "https://a.example/b.mp3"})),
         ask(user_item({"type": "input_file", "file_url": "https://a.example/b.pdf"}))),
    Case("OR-05", f"{PART}.file_data", ask(user_item({**PDF, "file_data": 1})), ask(user_item(PDF))),
    Case("OR-06", "input[1].call_id",
         ask(USER, call()), ask(USER, call(), result())),
    Case("OR-06", "input[0].call_id",
         ask(custom()), ask(custom(), result(type="custom_tool_call_output"))),
    Case("OR-07", "input[1].call_id",
         ask(USER, result()), ask(USER, result(), previous_response_id="resp_1")),
    Case("OR-07", "input[2].call_id",
         ask(call(), result(), result("c2")), ask(call(), result(), {"type": "item_reference", "id": "fc_2"}, result("c2"))),
    Case("OR-08", "input[0].call_id",
         ask(result("c" * 65), conversation="conv_1"), ask(result("c" * 64), conversation="conv_1")),
    Case("OR-08", "input[0].call_id",
         ask(result(""), conversation="conv_1"), ask(result("c"), conversation="conv_1")),
    Case("OR-09", "input[0].id",
         ask(call(id="call_1"), result()), ask(call(id="fc_1"), result(id=None))),
    Case("OR-09", "input[0].id", ask({**USER, "id": "1"}), ask({**USER, "id": "msg_1"})),
    Case("OR-09", "input[0].id", ask(thinks(id="1")), ask(thinks(id="rs_1"))),
    Case("OR-09", "input[0].id", ask({**USER, "id": ""}), ask(USER)),
    Case("OR-09", "input[0].id", ask({**USER, "id": 1}), ask({**USER, "id": None})),
    Case("OR-09", "input[0].id", ask({**USER, "id": "msg" * 21 + "_1"}), ask({**USER, "id": "msg" * 21 + "_"})),
    Case("OR-09", "input[0].id", ask({"type": "item_reference"}), ask({"type": "item_reference", "id": "msg_1"})),
    Case("OR-10", "input[1].id",
         ask({**USER, "id": "msg_1"}, {**USER, "id": "msg_1"}), ask({**USER, "id": "msg_1"}, {**USER, "id": "msg_2"})),
    Case("OR-11", "input[0].summary", ask({"type": "reasoning"}), ask(thinks())),
    Case("OR-12", "tools", ask(tools={}), ask(tools=[])),
    Case("OR-12", "tools[0].name",
         ask(tools=[{"type": "function", "function": tool()}]), ask(tools=[tool()])),
    Case("OR-12", "tools[0].type", ask(tools=[{"name": "look"}]), ask(tools=[tool()])),
    Case("OR-12", "tools[0].name", ask(tools=[tool(name="a" * 129)]), ask(tools=[tool(name="a" * 128)])),
    Case("OR-12", "tools[0].parameters",
         ask(tools=[tool(parameters="")]), ask(tools=[tool(parameters=None)])),
    Case("OR-12", "tools[0].tools[0].name",
         ask(tools=[{"type": "namespace", "name": "n", "tools": [tool(name=None)]}]),
         ask(tools=[{"type": "namespace", "name": "n", "tools": [tool()]}])),
    Case("OR-12", "tools[0]", ask(tools=["look"]), ask(tools=[tool()])),
    Case("OR-12", "tools[0].name", ask(tools=[{"type": "custom"}]), ask(tools=[{"type": "custom", "name": "a"}])),
    Case("OR-13", "tool_choice",
         ask(tools=[tool()], tool_choice=chosen("leap")), ask(tools=[tool()], tool_choice=chosen("look"))),
    Case("OR-13", "tool_choice",
         ask(tools=[tool()], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [chosen("leap")]}),
         ask(tools=[tool()], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [chosen("look")]})),
    Case("OR-13", "tool_choice.name",
         ask(tools=[tool()], tool_choice={"type": "function", "function": {"name": "look"}}),
         ask(tools=[tool()], tool_choice={"type": "web_search"})),
    Case("OR-13", "tool_choice",
         ask(tools=[tool()], tool_choice="any"), ask(tool_choice="auto")),
    Case("OR-13", "tool_choice.type", ask(tools=[tool()], tool_choice={}), ask(tools=[tool()], tool_choice=None)),
    Case("OR-13", "tool_choice.tools",
         ask(tool_choice={"type": "allowed_tools"}), ask(tool_choice={"type": "allowed_tools", "tools": []})),
    Case("OR-14", "max_output_tokens",
         ask(max_output_tokens=1), ask(max_output_tokens=16)),
    Case("OR-15", "temperature", ask(temperature=-1), ask(temperature=0)),
    Case("OR-15", "top_p", ask(top_p="1"), ask(top_p=1)),
    Case("OR-15", "metadata",
         ask(metadata={f"k{n}": "" for n in range(17)}), ask(metadata={"k": ""})),
    Case("OR-15", "reasoning.effort",
         ask(model="o4-mini", reasoning={"effort": "minimal"}), ask(model="gpt-5", reasoning={"effort": "minimal"})),
    Case("OR-15", "parallel_tool_calls",
         ask(model="o3-mini", parallel_tool_calls=True), ask(parallel_tool_calls=True)),
    Case("OR-15", "include",
         ask(model="gpt-5", include=["message.output_text.logprobs"]), ask(include=["message.output_text.logprobs"])),
    Case("OR-16", "previous_response_id",
         ask(previous_response_id="r1"), ask(previous_response_id="resp_1")),
    Case("OR-16", "previous_response_id",
         ask(previous_response_id="resp_1", conversation="conv_1"), ask(conversation="conv_1")),
    Case("OR-16", "previous_response_id",
         ask(previous_response_id=1), ask(previous_response_id=None)),
    Case("OR-17", "input",
         ask(text={"format": {"type": "json_object"}}, instructions="json"),
         ask({**USER, "content": "in JSON"}, text={"format": {"type": "json_object"}})),
    Case("OR-17", "text.format.name", wanted(name=None), wanted()),
    Case("OR-17", "text.format.schema", wanted(schema=None), wanted()),
    Case("OR-17", "text.format.type",
         ask(text={"format": {"type": "xml"}}), ask(text={"format": None})),
    Case("OR-17", "text", ask(text="json"), ask(text={})),
    Case("OR-17", "text.format", ask(text={"format": "json"}), ask(text={"format": {"type": "text"}})),
    Case("OR-18", "max_tokens",
         ask(max_tokens=99), ask(max_output_tokens=99)),
    Case("OR-18", "seed", ask(seed=1), ask(top_logprobs=1)),
    Case("OR-18", "stream_options.include_usage",
         ask(stream_options={"include_usage": True}), ask(stream_options={})),
    Case("OR-19", f"{PART}.cache_control",
         ask(user_item(text(cache_control={}))), ask(user_item(text(prompt_cache_breakpoint={})))),
    Case("OR-19", "input[0].tool_calls", ask({**USER, "tool_calls": []}), ask(USER)),
    Case("OR-20", "tools[0].parameters",
         ask(tools=[tool(strict=True, parameters=OPEN)]), ask(tools=[tool(strict=None, parameters=OPEN)])),
    Case("OR-20", "text.format.schema",
         wanted(strict=True, schema={"type": "object"}),
         wanted(strict=True)),
]

# fmt: off
ADVICE = [
    Case("OR-01", "model", {"input": "hi"}, ask()),
    Case("OR-06", "input[2].call_id",
         ask(call(), USER, result()), ask(call(), result(), USER)),
    Case("OR-07", "input[1].call_id", ask(result(), call()), ask(call(), result())),
    Case("OR-12", "tools[0].name", ask(tools=[tool(name="a" * 65)]), ask(tools=[tool(name="a" * 64)])),
    Case("OR-18", "client_metadata", ask(client_metadata={}), ask(metadata={})),
    Case("OR-19", "input[0].name",
         ask({**USER, "name": "a"}), ask({**USER, "status": "completed"})),
    Case("OR-21", "input[0]",
         ask(thinks(id="rs_1"), call(), result()), ask(thinks(id="rs_1"), call(id="fc_1"), result())),
    Case("OR-22", "input[0].id",
         ask(thinks(id="rs_1"), store=False), ask(thinks(id="rs_1", encrypted_content="gAAA"), store=False)),
    Case("OR-23", PART, ask(user_item(text("output_text"))), ask(user_item(text()))),
    Case("OR-23", "input[1].call_id",
         ask(call(), call(), result()), ask(call(), result())),
    Case("OR-23", "input[2].call_id",
         ask(call(), result(), result()), ask(call(), result())),
]
# fmt: on

WORDS = "role content type text call_id id name output message tools c1"
"""Names of the format, for arbitrary bodies."""
