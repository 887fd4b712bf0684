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


def case(rule: str, broken: Any, path: str, legal: Any, model: str = "") -> Case:
    return Case(rule, path, broken, legal, WriteOptions(model=model))


# fmt: off
CASES = [
    case("GM-01", None, "", body()),
    case("GM-01", {}, "contents", body()),
    case("GM-01", body(contents=[]), "contents", body(contents=ASK)),
    case("GM-01", body("hello"), "contents[0]", body()),
    case("GM-02", body(content("assistant", text())), "contents[0].role", body(content(None, text()))),
    case("GM-02", body({"role": ["user"], "parts": [text()]}), "contents[0].role",
         body(content("", text()))),
    case("GM-03", body(ASK, model(), ASK), "contents[1].parts",
         body(ASK, model(text()), ASK)),
    case("GM-03", body({"role": "user"}), "contents[0].parts",
         body(ASK, {"role": "model"}, ASK)),
    case("GM-04", body(user({"type": "text", "text": "hi"})), "contents[0].parts[0].type", body(user(text("")))),
    case("GM-04", body(user({**text(), "fileData": {"fileUri": "files/1"}})), "contents[0].parts[0].fileData",
         body(user({"text": None, "file_data": {"file_uri": "files/1"}}))),
    case("GM-04", body(user({})), "contents[0].parts[0]",
         body(user({"videoMetadata": {"fps": 1}}))),
    case("GM-04", body(user("hi")), "contents[0].parts[0]",
         body({"role": "user", "parts": text()})),
    case("GM-04", body(user(text(5))), "contents[0].parts[0].text", body(user(text("5")))),
    case("GM-04", body(user({"fileData": "files/1"})), "contents[0].parts[0].fileData", body()),
    case("GM-05", body(model(call()), user(response())), "contents[0]",
         body(*ROUND)),
    case("GM-06", body(ASK, model(text()), user(response())), "contents[2]",
         body(*ROUND)),
    case("GM-06", body(user(response())), "contents[0]",
         body(*ROUND, model(call()), user(response()))),
    case("GM-07", body(ASK, model(call(), call()), user(response())), "contents[2]",
         body(ASK, model(call(), call()), user(response(), response()))),
    case("GM-07", body(ASK, model(call()), ASK), "contents[2]",
         body(ASK, model(call()), user(response(), text()))),
    case("GM-07", body(ASK, model(call()), model(call()), user(response())), "contents[3]",
         body(ASK, model(call()), model(call()), user(response()), content("function", response()), ASK)),
    case("GM-08", body(ASK, model(call(args=[])), user(response())), "contents[1].parts[0].functionCall.args",
         body(ASK, model(call(args=None)), user(response()))),
    case("GM-08", body(ASK, model(call(args="{}")), user(response())),
         "contents[1].parts[0].functionCall.args", body(*ROUND)),
    case("GM-08", body(ASK, model(call(name="")), user(response())), "contents[1].parts[0].functionCall.name", body(*ROUND)),
    case("GM-08", body(ASK, model({"functionCall": "weather"}), user(response())),
         "contents[1].parts[0].functionCall", body(*ROUND)),
    case("GM-09", body(ASK, model(call()), user(response(response=["rain"]))),
         "contents[2].parts[0].functionResponse.response",
         body(ASK, model(call()), user({"function_response": response()["functionResponse"]}))),
    case("GM-09", body(ASK, model(call()), user(response(response="rain"))),
         "contents[2].parts[0].functionResponse.response", body(*ROUND)),
    case("GM-09", body(ASK, model(call()), user(response(name=None))),
         "contents[2].parts[0].functionResponse.name", body(*ROUND)),
    case("GM-10", body(*ROUND), "contents[1].parts[0].functionCall", body(*ROUND, model(text()), ASK),
         "gemini-3-flash-preview"),
    case("GM-10", body(ASK, model(call(), call(signature="c2ln")), user(response(), response())),
         "contents[1].parts[0].functionCall",
         body(ASK, model(call(signature="c2ln"), call()), user(response(), response())), "gemini-3.5-pro"),
    case("GM-10", body(ASK, model(call(signature="c2ln")), user(response()), model(call()), user(response())),
         "contents[3].parts[0].functionCall",
         body(ASK, model({"function_call": {"name": "f"}, "thought_signature": "c2ln"}), user(response())),
         "gemini-3-pro"),
    case("GM-11", declared({"name": "1st"}), "tools[0].functionDeclarations[0].name",
         declared({"name": "_1st.of:all-" + "x" * 40})),
    case("GM-11", declared({"name": "x" * 129}), "tools[0].functionDeclarations[0].name",
         declared({"name": "x" * 128})),
    case("GM-11", declared("weather"), "tools[0].functionDeclarations[0]",
         declared({"name": "weather"})),
    case("GM-11", declared({}), "tools[0].functionDeclarations[0].name",
         body(tools={"function_declarations": {"name": "f"}})),
    case("GM-11", declared({"name": "f"}, {"name": "f"}), "tools[0].functionDeclarations[1].name",
         declared({"name": "f"}, {"name": "g"})),
    case("GM-12", schema(type="STRING", const="a"), f"{PARAMETER}.const", schema(type="STRING", enum=["a"])),
    case("GM-12", schema(additionalProperties=False), f"{PARAMETER}.additionalProperties",
         schema(anyOf=[{"type": "STRING"}, {"type": "null"}], nullable=True)),
    case("GM-12", schema(type=["string", "null"]), f"{PARAMETER}.type",
         schema(type="string", nullable=True)),
    case("GM-12", schema(type="float"), f"{PARAMETER}.type", schema(type=3)),
    case("GM-12", schema(type=8), f"{PARAMETER}.type", schema(type=6)),
    case("GM-12", declared({"name": "f", "parametersJsonSchema": {"type": "string"}}),
         "tools[0].functionDeclarations[0].parametersJsonSchema.type",
         declared({"name": "f", "parametersJsonSchema": {"type": "object"}})),
    case("GM-12", declared({"name": "f", "parameters": {"type": "STRING"}}),
         "tools[0].functionDeclarations[0].parameters.type",
         declared({"name": "f", "parameters": {"description": "any"}})),
    case("GM-12", schema(type="STRING", enum=["1", 2]), f"{PARAMETER}.enum[1]",
         schema(type="STRING", enum=["1", "2"])),
    case("GM-12", schema(type="INTEGER", enum=["1"]), f"{PARAMETER}.enum",
         schema(type="INTEGER", enum=[])),
    case("GM-12", schema(type="STRING", properties={"b": {}}), f"{PARAMETER}.properties",
         schema(type="OBJECT", properties={"b": {}})),
    case("GM-12", schema(type="ARRAY"), f"{PARAMETER}.items",
         schema(type="ARRAY", items={"type": "STRING"})),
    case("GM-12", schema(type="ARRAY", items={"anyOf": [{}, {"$ref": "#"}]}),
         f"{PARAMETER}.items.anyOf[1].$ref",
         schema(type="ARRAY", items={"any_of": [{}]})),
    case("GM-12", schema(items=True), f"{PARAMETER}.items", schema(items={})),
    case("GM-12", declared({"name": "f", "parameters": {}, "parametersJsonSchema": {}}),
         "tools[0].functionDeclarations[0].parametersJsonSchema",
         declared({"name": "f", "parametersJsonSchema": {"additionalProperties": False}})),
    case("GM-12", config(responseSchema={"type": "OBJECT", "oneOf": []}),
         "generationConfig.responseSchema.oneOf",
         config(responseJsonSchema={"type": "object", "oneOf": []})),
    case("GM-13", calling(mode="REQUIRED"), "toolConfig.functionCallingConfig.mode",
         calling(mode="VALIDATED")),
    case("GM-13", calling(mode="AUTO", allowedFunctionNames=["weather"]),
         "toolConfig.functionCallingConfig.allowedFunctionNames",
         calling(mode="ANY", allowedFunctionNames=["weather"])),
    case("GM-13", calling(tools=[], mode="AUTO"), "toolConfig.functionCallingConfig",
         calling(tools=[{"googleSearch": {}}], mode="AUTO")),
    case("GM-13", body(tool_config="AUTO"), "tool_config",
         body(tool_config={"includeServerSideToolInvocations": True})),
    case("GM-14", config(temperature=2.1), "generationConfig.temperature",
         config(temperature=2)),
    case("GM-14", config(temperature="warm"), "generationConfig.temperature",
         config(temperature="0.5")),
    case("GM-14", config(top_p=1.5), "generationConfig.top_p", config(top_p=1)),
    case("GM-14", config(stopSequences=["a"] * 6), "generationConfig.stopSequences",
         config(stopSequences=["a"] * 5)),
    case("GM-14", config(thinkingConfig={"thinkingBudget": 9, "thinkingLevel": "LOW"}),
         "generationConfig.thinkingConfig",
         config(thinkingConfig={"thinkingLevel": "LOW", "includeThoughts": True})),
    case("GM-14", config(thinkingConfig={"thinkingBudget": 0}),
         "generationConfig.thinkingConfig.thinkingBudget",
         config(thinkingConfig={"thinkingBudget": 128}), "gemini-2.5-pro"),
    case("GM-14", body(generationConfig=[]), "generationConfig",
         body(generationConfig=None)),
    case("GM-15", body(systemInstruction="Be brief."), "systemInstruction", body(systemInstruction={"parts": [text()]})),
    case("GM-15", body(systemInstruction=user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}})),
         "systemInstruction.parts[0]", body(system_instruction={"parts": text()})),
    case("GM-15", body(systemInstruction={"content": "Be brief."}), "systemInstruction.content",
         body(systemInstruction=user(text()))),
    case("GM-15", body(systemInstruction=user(text(1))), "systemInstruction.parts[0].text",
         body(systemInstruction=user(text("1")))),
    case("GM-16", body(model(text())), "contents[0]",
         body(ASK, model(text()))),
    case("GM-16", body(ASK, model(text())), "contents[1]",
         body(ASK, model(text()), ASK), "gemini-3.6-flash"),
    case("GM-16", body(ASK, model(text())), "contents[1]",
         body(ASK, model(text(), response())), "models/gemini-3.5-flash-lite"),
    case("GM-17",
         body(user({"inlineData": {"mimeType": "image/png", "data": "data:image/png;base64,iVBORw0="}})),
         "contents[0].parts[0].inlineData.data",
         body(user({"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}}))),
    case("GM-17", body(user({"inline_data": {"data": "iVBORw0="}})),
         "contents[0].parts[0].inline_data.mimeType",
         body(user({"inline_data": {"mime_type": "image/png", "data": "iVBORw0="}}))),
    case("GM-17", body(user({"inlineData": "iVBORw0="})), "contents[0].parts[0].inlineData",
         body()),
    case("GM-18", body(messages=[]), "messages",
         body(safety_settings=[], labels={}, model="models/m")),
    case("GM-18", body({**ASK, "content": "hi"}), "contents[0].content", body()),
    case("GM-18", body(tools=[{"type": "function", "functionDeclarations": []}]), "tools[0].type",
         body(tools=[{"aToolOfNextYear": {}}])),
    case("GM-18", body(tools=["googleSearch"]), "tools[0]",
         body(tools={"googleSearch": {}})),
    case("GM-19", body(cachedContent="cachedContents/1", systemInstruction=user(text())), "cachedContent",
         body(cachedContent="cachedContents/1", systemInstruction=None)),
    case("GM-19", body(cached_content="cachedContents/1", tools=FUNCTIONS), "cached_content", body(tools=FUNCTIONS)),
]

ADVICE = [
    case("GM-02", body(ASK, model(call()), content("function", response())), "contents[2].role",
         body(*ROUND)),
    case("GM-03", body(ASK, {"role": "model"}, ASK), "contents[1].parts",
         body(ASK, ASK)),
    case("GM-20", declared({"name": "x" * 65}), "tools[0].functionDeclarations[0].name",
         declared({"name": "x" * 64})),
]
# fmt: on

WORDS = "user model role parts text functionCall function_response inlineData name args response type enum items"
"""Names of the format, for arbitrary bodies."""
OPTIONS = [WriteOptions(model=model) for model in ("", "gemini-3-pro", "gemini-3.6-flash", "gemini-2.5-pro")]
