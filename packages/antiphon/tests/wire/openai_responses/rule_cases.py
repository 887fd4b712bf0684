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
    Case("OR-01", "", "expected an object, but got null", None, ask()),
    Case("OR-01", "model", "expected a string, but got an array", ask(model=[]), ask()),
    Case("OR-01", "input", "must be provided",
         {"model": "gpt-4o", "instructions": "be kind"}, ask(instructions="be kind")),
    Case("OR-01", "input", "must be provided", ask(input=[]), ask(input=[], previous_response_id="resp_1")),
    Case("OR-01", "input", "must be provided", ask(input=""), ask(input="hi")),
    Case("OR-01", "input", "one of a string or array of objects, but got an object",
         ask(input={}), ask(input=None, prompt={"id": "p"})),
    Case("OR-02", "input[0].role", "Invalid value: 'tool'.",
         ask({**USER, "role": "tool"}), ask({**USER, "role": "developer"})),
    Case("OR-02", "input[0].role", "Missing", ask({"content": "hi"}), ask()),
    Case("OR-02", "input[0].type", "Invalid value: 'tool_result'.",
         ask({"type": "tool_result"}), ask({**USER, "type": "message"})),
    Case("OR-02", "input[0]", "expected an object, but got a string", ask("hi"), ask()),
    Case("OR-03", "input[1].content[0]", "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
         ask(USER, user_item(text(), role="assistant")), ask(USER, user_item(text("output_text"), role="assistant"))),
    Case("OR-03", PART, "Invalid value: 'image_url'.",
         ask(user_item({"type": "image_url"})), ask(user_item({"type": "input_image"}))),
    Case("OR-03", f"{PART}.image_url", "expected a string, but got an object",
         ask(user_item({"type": "input_image", "image_url": {"url": "https://a"}})),
         ask(user_item({"type": "input_image", "image_url": "https://a"}))),
    Case("OR-03", f"{PART}.type", "Missing", ask(user_item({"text": "a"})), ask(user_item(text()))),
    Case("OR-03", f"{PART}.text", "Missing", ask(user_item({"type": "input_text"})), ask(user_item(text()))),
    Case("OR-03", PART, "expected an object", ask(user_item("a")), ask(user_item(text()))),
    Case("OR-03", "input[0].content", "Missing", ask({"role": "user"}), ask()),
    Case("OR-03", "input[0].content", "but got an integer", ask({**USER, "content": 1}), ask({**USER, "content": ""})),
    Case("OR-04", "input[0].name", "Missing", ask(call(name=None), result()), ask(call(), result())),
    Case("OR-04", "input[0].name", "does not match pattern",
         ask(call(name="a.b"), result()), ask(call(name="a-b"), result())),
    Case("OR-04", "input[0].arguments", "but got an object",
         ask(call(arguments={}), result()), ask(call(arguments=""), result())),
    Case("OR-04", "input[0].call_id", "Missing", ask(call(None)), ask(call(), result())),
    Case("OR-04", "input[0].input", "Missing",
         ask(custom(input=None), result(type="custom_tool_call_output")),
         ask(custom(), result(type="custom_tool_call_output"))),
    Case("OR-05", "input[1].output", "Missing", ask(call(), result(output=None)), ask(call(), result(output=""))),
    Case("OR-05", "input[1].output", "but got an object",
         ask(call(), result(output={})), ask(call(), result(output=[text()]))),
    Case("OR-05", "input[1].call_id", "Missing", ask(USER, result(None)), ask(call(), result())),
    Case("OR-05", "input[1].output[0]", "Invalid value: 'output_text'.",
         ask(call(), result(output=[text("output_text")])), ask(call(), result(output=[text()]))),
    Case("OR-05", f"{PART}.file_data", f"Invalid file data: '{PART}.file_data'. Expected a base64-encoded data URL",
         ask(user_item({**PDF, "file_data": "data:audio/mpeg;base64,AA=="})), ask(user_item(PDF))),
    Case("OR-05", f"{PART}.file_data", "without the 'data:' prefix",
         ask(user_item({**PDF, "file_data": "JVBERi0="})), ask(user_item(PDF))),
    Case("OR-05", f"{PART}.filename", "Missing", ask(user_item({**PDF, "filename": None})), ask(user_item(PDF))),
    Case("OR-05", f"{PART}.file_url", "The file type you uploaded is not supported.",
         ask(user_item({"type": "input_file", "file_url": "https://a.example/b.mp3"})),
         ask(user_item({"type": "input_file", "file_url": "https://a.example/b.pdf"}))),
    Case("OR-05", f"{PART}.file_data", "expected a string", ask(user_item({**PDF, "file_data": 1})), ask(user_item(PDF))),
    Case("OR-06", "input[1].call_id", "No tool output found for function call c1.",
         ask(USER, call()), ask(USER, call(), result())),
    Case("OR-06", "input[0].call_id", "for custom tool call c1.",
         ask(custom()), ask(custom(), result(type="custom_tool_call_output"))),
    Case("OR-07", "input[1].call_id", "No tool call found for function call output with call_id c1.",
         ask(USER, result()), ask(USER, result(), previous_response_id="resp_1")),
    Case("OR-07", "input[2].call_id", "with call_id c2.",
         ask(call(), result(), result("c2")), ask(call(), result(), {"type": "item_reference", "id": "fc_2"}, result("c2"))),
    Case("OR-08", "input[0].call_id", "maximum length 64, but got a string with length 65",
         ask(result("c" * 65), conversation="conv_1"), ask(result("c" * 64), conversation="conv_1")),
    Case("OR-08", "input[0].call_id", "empty string",
         ask(result(""), conversation="conv_1"), ask(result("c"), conversation="conv_1")),
    Case("OR-09", "input[0].id", "Invalid 'input[0].id': 'call_1'. Expected an ID that begins with 'fc'.",
         ask(call(id="call_1"), result()), ask(call(id="fc_1"), result(id=None))),
    Case("OR-09", "input[0].id", "begins with 'msg'.", ask({**USER, "id": "1"}), ask({**USER, "id": "msg_1"})),
    Case("OR-09", "input[0].id", "begins with 'rs'.", ask(thinks(id="1")), ask(thinks(id="rs_1"))),
    Case("OR-09", "input[0].id", "letters, numbers, underscores, or dashes", ask({**USER, "id": ""}), ask(USER)),
    Case("OR-09", "input[0].id", "expected a string", ask({**USER, "id": 1}), ask({**USER, "id": None})),
    Case("OR-09", "input[0].id", "length 65", ask({**USER, "id": "msg" * 21 + "_1"}), ask({**USER, "id": "msg" * 21 + "_"})),
    Case("OR-09", "input[0].id", "Missing", ask({"type": "item_reference"}), ask({"type": "item_reference", "id": "msg_1"})),
    Case("OR-10", "input[1].id", "Duplicate item found with id msg_1.",
         ask({**USER, "id": "msg_1"}, {**USER, "id": "msg_1"}), ask({**USER, "id": "msg_1"}, {**USER, "id": "msg_2"})),
    Case("OR-11", "input[0].summary", "Missing", ask({"type": "reasoning"}), ask(thinks())),
    Case("OR-12", "tools", "expected an array of objects", ask(tools={}), ask(tools=[])),
    Case("OR-12", "tools[0].name", "Missing",
         ask(tools=[{"type": "function", "function": tool()}]), ask(tools=[tool()])),
    Case("OR-12", "tools[0].type", "Missing", ask(tools=[{"name": "look"}]), ask(tools=[tool()])),
    Case("OR-12", "tools[0].name", "length 129", ask(tools=[tool(name="a" * 129)]), ask(tools=[tool(name="a" * 128)])),
    Case("OR-12", "tools[0].parameters", "expected an object",
         ask(tools=[tool(parameters="")]), ask(tools=[tool(parameters=None)])),
    Case("OR-12", "tools[0].tools[0].name", "Missing",
         ask(tools=[{"type": "namespace", "name": "n", "tools": [tool(name=None)]}]),
         ask(tools=[{"type": "namespace", "name": "n", "tools": [tool()]}])),
    Case("OR-12", "tools[0]", "expected an object", ask(tools=["look"]), ask(tools=[tool()])),
    Case("OR-12", "tools[0].name", "Missing", ask(tools=[{"type": "custom"}]), ask(tools=[{"type": "custom", "name": "a"}])),
    Case("OR-13", "tool_choice", "Tool choice 'leap' not found in 'tools' parameter.",
         ask(tools=[tool()], tool_choice=chosen("leap")), ask(tools=[tool()], tool_choice=chosen("look"))),
    Case("OR-13", "tool_choice", "Tool choice 'leap'",
         ask(tools=[tool()], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [chosen("leap")]}),
         ask(tools=[tool()], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [chosen("look")]})),
    Case("OR-13", "tool_choice.name", "Missing",
         ask(tools=[tool()], tool_choice={"type": "function", "function": {"name": "look"}}),
         ask(tools=[tool()], tool_choice={"type": "web_search"})),
    Case("OR-13", "tool_choice", "Invalid value: 'any'.",
         ask(tools=[tool()], tool_choice="any"), ask(tool_choice="auto")),
    Case("OR-13", "tool_choice.type", "Missing", ask(tools=[tool()], tool_choice={}), ask(tools=[tool()], tool_choice=None)),
    Case("OR-13", "tool_choice.tools", "Missing",
         ask(tool_choice={"type": "allowed_tools"}), ask(tool_choice={"type": "allowed_tools", "tools": []})),
    Case("OR-14", "max_output_tokens", "Expected a value >= 16, but got 1 instead.",
         ask(max_output_tokens=1), ask(max_output_tokens=16)),
    Case("OR-15", "temperature", "Expected a value >= 0, but got -1 instead.", ask(temperature=-1), ask(temperature=0)),
    Case("OR-15", "top_p", "expected a decimal, but got a string", ask(top_p="1"), ask(top_p=1)),
    Case("OR-15", "metadata", "at most 16 properties",
         ask(metadata={f"k{n}": "" for n in range(17)}), ask(metadata={"k": ""})),
    Case("OR-15", "reasoning.effort", "Unsupported value: 'minimal' is not supported with the 'o4-mini' model.",
         ask(model="o4-mini", reasoning={"effort": "minimal"}), ask(model="gpt-5", reasoning={"effort": "minimal"})),
    Case("OR-16", "previous_response_id", "Expected an ID that begins with 'resp'.",
         ask(previous_response_id="r1"), ask(previous_response_id="resp_1")),
    Case("OR-16", "previous_response_id", "Mutually exclusive",
         ask(previous_response_id="resp_1", conversation="conv_1"), ask(conversation="conv_1")),
    Case("OR-16", "previous_response_id", "expected a string",
         ask(previous_response_id=1), ask(previous_response_id=None)),
    Case("OR-17", "input", "Response input messages must contain the word 'json' in some form",
         ask(text={"format": {"type": "json_object"}}, instructions="json"),
         ask({**USER, "content": "in JSON"}, text={"format": {"type": "json_object"}})),
    Case("OR-17", "text.format.name", "Missing", wanted(name=None), wanted()),
    Case("OR-17", "text.format.schema", "Missing", wanted(schema=None), wanted()),
    Case("OR-17", "text.format.type", "'json_schema', and 'text'",
         ask(text={"format": {"type": "xml"}}), ask(text={"format": None})),
    Case("OR-17", "text", "expected an object", ask(text="json"), ask(text={})),
    Case("OR-17", "text.format", "expected an object", ask(text={"format": "json"}), ask(text={"format": {"type": "text"}})),
    Case("OR-18", "max_tokens", "this parameter has moved to 'max_output_tokens'.",
         ask(max_tokens=99), ask(max_output_tokens=99)),
    Case("OR-18", "seed", "Unknown parameter: 'seed'.", ask(seed=1), ask(top_logprobs=1)),
    Case("OR-18", "stream_options.include_usage", "Unknown",
         ask(stream_options={"include_usage": True}), ask(stream_options={})),
    Case("OR-19", f"{PART}.cache_control", f"Unknown parameter: '{PART}.cache_control'",
         ask(user_item(text(cache_control={}))), ask(user_item(text(prompt_cache_breakpoint={})))),
    Case("OR-19", "input[0].tool_calls", "Unknown parameter", ask({**USER, "tool_calls": []}), ask(USER)),
    Case("OR-20", "tools[0].parameters", "In context=(), 'required' is required to be supplied",
         ask(tools=[tool(strict=True, parameters=OPEN)]), ask(tools=[tool(strict=None, parameters=OPEN)])),
    Case("OR-20", "text.format.schema", "Invalid schema for response_format 'answer': In context=(), 'additionalProperties'",
         wanted(strict=True, schema={"type": "object"}),
         wanted(strict=True)),
]

# fmt: off
ADVICE = [
    Case("OR-01", "model", "you must provide a model parameter", {"input": "hi"}, ask()),
    Case("OR-06", "input[2].call_id", "No tool output found for tool call c1.",
         ask(call(), USER, result()), ask(call(), result(), USER)),
    Case("OR-07", "input[1].call_id", "No tool call found", ask(result(), call()), ask(call(), result())),
    Case("OR-12", "tools[0].name", "length 65", ask(tools=[tool(name="a" * 65)]), ask(tools=[tool(name="a" * 64)])),
    Case("OR-18", "client_metadata", "Unknown parameter", ask(client_metadata={}), ask(metadata={})),
    Case("OR-19", "input[0].name", "Unknown parameter: 'input[0].name'.",
         ask({**USER, "name": "a"}), ask({**USER, "status": "completed"})),
    Case("OR-21", "input[0]", "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
         ask(thinks(id="rs_1"), call(), result()), ask(thinks(id="rs_1"), call(id="fc_1"), result())),
    Case("OR-22", "input[0].id", "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
         ask(thinks(id="rs_1"), store=False), ask(thinks(id="rs_1", encrypted_content="gAAA"), store=False)),
    Case("OR-23", PART, "Invalid value: 'output_text'.", ask(user_item(text("output_text"))), ask(user_item(text()))),
    Case("OR-23", "input[1].call_id", "Duplicate value for 'call_id' of 'c1'.",
         ask(call(), call(), result()), ask(call(), result())),
    Case("OR-23", "input[2].call_id", "Duplicate value for 'call_id' of 'c1'.",
         ask(call(), result(), result()), ask(call(), result())),
]
# fmt: on

WORDS = "role content type text call_id id name output message tools c1"
"""Names of the format, for arbitrary bodies."""
