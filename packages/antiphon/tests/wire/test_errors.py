"""Errors, by the same laws in every format: what a provider sent has a kind and a message, and is written and read again."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire import FORMATS, ProviderError, formats
from antiphon.wire.output import ErrorKind
from support.cases import each_case
from support.corpus import IS_SAMPLE, recorded
from support.history_strategies import json_values
from support.interactions_spec import problems
from support.wire_formats import plain


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def claude(kind: str, message: str = "x") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(message: str, word: str | None, code: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": word}}


KINDS: dict[str, list[tuple[ErrorKind, int | None, Any]]] = {
    "openai-chat": [
        ("authentication", 400, error("API key not valid. Please pass a valid API key.")),
        ("authentication", 401, "<html><body><h1>Unauthorized</h1></body></html>"),
        ("not_found", 400, error("Invalid model: x", type="invalid_model")),
        ("not_found", 404, error("Resource not found", code="404")),
        ("billing", 429, error("You exceeded your current quota", code="insufficient_quota")),
        ("rate_limit", 429, error("Provider returned error", code=429)),
        ("rate_limit", 200, error("Request too large: tokens per min (TPM)", code="rate_limit_exceeded")),
        ("rate_limit", 200, error("slow down", code=429)),
        ("context_length", 400, error("This model's maximum context length is 9 tokens")),
        ("context_length", 400, error("request exceeds", type="exceed_context_size_error", code=400)),
        ("permission", 403, error("Forbidden", code="forbidden")),
        ("invalid_request", 422, {"detail": [{"loc": ["body"], "msg": "extra fields not permitted"}]}),
        ("invalid_request", 400, {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}),
        ("server", 500, error("boom", code=500, type="server_error")),
    ],
    "openai-responses": [
        ("rate_limit", 429, json.dumps(error("no", code="rate_limit_exceeded"))),
        ("authentication", 401, b'{"detail": "Could not parse your authentication token."}'),
        ("authentication", 400, {"code": "x", "error": "Incorrect API key provided."}),
        ("server", 500, error("Internal", code=500)),
    ],
    "anthropic": [
        ("invalid_request", 400, claude("invalid_request_error", "temperature: range: 0..1")),
        ("context_length", 400, claude("invalid_request_error", "prompt is too long: 3333404 tokens > 200000 maximum")),
        (
            "context_length",
            400,
            claude("invalid_request_error", "input length and `max_tokens` exceed context limit: 1 + 2 > 3"),
        ),
        ("billing", 400, claude("invalid_request_error", "Your credit balance is too low to access the API.")),
        ("authentication", 401, claude("authentication_error", "invalid x-api-key")),
        ("billing", 402, claude("billing_error")),
        ("permission", 403, claude("permission_error")),
        ("not_found", 404, claude("not_found_error", "model: claude-9")),
        ("conflict", 409, claude("conflict_error")),
        ("too_large", 413, claude("request_too_large")),
        ("rate_limit", 429, claude("rate_limit_error")),
        ("server", 500, claude("api_error")),
        ("timeout", 504, claude("timeout_error")),
        ("overloaded", 529, claude("overloaded_error", "Overloaded")),
    ],
    "gemini": [
        ("authentication", 400, google("API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", 400)),
        (
            "context_length",
            400,
            google("The input token count (2) exceeds the maximum number of tokens (1).", "INVALID_ARGUMENT", 400),
        ),
        ("permission", 400, google("User location is not supported for the API use.", "FAILED_PRECONDITION", 400)),
        ("rate_limit", 400, google("You exceeded your current quota, see your plan.", "RESOURCE_EXHAUSTED", 400)),
        ("overloaded", 503, google("The model is overloaded.", "UNAVAILABLE", 503)),
        ("timeout", 504, google("Deadline expired.", "DEADLINE_EXCEEDED", 504)),
        ("server", 500, google("Internal error.", "INTERNAL", 500)),
        ("not_found", 404, google("?", None, 404)),
        ("invalid_request", 418, google("?", None, 418)),
        ("server", 502, {"error": {"code": "x"}}),
    ],
    "gemini-interactions": [
        ("not_found", 404, error("Result not found.", code="not_found", details=[1])),
        ("rate_limit", None, {"status": "failed", "errors": [{"code": "resource_exhausted", "message": "quota"}]}),
        ("rate_limit", None, {"status": "cancelled", "errors": [{"code": "resource_exhausted", "message": "quota"}]}),
    ],
}
"""What the providers of a format send."""


@pytest.mark.parametrize(
    ("name", "kind", "status", "body"), [(name, *row) for name, rows in KINDS.items() for row in rows]
)
def test_an_error_has_a_kind_and_comes_back(name: str, kind: ErrorKind, status: int | None, body: Any) -> None:
    wire = formats[name]
    found = wire.read_error(body, status)
    assert found.kind == kind
    assert found.message
    given = body if isinstance(body, str | bytes) else msgspec.json.encode(body)
    assert wire.read_error(given, status) == found
    written = plain(wire.write_error(found))
    again = wire.read_error(written, found.status)
    assert (again.kind, again.message) == (found.kind, found.message)
    if name == "anthropic":  # its errors name their kind: the status adds nothing
        assert wire.read_error(body) == found


CODED = error("no", type="invalid_request_error", param="input", code="invalid_value")
OWN: list[tuple[str, Any]] = [
    ("openai-chat", CODED),
    ("openai-responses", CODED),
    *(("anthropic", body) for _, _, body in KINDS["anthropic"]),
    ("gemini", {"error": {**google("Quota.", "RESOURCE_EXHAUSTED", 429)["error"], "details": [1]}}),
    ("gemini-interactions", error("Result not found.", code="not_found", details=[1])),
]


@each_case(("name", "body"), OWN)
def test_an_error_of_a_format_goes_back_unchanged(name: str, body: Any) -> None:
    assert formats[name].write_error(formats[name].read_error(body)) == body


SAME_KIND = {
    "anthropic": {"context_length": "invalid_request", "stream_cut": "server", "unknown": "server"},
    "gemini": {"context_length": "invalid_request", "stream_cut": "server", "unknown": "server"},
    "gemini-interactions": {
        "context_length": "invalid_request",
        "too_large": "invalid_request",
        "billing": "invalid_request",
        "stream_cut": "server",
    },
}
"""Kinds for which a format has one word."""
SHAPES: dict[str, set[str]] = {
    "openai-chat": {"message", "type", "param", "code"},
    "openai-responses": {"message", "type", "param", "code"},
    "anthropic": {"type", "message"},
    "gemini": {"code", "message", "status"},
    "gemini-interactions": {"code", "message"},
}


@each_case("kind", get_args(ErrorKind))
@each_case("name", FORMATS)
def test_an_error_of_another_format_keeps_its_kind(name: str, kind: ErrorKind) -> None:
    other = ProviderError("it failed", kind, code="made_up", native={"toy": {"x": 1}})
    body = plain(formats[name].write_error(other))
    assert body["error"].keys() == SHAPES[name]
    assert body["error"]["message"] == "it failed"
    assert "made_up" not in str(body)
    assert formats[name].read_error(body).kind == SAME_KIND.get(name, {}).get(kind, kind)
    if name == "gemini-interactions":
        assert problems("Error", body["error"]) == []


def test_an_error_of_another_format_has_the_word_for_its_kind_and_its_status() -> None:
    overloaded = ProviderError("Busy.", "overloaded", 529, "overloaded_error")
    assert formats["anthropic"].write_error(overloaded) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Busy."},
    }
    assert formats["gemini"].write_error(overloaded) == google("Busy.", "UNAVAILABLE", 529)


ANY_FORMAT: list[tuple[Any, int | None, ErrorKind, str]] = [
    (None, 429, "rate_limit", "HTTP status 429 without a message"),
    (None, 502, "server", "HTTP status 502 without a message"),
    (None, 503, "overloaded", "HTTP status 503 without a message"),
    (None, None, "unknown", "the provider gave no error message"),
    ("", 502, "server", "HTTP status 502 without a message"),
    ([], 502, "server", "HTTP status 502 without a message"),
    ({}, 413, "too_large", "HTTP status 413 without a message"),
    ([1], None, "unknown", "the provider gave no error message"),
    ("<html>Bad gateway</html>", 502, "server", "Bad gateway"),
    ("upstream request timeout", 504, "timeout", "upstream request timeout"),
    (b"\xff\xfe", 529, "overloaded", "\ufffd\ufffd"),
    ({"message": "URL sources are not supported"}, 400, "invalid_request", "URL sources are not supported"),
    ({"error": "no"}, 418, "invalid_request", "no"),
    (error("m", type="of_tomorrow"), None, "unknown", "m"),
    (error("API key is invalid."), 400, "authentication", "API key is invalid."),
    ([error("Too slow", code=503)], 503, "overloaded", "Too slow"),
    ({"error": {"type": 5, "message": 6}}, 599, "server", '{"type":5,"message":6}'),
    ({"error": {"message": {"a": 1}}}, 422, "invalid_request", '{"message":{"a":1}}'),
]
"""What proxies and hosts send in place of an error of the format."""


@each_case(("body", "status", "kind", "message"), ANY_FORMAT)
@each_case("name", FORMATS)
def test_an_odd_body_is_an_error(name: str, body: Any, status: int | None, kind: ErrorKind, message: str) -> None:
    found = formats[name].read_error(body, status)
    assert (found.kind, found.message) == (kind, message)
    assert plain(formats[name].write_error(found))["error"]["message"] == message


@pytest.mark.parametrize("name", FORMATS)
@given(
    body=json_values | st.binary(max_size=20) | st.text(max_size=20),
    status=st.none() | st.integers(0, 999),
)
def test_any_body_is_an_error(name: str, body: Any, status: int | None) -> None:
    wrapped = ({"error": body}, {"detail": body}, [body], {"error": {"message": body, "code": body, "type": body}})
    for given_body in (body, *wrapped):
        found = formats[name].read_error(given_body, status)
        assert found.message
        assert found.status == status or status is None or not 400 <= status < 600
        assert plain(formats[name].write_error(found))["error"]["message"] == found.message


IN_THE_SAMPLE: dict[str, dict[str, int]] = {
    "openai-chat": {
        "authentication": 11,
        "invalid_request": 13,
        "not_found": 13,
        "permission": 1,
        "rate_limit": 2,
        "server": 2,
    },
    "openai-responses": {"invalid_request": 5, "billing": 1, "not_found": 7, "authentication": 4},
    "anthropic": {"authentication": 1, "not_found": 4, "invalid_request": 10},
    "gemini": {"invalid_request": 8, "authentication": 5, "not_found": 4, "rate_limit": 1, "permission": 1},
}


@pytest.mark.parametrize("name", IN_THE_SAMPLE)
def test_every_recorded_error_has_a_kind_and_comes_back(name: str) -> None:
    kinds: Counter[str] = Counter()
    for record in [*recorded(name), *(recorded("openai_compatible") if name == "openai-chat" else ())]:
        body, status = record["response"], record["status"]
        if status < 400:
            continue
        found = formats[name].read_error(body, status)
        assert found.kind != "unknown", record["id"]
        kinds[found.kind] += 1
        written = plain(formats[name].write_error(found))
        again = formats[name].read_error(written, status)
        assert (again.kind, again.message) == (found.kind, found.message), record["id"]
        if isinstance(body, dict) and isinstance(body.get("error"), dict) and body["error"].get("message"):
            stated = {key: value for key, value in body["error"].items() if value is not None and key != "code"}
            assert {key: written["error"][key] for key in stated} == stated, record["id"]
            assert found.message == body["error"]["message"]
    assert kinds == IN_THE_SAMPLE[name] or not IS_SAMPLE
