"""How other libraries translate a request: their own functions, called as they call them.

Runs in the virtualenv of the peers (`peer_process`). Each function gets a new decoded body and returns what the library would
pass to its client; JSON is not counted. Libraries are imported when they are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

Body = dict[str, Any]
Convert = Callable[[Body], Any]
Tasks = dict[str, Callable[[Body], Convert]]
"""By pair of formats: prepares with a body, which is not timed, and returns the function that is timed."""

CLAUDE, GPT, GEMINI = "claude-sonnet-4-5", "gpt-4o", "gemini-2.5-flash"


def any_llm_to_anthropic(_: Body) -> Convert:
    parameters = import_module("any_llm.types.completion").CompletionParams
    convert = import_module("any_llm.providers.anthropic.utils")._convert_params
    return lambda body: convert(parameters(**_completion(body, CLAUDE)), provider_name="anthropic")


def any_llm_to_gemini(_: Body) -> Convert:
    parameters = import_module("any_llm.types.completion").CompletionParams
    convert = import_module("any_llm.providers.gemini.base").GoogleProvider._convert_completion_params
    return lambda body: convert(parameters(**_completion(body, GEMINI)), provider_name="gemini")


def any_llm_from_anthropic(_: Body) -> Convert:
    parameters = import_module("any_llm.types.messages").MessagesParams
    convert = import_module("any_llm.utils.messages_compat").messages_params_to_completion_params
    return lambda body: convert(parameters(**body))


def _completion(body: Body, model: str) -> Body:
    named = ("messages", "tools", "tool_choice", "temperature", "max_tokens")
    return {"model_id": model, **{name: body[name] for name in named}}


def litellm_to_anthropic(_: Body) -> Convert:
    config = import_module("litellm.llms.anthropic.chat.transformation").AnthropicConfig()

    def convert(body: Body) -> Any:
        options = config.map_openai_params(_optional(body), {}, CLAUDE, False)
        return config.transform_request(CLAUDE, body["messages"], options, {}, {})

    return convert


def litellm_to_gemini(_: Body) -> Convert:
    config = import_module("litellm.llms.gemini.chat.transformation").GoogleAIStudioGeminiConfig()
    transform = import_module("litellm.llms.vertex_ai.gemini.transformation").transform_request_body

    def convert(body: Body) -> Any:
        options = config.map_openai_params(_optional(body), {}, GEMINI, False)
        return transform(body["messages"], GEMINI, options, "gemini", {}, None)

    return convert


def _optional(body: Body) -> Body:
    return {name: body[name] for name in ("tools", "tool_choice", "temperature", "max_tokens")}


def litellm_from_anthropic(_: Body) -> Convert:
    module = import_module("litellm.llms.anthropic.pass_through.adapters.transformation")
    return module.LiteLLMAnthropicMessagesAdapter().translate_anthropic_to_openai  # type: ignore[no-any-return]


def litellm_from_gemini(_: Body) -> Convert:
    adapter = import_module("litellm.google_genai.adapters.transformation").GoogleGenAIAdapter()
    return lambda body: adapter.translate_generate_content_to_completion(
        model=GPT,
        contents=body["contents"],
        config=body.get("generationConfig"),
        tools=body["tools"],
        system_instruction=body["systemInstruction"],
    )


def langchain_to_anthropic(body: Body) -> Convert:
    read = import_module("langchain_core.messages").convert_to_messages
    module = import_module("langchain_anthropic.chat_models")
    model = module.ChatAnthropic(model=CLAUDE, api_key="none", max_tokens=body["max_tokens"])
    tool = module.convert_to_anthropic_tool
    return lambda body: model._get_request_payload(
        read(body["messages"]), tools=[tool(declared) for declared in body["tools"]]
    )


def langchain_to_gemini(_: Body) -> Convert:
    read = import_module("langchain_core.messages").convert_to_messages
    module = import_module("langchain_google_genai.chat_models")
    model = module.ChatGoogleGenerativeAI(model=GEMINI, google_api_key="none")
    return lambda body: model._prepare_request(read(body["messages"]), tools=body["tools"])


def langchain_from_anthropic(_: Body) -> Convert:
    write = import_module("langchain_core.messages").convert_to_openai_messages
    return lambda body: write(body["messages"])


def pydantic_ai_to_anthropic(body: Body) -> Convert:
    model = import_module("pydantic_ai.models.anthropic").AnthropicModel(CLAUDE, provider=_provider("anthropic"))
    return _mapping(lambda messages, parameters: model._map_message(messages, parameters, {}), body)


def pydantic_ai_to_gemini(body: Body) -> Convert:
    model = import_module("pydantic_ai.models.google").GoogleModel(GEMINI, provider=_provider("google"))
    return _mapping(model._map_messages, body)


def pydantic_ai_to_chat(body: Body) -> Convert:
    model = import_module("pydantic_ai.models.openai").OpenAIChatModel(GPT, provider=_provider("openai"))
    return _mapping(model._map_messages, body)


def _provider(name: str) -> Any:
    module = import_module(f"pydantic_ai.providers.{name}")
    kind = {"anthropic": "AnthropicProvider", "google": "GoogleProvider", "openai": "OpenAIProvider"}[name]
    return getattr(module, kind)(api_key="none")


def _mapping(mapped: Callable[[Any, Any], Any], body: Body) -> Convert:
    """Its own messages are made before: it reads no requests. Only its writing is timed."""
    messages = _own_messages(body)
    parameters = import_module("pydantic_ai.models").ModelRequestParameters()

    def convert(_: Body) -> Any:
        return _finished(mapped(messages, parameters))

    return convert


def _finished(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing, without the cost of a loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    return asyncio.run(coroutine)


def _own_messages(body: Body) -> list[Any]:
    own = import_module("pydantic_ai.messages")
    names: dict[str, str] = {}
    messages: list[Any] = []
    for message in body.get("messages", ()):
        content = message["content"]
        if message["role"] == "assistant":
            parts: list[Any] = [own.TextPart(content)] if content else []
            for call in message.get("tool_calls", ()):
                function = call["function"]
                names[call["id"]] = function["name"]
                parts.append(own.ToolCallPart(function["name"], function["arguments"], call["id"]))
            messages.append(own.ModelResponse(parts=parts))
        elif message["role"] == "tool":
            call_id = message["tool_call_id"]
            messages.append(own.ModelRequest(parts=[own.ToolReturnPart(names[call_id], content, call_id)]))
        else:
            part = own.SystemPromptPart(content) if message["role"] == "system" else own.UserPromptPart(content)
            messages.append(own.ModelRequest(parts=[part]))
    return messages


CONVERSIONS: dict[str, Tasks] = {
    "any-llm": {
        "openai-chat to anthropic": any_llm_to_anthropic,
        "openai-chat to gemini": any_llm_to_gemini,
        "anthropic to openai-chat": any_llm_from_anthropic,
    },
    "litellm": {
        "openai-chat to anthropic": litellm_to_anthropic,
        "openai-chat to gemini": litellm_to_gemini,
        "anthropic to openai-chat": litellm_from_anthropic,
        "gemini to openai-chat": litellm_from_gemini,
    },
    "langchain": {
        "openai-chat to anthropic": langchain_to_anthropic,
        "openai-chat to gemini": langchain_to_gemini,
        "anthropic to openai-chat": langchain_from_anthropic,
    },
    "pydantic-ai": {
        "openai-chat to anthropic": pydantic_ai_to_anthropic,
        "openai-chat to gemini": pydantic_ai_to_gemini,
        "openai-chat to openai-chat": pydantic_ai_to_chat,
    },
}
"""The translations that each library has."""
