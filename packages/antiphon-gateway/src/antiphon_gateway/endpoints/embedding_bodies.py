"""Embeddings in three shapes: OpenAI's `/v1/embeddings`, Gemini's `embedContent` and `batchEmbedContents`, Ollama's `/api/embed`.

A `Shape` reads a client's body into an `EmbedRequest` and writes its response; OpenAI's and Gemini's batch can also be written to
an upstream and read from it. A body that goes to an upstream of its own shape is passed on as it came and needs none of this.

What only one shape has (`taskType`, `user`, …) is reported as a loss. Token ids and media cannot be translated: a `WireError`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import WireError
from antiphon.json_text import NOT_JSON
from antiphon.wire.loss import Loss, other_fields
from antiphon.wire.rules import json_type_name


class EmbedRequest(Struct, frozen=True):
    """Texts to embed. `is_base64`: the client reads vectors as base64 of little-endian floats. `extras` no other shape has."""

    texts: tuple[str, ...]
    dimensions: int | None = None
    is_base64: bool = False
    extras: dict[str, Any] = {}

    def losses(self) -> list[Loss]:
        """What a translation cannot express."""
        return [Loss(name, name, "specific to the client's API; dropped") for name in self.extras]


class EmbedOutput(Struct, frozen=True):
    """One vector for each text, and the tokens of the texts if they were reported."""

    vectors: list[list[float]]
    tokens: int | None = None


class Shape(Struct, frozen=True):
    """How one API asks for embeddings and gets them. `write_response` also gets the model and the number of tokens."""

    read_request: Callable[[dict[str, Any]], EmbedRequest]
    write_response: Callable[[EmbedRequest, EmbedOutput, str, int], dict[str, Any]]


# OpenAI


def read_openai(body: dict[str, Any]) -> EmbedRequest:
    """A body of `/v1/embeddings`."""
    known = ("model", "input", "dimensions", "encoding_format")
    extras = other_fields(body, known)
    return EmbedRequest(
        _texts(body.get("input"), "input"),
        _dimensions(body, "dimensions"),
        body.get("encoding_format") == "base64",
        extras,
    )


def write_openai_request(request: EmbedRequest, model: str) -> dict[str, Any]:
    """A body for an upstream with OpenAI's API."""
    body: dict[str, Any] = {"model": model, "input": list(request.texts), "encoding_format": "float"}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return body


class _OpenAIVector(Struct):
    embedding: list[float]
    index: int = 0


class _OpenAIUsage(Struct):
    prompt_tokens: int | None = None


class _OpenAIResponse(Struct):
    data: list[_OpenAIVector]
    usage: _OpenAIUsage | None = None


def read_openai_response(data: bytes) -> EmbedOutput:
    """The vectors in a response of OpenAI's API. Raises `WireError`."""
    response = _decode(data, _OpenAIResponse)
    vectors = sorted(response.data, key=lambda vector: vector.index)
    tokens = response.usage.prompt_tokens if response.usage is not None else None
    return EmbedOutput([vector.embedding for vector in vectors], tokens)


def write_openai_response(request: EmbedRequest, output: EmbedOutput, model: str, tokens: int) -> dict[str, Any]:
    """A response of `/v1/embeddings`."""
    write: Callable[[list[float]], Any] = _as_base64 if request.is_base64 else list
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": write(vector)}
            for index, vector in enumerate(output.vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


# Gemini


def read_gemini(body: dict[str, Any]) -> EmbedRequest:
    """A body of `embedContent`."""
    return _read_gemini_entries([body])


def read_gemini_batch(body: dict[str, Any]) -> EmbedRequest:
    """A body of `batchEmbedContents`."""
    requests = body.get("requests")
    if not isinstance(requests, list) or not requests:
        raise WireError(f"requests: expected an array, got {json_type_name(requests)}")
    return _read_gemini_entries(requests)


def _read_gemini_entries(entries: list[Any]) -> EmbedRequest:
    texts: list[str] = []
    extras: dict[str, Any] = {}
    dimensions: set[int | None] = set()
    for index, entry in enumerate(entries):
        path = f"requests[{index}]"
        if not isinstance(entry, dict):
            raise WireError(f"{path}: expected an object, got {json_type_name(entry)}")
        texts.append(_gemini_text(entry.get("content"), f"{path}.content"))
        settings = entry.get("embedContentConfig")
        fields = {**entry, **(settings if isinstance(settings, dict) else {})}
        dimensions.add(_dimensions(fields, "outputDimensionality"))
        known = ("model", "content", "outputDimensionality", "embedContentConfig")
        extras |= other_fields(fields, known)
    if len(dimensions) > 1:
        raise WireError("outputDimensionality: the model of this request embeds all texts with the same one")
    return EmbedRequest(tuple(texts), dimensions.pop(), extras=extras)


def _gemini_text(content: Any, path: str) -> str:
    parts = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(parts, list):
        raise WireError(f"{path}.parts: expected an array, got {json_type_name(parts)}")
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise WireError(f"{path}.parts: the model of this request embeds text only")
    return "\n".join(map(str, texts))


def write_gemini_request(request: EmbedRequest, model: str) -> dict[str, Any]:
    """A body of `batchEmbedContents` for an upstream."""
    settings = {} if request.dimensions is None else {"outputDimensionality": request.dimensions}
    name = f"models/{model.removeprefix('models/')}"
    return {"requests": [{"model": name, "content": {"parts": [{"text": text}]}, **settings} for text in request.texts]}


class _GeminiVector(Struct):
    values: list[float]


class _GeminiUsage(Struct, rename="camel"):
    prompt_token_count: int | None = None


class _GeminiResponse(Struct, rename="camel"):
    embeddings: list[_GeminiVector] = []
    embedding: _GeminiVector | None = None
    usage_metadata: _GeminiUsage | None = None


def read_gemini_response(data: bytes) -> EmbedOutput:
    """The vectors in a response of `embedContent` or `batchEmbedContents`. Raises `WireError`."""
    response = _decode(data, _GeminiResponse)
    vectors = [response.embedding] if response.embedding is not None else response.embeddings
    if not vectors:
        raise WireError("no embeddings in it")
    usage = response.usage_metadata
    return EmbedOutput([vector.values for vector in vectors], usage.prompt_token_count if usage is not None else None)


# Ollama


def read_ollama(body: dict[str, Any]) -> EmbedRequest:
    """A body of `/api/embed`."""
    known = ("model", "input", "dimensions", "keep_alive", "truncate")
    extras = {name: value for name, value in body.items() if name not in known and value}
    if body.get("truncate") is False:
        extras["truncate"] = False
    return EmbedRequest(_texts(body.get("input"), "input"), _dimensions(body, "dimensions"), extras=extras)


def write_ollama_response(request: EmbedRequest, output: EmbedOutput, model: str, tokens: int) -> dict[str, Any]:
    """A response of `/api/embed`."""
    del request
    return {
        "model": model,
        "embeddings": output.vectors,
        "total_duration": 0,
        "load_duration": 0,
        "prompt_eval_count": tokens,
    }


def read_ollama_prompt(body: dict[str, Any]) -> EmbedRequest:
    """A body of `/api/embeddings`, the older endpoint for one text."""
    extras = {name: value for name, value in body.items() if name not in ("model", "prompt", "keep_alive") and value}
    return EmbedRequest(_texts(body.get("prompt"), "prompt")[:1], extras=extras)


SHAPES: dict[tuple[str, str], Shape] = {
    ("openai-chat", ""): Shape(read_openai, write_openai_response),
    ("gemini", ""): Shape(read_gemini, lambda _, output, *__: {"embedding": {"values": output.vectors[0]}}),
    ("gemini", "batch"): Shape(
        read_gemini_batch, lambda _, output, *__: {"embeddings": [{"values": vector} for vector in output.vectors]}
    ),
    ("ollama", ""): Shape(read_ollama, write_ollama_response),
    ("ollama", "prompt"): Shape(read_ollama_prompt, lambda _, output, *__: {"embedding": output.vectors[0]}),
}
"""By the format of an endpoint, and which of several endpoints it is."""


def _texts(value: Any, path: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise WireError(f"{path}: expected a string or an array of strings, got {json_type_name(value)}")
    if not all(isinstance(text, str) for text in texts):
        raise WireError(f"{path}: the model of this request takes text only, not token ids; send strings")
    return tuple(texts)


def _dimensions(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise WireError(f"{name}: expected a number, got {json_type_name(value)}")


def _as_base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _decode(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise WireError(f"no embeddings in it: {error}") from None
