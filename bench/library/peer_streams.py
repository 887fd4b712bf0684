"""How other libraries assemble a streamed answer: their own clients, fed from memory instead of a socket.

Runs in the virtualenv of the peers (`peer_process`). Each function makes a client whose transport answers every request with the
given bytes, and returns the function that is timed: it sends a request, reads every event and returns the text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

Assemble = Callable[[], str]
MESSAGES = [{"role": "user", "content": "Say many words."}]


def _transport(data: bytes) -> Any:
    httpx = import_module("httpx")
    headers = {"content-type": "text/event-stream"}
    return httpx.MockTransport(lambda _: httpx.Response(200, content=data, headers=headers))


def _openai_client(data: bytes) -> Any:
    http = import_module("httpx").Client(transport=_transport(data))
    return import_module("openai").OpenAI(api_key="none", http_client=http)


def openai_chat(data: bytes) -> Assemble:
    client = _openai_client(data)

    def assemble() -> str:
        with client.chat.completions.stream(model="gpt-4o", messages=MESSAGES) as stream:
            return str(stream.get_final_completion().choices[0].message.content)

    return assemble


def anthropic_messages(data: bytes) -> Assemble:
    http = import_module("httpx").Client(transport=_transport(data))
    client = import_module("anthropic").Anthropic(api_key="none", http_client=http)

    def assemble() -> str:
        with client.messages.stream(model="claude-sonnet-4-5", max_tokens=4_000, messages=MESSAGES) as stream:
            return str(stream.get_final_message().content[0].text)

    return assemble


def google_genai(data: bytes) -> Assemble:
    genai = import_module("google.genai")
    http = import_module("httpx").Client(transport=_transport(data))
    client = genai.Client(api_key="none", http_options=genai.types.HttpOptions(httpx_client=http))

    def assemble() -> str:
        chunks = client.models.generate_content_stream(model="gemini-2.5-flash", contents="Say many words.")
        return "".join(chunk.text or "" for chunk in chunks)

    return assemble


def litellm_chat(data: bytes) -> Assemble:
    litellm = import_module("litellm")
    client = _openai_client(data)

    def assemble() -> str:
        stream = litellm.completion(
            model="openai/gpt-4o", messages=MESSAGES, stream=True, client=client, api_key="none"
        )
        return str(litellm.stream_chunk_builder(list(stream), messages=MESSAGES).choices[0].message.content)

    return assemble


def pydantic_ai_chat(data: bytes) -> Assemble:
    http = import_module("httpx").AsyncClient(transport=_transport(data))
    client = import_module("openai").AsyncOpenAI(api_key="none", http_client=http)
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(openai_client=client)
    return _pydantic_ai(import_module("pydantic_ai.models.openai").OpenAIChatModel("gpt-4o", provider=provider))


def pydantic_ai_anthropic(data: bytes) -> Assemble:
    http = import_module("httpx").AsyncClient(transport=_transport(data))
    client = import_module("anthropic").AsyncAnthropic(api_key="none", http_client=http)
    provider = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(anthropic_client=client)
    model = import_module("pydantic_ai.models.anthropic").AnthropicModel("claude-sonnet-4-5", provider=provider)
    return _pydantic_ai(model)


def _pydantic_ai(model: Any) -> Assemble:
    own = import_module("pydantic_ai.messages")
    parameters = import_module("pydantic_ai.models").ModelRequestParameters()
    messages = [own.ModelRequest(parts=[own.UserPromptPart("Say many words.")])]

    async def assemble() -> str:
        async with model.request_stream(messages, None, parameters) as stream:
            async for _ in stream:
                pass
            return "".join(part.content for part in stream.get().parts if isinstance(part, own.TextPart))

    return lambda: asyncio.run(assemble())


STREAMS: dict[str, dict[str, Callable[[bytes], Assemble]]] = {
    "openai": {"openai-chat": openai_chat},
    "anthropic": {"anthropic": anthropic_messages},
    "google-genai": {"gemini": google_genai},
    "litellm": {"openai-chat": litellm_chat},
    "pydantic-ai": {"openai-chat": pydantic_ai_chat, "anthropic": pydantic_ai_anthropic},
}
"""The streams that each library can assemble."""
