"""A talk with a tool round trip, as the user of each official SDK writes it: a question with a picture, two calls, an answer.

A talk keeps what its SDK keeps: `asked` is the next request, `receive` takes the answer to it, runs the tool, and gives
the last words where there are any.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.test_matrix import PIXEL, SCHEMA

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of what it imports itself
    genai = pytest.importorskip("google.genai")

ASKED = "What is in the picture, and is it raining in Łódź and 北京?"


def weather(arguments: dict[str, Any]) -> str:
    return f"rain in {arguments['city']}"


class ChatTalk:
    """The openai SDK on Chat Completions."""

    def __init__(self, model: str) -> None:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        self.messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": ASKED}, image]}]
        self.tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
        self.model = model

    def asked(self) -> dict[str, Any]:
        return {"model": self.model, "messages": self.messages, "tools": self.tools}

    def receive(self, completion: Any) -> str | None:
        """The answer, or None where calls were made: they are answered."""
        choice = completion.choices[0]
        assert completion.usage.total_tokens == 18
        if choice.finish_reason != "tool_calls":
            assert choice.finish_reason == "stop"
            return str(choice.message.content)
        self.messages.append(choice.message.model_dump(exclude_none=True))
        for call in choice.message.tool_calls:
            result = weather(msgspec.json.decode(call.function.arguments))
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return None


class ResponsesTalk:
    """The openai SDK on Responses."""

    def __init__(self, model: str) -> None:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
        self.input: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": ASKED}, image]}]
        self.tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
        self.model = model

    def asked(self) -> dict[str, Any]:
        return {"model": self.model, "input": self.input, "tools": self.tools, "store": False}

    def receive(self, response: Any) -> str | None:
        assert response.status == "completed"
        assert response.usage.total_tokens == 18
        self.input += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        for call in calls:
            result = weather(msgspec.json.decode(call.arguments))
            self.input.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        return None if calls else str(response.output_text)


class MessagesTalk:
    """The anthropic SDK."""

    def __init__(self, model: str) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        content = [{"type": "text", "text": ASKED}, {"type": "image", "source": source}]
        self.messages: list[Any] = [{"role": "user", "content": content}]
        self.tools = [{"name": "weather", "input_schema": SCHEMA}]
        self.model = model

    def asked(self) -> dict[str, Any]:
        return {"model": self.model, "max_tokens": 500, "messages": self.messages, "tools": self.tools}

    def receive(self, message: Any) -> str | None:
        assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            assert message.stop_reason == "end_turn"
            return str(message.content[0].text)
        assert message.stop_reason == "tool_use"
        self.messages.append({"role": "assistant", "content": message.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": weather(call.input)} for call in calls]
        self.messages.append({"role": "user", "content": results})
        return None


class ContentsTalk:
    """The google-genai SDK."""

    def __init__(self, model: str) -> None:
        types = genai.types
        picture = types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png")
        self.contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=ASKED), picture])]
        declared = types.FunctionDeclaration(name="weather", parameters_json_schema=SCHEMA)
        self.config = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=[declared])],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        self.model = model

    def asked(self) -> dict[str, Any]:
        return {"model": self.model, "contents": self.contents, "config": self.config}

    def receive(self, *chunks: Any) -> str | None:
        types = genai.types
        assert chunks[-1].usage_metadata.total_token_count == 18
        parts = [part for chunk in chunks for part in (chunk.candidates[0].content.parts or [])]
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
            return "".join(part.text or "" for part in parts)
        self.contents.append(types.Content(role="model", parts=parts))
        results = [
            types.Part.from_function_response(name=call.name, response={"result": weather(call.args)}) for call in calls
        ]
        self.contents.append(types.Content(role="user", parts=results))
        return None


def run_talk(talk: Any, step: Callable[[dict[str, Any]], Any]) -> str:
    """Continue until there is an answer."""
    for _ in range(3):
        response_or_chunks = step(talk.asked())
        answer: str | None = (
            talk.receive(*response_or_chunks)
            if isinstance(response_or_chunks, list)
            else talk.receive(response_or_chunks)
        )
        if answer is not None:
            return answer
    raise AssertionError("there was no answer")


def run_talk_async(talk: Any, step: Callable[[dict[str, Any]], Any]) -> Callable[[], Any]:
    async def go() -> str:
        for _ in range(3):
            response_or_chunks = await step(talk.asked())
            answer: str | None = (
                talk.receive(*response_or_chunks)
                if isinstance(response_or_chunks, list)
                else talk.receive(response_or_chunks)
            )
            if answer is not None:
                return answer
        raise AssertionError("there was no answer")

    return go
