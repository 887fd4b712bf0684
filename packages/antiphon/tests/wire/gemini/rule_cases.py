"""Each rule of generateContent: a body that breaks it, and the nearest body that does not."""

from __future__ import annotations

from typing import Any

from antiphon.wire.format import WriteOptions
from support.rule_cases import Case


def content(role: str | None, *parts: Any) -> dict[str, Any]:
    return {"parts": list(parts)} if role is None else {"role": role, "parts": list(parts)}


def user(*parts: Any) -> dict[str, Any]:
    return content("user", *parts)


def model(*parts: Any) -> dict[str, Any]:
    return content("model", *parts)


def text(words: Any = "Is it raining in Oslo?") -> dict[str, Any]:
    return {"text": words}


def call(name: Any = "weather", signature: str = "", **fields: Any) -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, "args": {"city": "Oslo"}, **fields}, **signed}


def response(name: Any = "weather", **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "rain"}, **fields}}


ASK = user(text())
ROUND = (ASK, model(call()), user(response()))
FUNCTIONS = [{"functionDeclarations": [{"name": "weather"}]}]


def body(*contents: Any, **parameters: Any) -> dict[str, Any]:
    return {"contents": list(contents) or [ASK], **parameters}


def declared(*declarations: Any) -> dict[str, Any]:
    return body(tools=[{"functionDeclarations": list(declarations)}])


def schema(**keywords: Any) -> dict[str, Any]:
    return declared({"name": "weather", "parameters": {"type": "OBJECT", "properties": {"a": keywords}}})


def calling(tools: Any = FUNCTIONS, **config: Any) -> dict[str, Any]:
    return body(tools=tools, toolConfig={"functionCallingConfig": config})


def config(**fields: Any) -> dict[str, Any]:
    return body(generationConfig=fields)


PARAMETER = "tools[0].functionDeclarations[0].parameters.properties.a"


def case(rule: str, broken: Any, path: str, message: str, legal: Any, model: str = "") -> Case:
    return Case(rule, path, message, broken, legal, WriteOptions(model=model))


# fmt: off
CASES = [
    case("GM-01", None, "", "Invalid JSON payload", body()),
    case("GM-01", {}, "contents", "* GenerateContentRequest.contents: contents is not specified", body()),
    case("GM-01", body(contents=[]), "contents", "contents is not specified", body(contents=ASK)),
    case("GM-01", body("hello"), "contents[0]", "Invalid value at 'contents[0]'", body()),
    case("GM-02", body(content("assistant", text())), "contents[0].role",
         "Please use a valid role: user, model.", body(content(None, text()))),
    case("GM-02", body({"role": ["user"], "parts": [text()]}), "contents[0].role", "valid role",
         body(content("", text()))),
    case("GM-03", body(ASK, model(), ASK), "contents[1].parts",
         "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
         body(ASK, model(text()), ASK)),
    case("GM-03", body({"role": "user"}), "contents[0].parts", "must not be empty",
         body(ASK, {"role": "model"}, ASK)),
    case("GM-04", body(user({"type": "text", "text": "hi"})), "contents[0].parts[0].type",
         "Unknown name \"type\" at 'contents[0].parts[0]': Cannot find field.", body(user(text("")))),
    case("GM-04", body(user({**text(), "fileData": {"fileUri": "files/1"}})), "contents[0].parts[0].fileData",
         "oneof field 'data' is already set",
         body(user({"text": None, "file_data": {"file_uri": "files/1"}}))),
    case("GM-04", body(user({})), "contents[0].parts[0]", "must have one initialized field",
         body(user({"videoMetadata": {"fps": 1}}))),
    case("GM-04", body(user("hi")), "contents[0].parts[0]", "Invalid value",
         body({"role": "user", "parts": text()})),
    case("GM-04", body(user(text(5))), "contents[0].parts[0].text", "(TYPE_STRING)", body(user(text("5")))),
    case("GM-04", body(user({"fileData": "files/1"})), "contents[0].parts[0].fileData",
         "contents[0].parts[0].file_data'", body()),
    case("GM-05", body(model(call()), user(response())), "contents[0]",
         "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
         body(*ROUND)),
    case("GM-06", body(ASK, model(text()), user(response())), "contents[2]",
         "Please ensure that function response turn comes immediately after a function call turn.",
         body(*ROUND)),
    case("GM-06", body(user(response())), "contents[0]", "immediately after a function call turn",
         body(*ROUND, model(call()), user(response()))),
    case("GM-07", body(ASK, model(call(), call()), user(response())), "contents[2]",
         "Please ensure that the number of function response parts is equal to the number of function call parts",
         body(ASK, model(call(), call()), user(response(), response()))),
    case("GM-07", body(ASK, model(call()), ASK), "contents[2]", "number of function response parts",
         body(ASK, model(call()), user(response(), text()))),
    case("GM-07", body(ASK, model(call()), model(call()), user(response())), "contents[3]",
         "is equal to the number",
         body(ASK, model(call()), model(call()), user(response()), content("function", response()), ASK)),
    case("GM-08", body(ASK, model(call(args=[])), user(response())), "contents[1].parts[0].functionCall.args",
         "at 'contents[1].parts[0].function_call': Proto field is not repeating, cannot start list.",
         body(ASK, model(call(args=None)), user(response()))),
    case("GM-08", body(ASK, model(call(args="{}")), user(response())),
         "contents[1].parts[0].functionCall.args", "google.protobuf.Struct", body(*ROUND)),
    case("GM-08", body(ASK, model(call(name="")), user(response())), "contents[1].parts[0].functionCall.name",
         "Name cannot be empty", body(*ROUND)),
    case("GM-08", body(ASK, model({"functionCall": "weather"}), user(response())),
         "contents[1].parts[0].functionCall", "Invalid value", body(*ROUND)),
    case("GM-09", body(ASK, model(call()), user(response(response=["rain"]))),
         "contents[2].parts[0].functionResponse.response",
         "Unknown name \"response\" at 'contents[2].parts[0].function_response': Proto field is not repeating",
         body(ASK, model(call()), user({"function_response": response()["functionResponse"]}))),
    case("GM-09", body(ASK, model(call()), user(response(response="rain"))),
         "contents[2].parts[0].functionResponse.response", "google.protobuf.Struct", body(*ROUND)),
    case("GM-09", body(ASK, model(call()), user(response(name=None))),
         "contents[2].parts[0].functionResponse.name", "Name cannot be empty", body(*ROUND)),
    case("GM-10", body(*ROUND), "contents[1].parts[0].functionCall",
         "function call `default_api:weather`, position 2.", body(*ROUND, model(text()), ASK),
         "gemini-3-flash-preview"),
    case("GM-10", body(ASK, model(call(), call(signature="c2ln")), user(response(), response())),
         "contents[1].parts[0].functionCall", "missing a thought_signature",
         body(ASK, model(call(signature="c2ln"), call()), user(response(), response())), "gemini-3.5-pro"),
    case("GM-10", body(ASK, model(call(signature="c2ln")), user(response()), model(call()), user(response())),
         "contents[3].parts[0].functionCall", "position 4.",
         body(ASK, model({"function_call": {"name": "f"}, "thought_signature": "c2ln"}), user(response())),
         "gemini-3-pro"),
    case("GM-11", declared({"name": "1st"}), "tools[0].functionDeclarations[0].name",
         "Invalid function name. Must start with a letter or an underscore.",
         declared({"name": "_1st.of:all-" + "x" * 40})),
    case("GM-11", declared({"name": "x" * 129}), "tools[0].functionDeclarations[0].name", "maximum length",
         declared({"name": "x" * 128})),
    case("GM-11", declared("weather"), "tools[0].functionDeclarations[0]", "Invalid value",
         declared({"name": "weather"})),
    case("GM-11", declared({}), "tools[0].functionDeclarations[0].name", "Invalid function name",
         body(tools={"function_declarations": {"name": "f"}})),
    case("GM-11", declared({"name": "f"}, {"name": "f"}), "tools[0].functionDeclarations[1].name",
         "Duplicate function declaration found: f", declared({"name": "f"}, {"name": "g"})),
    case("GM-12", schema(type="STRING", const="a"), f"{PARAMETER}.const",
         f"Unknown name \"const\" at '{PARAMETER}': Cannot find field.", schema(type="STRING", enum=["a"])),
    case("GM-12", schema(additionalProperties=False), f"{PARAMETER}.additionalProperties",
         "Cannot find field.", schema(anyOf=[{"type": "STRING"}, {"type": "null"}], nullable=True)),
    case("GM-12", schema(type=["string", "null"]), f"{PARAMETER}.type", "Unknown name \"type\"",
         schema(type="string", nullable=True)),
    case("GM-12", schema(type="float"), f"{PARAMETER}.type", "Invalid value", schema(type=3)),
    case("GM-12", schema(type=8), f"{PARAMETER}.type", "Invalid value", schema(type=6)),
    case("GM-12", declared({"name": "f", "parametersJsonSchema": {"type": "string"}}),
         "tools[0].functionDeclarations[0].parametersJsonSchema.type", "f functionDeclaration parameters schema should be of",
         declared({"name": "f", "parametersJsonSchema": {"type": "object"}})),
    case("GM-12", declared({"name": "f", "parameters": {"type": "STRING"}}),
         "tools[0].functionDeclarations[0].parameters.type", "should be of type OBJECT",
         declared({"name": "f", "parameters": {"description": "any"}})),
    case("GM-12", schema(type="STRING", enum=["1", 2]), f"{PARAMETER}.enum[1]", "(TYPE_STRING)",
         schema(type="STRING", enum=["1", "2"])),
    case("GM-12", schema(type="INTEGER", enum=["1"]), f"{PARAMETER}.enum", "only allowed for STRING type",
         schema(type="INTEGER", enum=[])),
    case("GM-12", schema(type="STRING", properties={"b": {}}), f"{PARAMETER}.properties",
         "properties: only allowed for OBJECT type", schema(type="OBJECT", properties={"b": {}})),
    case("GM-12", schema(type="ARRAY"), f"{PARAMETER}.items", "items: missing field.",
         schema(type="ARRAY", items={"type": "STRING"})),
    case("GM-12", schema(type="ARRAY", items={"anyOf": [{}, {"$ref": "#"}]}),
         f"{PARAMETER}.items.anyOf[1].$ref", "Cannot find field",
         schema(type="ARRAY", items={"any_of": [{}]})),
    case("GM-12", schema(items=True), f"{PARAMETER}.items", "Invalid value", schema(items={})),
    case("GM-12", declared({"name": "f", "parameters": {}, "parametersJsonSchema": {}}),
         "tools[0].functionDeclarations[0].parametersJsonSchema", "mutually exclusive",
         declared({"name": "f", "parametersJsonSchema": {"additionalProperties": False}})),
    case("GM-12", config(responseSchema={"type": "OBJECT", "oneOf": []}),
         "generationConfig.responseSchema.oneOf", "Cannot find field",
         config(responseJsonSchema={"type": "object", "oneOf": []})),
    case("GM-13", calling(mode="REQUIRED"), "toolConfig.functionCallingConfig.mode", "Invalid value",
         calling(mode="VALIDATED")),
    case("GM-13", calling(mode="AUTO", allowedFunctionNames=["weather"]),
         "toolConfig.functionCallingConfig.allowedFunctionNames", "only be set when the mode is ANY",
         calling(mode="ANY", allowedFunctionNames=["weather"])),
    case("GM-13", calling(tools=[], mode="AUTO"), "toolConfig.functionCallingConfig",
         "Function calling config is set without function_declarations",
         calling(tools=[{"googleSearch": {}}], mode="AUTO")),
    case("GM-13", body(tool_config="AUTO"), "tool_config", "Invalid value",
         body(tool_config={"includeServerSideToolInvocations": True})),
    case("GM-14", config(temperature=2.1), "generationConfig.temperature",
         "temperature value of 2.1 but the supported range is from 0 (inclusive) to 2.0001 (exclusive)",
         config(temperature=2)),
    case("GM-14", config(temperature="warm"), "generationConfig.temperature", "(TYPE_FLOAT)",
         config(temperature="0.5")),
    case("GM-14", config(top_p=1.5), "generationConfig.top_p", "top_p value of 1.5", config(top_p=1)),
    case("GM-14", config(stopSequences=["a"] * 6), "generationConfig.stopSequences", "maximum is 5",
         config(stopSequences=["a"] * 5)),
    case("GM-14", config(thinkingConfig={"thinkingBudget": 9, "thinkingLevel": "LOW"}),
         "generationConfig.thinkingConfig", "only one of thinking budget and thinking level",
         config(thinkingConfig={"thinkingLevel": "LOW", "includeThoughts": True})),
    case("GM-14", config(thinkingConfig={"thinkingBudget": 0}),
         "generationConfig.thinkingConfig.thinkingBudget",
         "Budget 0 is invalid. This model only works in thinking mode.",
         config(thinkingConfig={"thinkingBudget": 128}), "gemini-2.5-pro"),
    case("GM-14", body(generationConfig=[]), "generationConfig", "Invalid value",
         body(generationConfig=None)),
    case("GM-15", body(systemInstruction="Be brief."), "systemInstruction",
         "Invalid value at 'system_instruction'", body(systemInstruction={"parts": [text()]})),
    case("GM-15", body(systemInstruction=user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}})),
         "systemInstruction.parts[0]", "only supports text", body(system_instruction={"parts": text()})),
    case("GM-15", body(systemInstruction={"content": "Be brief."}), "systemInstruction.content",
         "Unknown name \"content\"", body(systemInstruction=user(text()))),
    case("GM-15", body(systemInstruction=user(text(1))), "systemInstruction.parts[0].text", "Invalid value",
         body(systemInstruction=user(text("1")))),
    case("GM-16", body(model(text())), "contents[0]",
         "Please ensure that single turn requests end with a user role or the role field is empty.",
         body(ASK, model(text()))),
    case("GM-16", body(ASK, model(text())), "contents[1]",
         "Requests ending with a model turn are not supported unless the last part is a function response.",
         body(ASK, model(text()), ASK), "gemini-3.6-flash"),
    case("GM-16", body(ASK, model(text())), "contents[1]", "ending with a model turn",
         body(ASK, model(text(), response())), "models/gemini-3.5-flash-lite"),
    case("GM-17",
         body(user({"inlineData": {"mimeType": "image/png", "data": "data:image/png;base64,iVBORw0="}})),
         "contents[0].parts[0].inlineData.data", "Base64 decoding failed",
         body(user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}}))),
    case("GM-17", body(user({"inline_data": {"data": "iVBORw0="}})),
         "contents[0].parts[0].inline_data.mimeType", "mime_type: must be specified",
         body(user({"inline_data": {"mime_type": "image/png", "data": "iVBORw0="}}))),
    case("GM-17", body(user({"inlineData": "iVBORw0="})), "contents[0].parts[0].inlineData", "Invalid value",
         body()),
    case("GM-18", body(messages=[]), "messages",
         "Invalid JSON payload received. Unknown name \"messages\": Cannot find field.",
         body(safety_settings=[], labels={}, model="models/m")),
    case("GM-18", body({**ASK, "content": "hi"}), "contents[0].content",
         "Unknown name \"content\" at 'contents[0]'", body()),
    case("GM-18", body(tools=[{"type": "function", "functionDeclarations": []}]), "tools[0].type",
         "Unknown name \"type\" at 'tools[0]'", body(tools=[{"aToolOfNextYear": {}}])),
    case("GM-18", body(tools=["googleSearch"]), "tools[0]", "Invalid value",
         body(tools={"googleSearch": {}})),
    case("GM-19", body(cachedContent="cachedContents/1", systemInstruction=user(text())), "cachedContent",
         "Tool config, tools and system instruction should not be set in the request when using cached content.",
         body(cachedContent="cachedContents/1", systemInstruction=None)),
    case("GM-19", body(cached_content="cachedContents/1", tools=FUNCTIONS), "cached_content",
         "when using cached content", body(tools=FUNCTIONS)),
]

ADVICE = [
    case("GM-02", body(ASK, model(call()), content("function", response())), "contents[2].role", "valid role",
         body(*ROUND)),
    case("GM-03", body(ASK, {"role": "model"}, ASK), "contents[1].parts", "must not be empty",
         body(ASK, ASK)),
    case("GM-20", declared({"name": "x" * 65}), "tools[0].functionDeclarations[0].name", "length of 64",
         declared({"name": "x" * 64})),
]
# fmt: on

WORDS = "user model role parts text functionCall function_response inlineData name args response type enum items"
"""Names of the format, for arbitrary bodies."""
OPTIONS = [WriteOptions(model=model) for model in ("", "gemini-3-pro", "gemini-3.6-flash", "gemini-2.5-pro")]
