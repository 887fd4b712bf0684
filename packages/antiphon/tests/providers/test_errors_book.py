"""Every recorded error: what kind it is, and what is done about it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from antiphon.providers.retry import RETRY_RULES, may_retry
from antiphon.wire import formats
from antiphon.wire.output import ErrorKind, ProviderError
from support.cases import each_case
from support.corpus import SAMPLE

FORMATS = {
    "openai_chat": "openai-chat",
    "openai_compatible": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic_messages": "anthropic",
    "gemini": "gemini",
}

# The first line whose words are found in a row (vendor, status, type, code and message) says what it is.
EXPECTED: tuple[tuple[str, ErrorKind], ...] = (
    # the key: a 400 at three vendors, a 403 at a fourth
    (r"(google|vertex) 400 .*API key not valid", "authentication"),
    (r"xai 400 .*Incorrect API key", "authentication"),
    (r"google 403 .*unregistered callers", "authentication"),
    (r" 401 ", "authentication"),
    # money and plans are not the same as hurry; Google says "quota" for both, and its status word tells
    (r"insufficient_quota", "billing"),
    (r"RESOURCE_EXHAUSTED", "rate_limit"),
    (r" 429 |rate_limit_exceeded", "rate_limit"),
    # the conversation is too long, in nine wordings
    (
        r"prompt is too long|input token count|maximum context length|context size|prompt too long|Token limit reached"
        r"|too_many_prompt_tokens|context_length_exceeded",
        "context_length",
    ),
    # there is no such model, with 404 or with 400
    (r" 404 |model_not_found|supported API model names|Invalid model|not a valid model|Model not found", "not_found"),
    (r"previous_response_not_found", "not_found"),
    (r" 403 |User location is not supported", "permission"),
    # refused for what it says, in a 200 or with a status
    (r"content_filter|tool_use_failed", "invalid_request"),
    # llama.cpp says 500 to what will never work
    (r"llamacpp 500 .*(Cannot use both|is not supported|requires --jinja)", "invalid_request"),
    (r" 500 ", "server"),
    (r" 400 ", "invalid_request"),
)


class Row(NamedTuple):
    """One recorded error."""

    format: str
    vendor: str
    status: int | None
    words: str
    body: dict[str, Any]


def rows() -> list[Row]:
    found = []
    for line in (SAMPLE / "errors.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 7 and cells[0] in FORMATS:
            found.append(read_row(*cells[:5]))
    return found


def read_row(book: str, vendor: str, status: str, headline: str, message: str) -> Row:
    kind, _, code_text = (part.strip(" /") for part in headline.partition("code="))
    code: str | int | None = int(code_text) if code_text.isdigit() else code_text.strip("'") or None
    inner: dict[str, Any] = {"message": message, "type": kind or None, "code": code}
    body: dict[str, Any] = {"error": inner}
    if book == "gemini":
        body = {"error": {"code": code, "message": message, "status": kind}}
    elif book == "anthropic_messages":
        body = {"type": "error", "error": {"type": kind, "message": message}} if kind else {"message": message}
    elif vendor == "xai":
        body = {"code": kind, "error": message}
    elif vendor == "chatgpt":
        body = {"detail": message}
    number = int(status.split()[0])
    words = f"{vendor} {status} {headline} {message}"
    return Row(FORMATS[book], vendor, None if number == 200 else number, words, body)


ROWS = rows()


def read(row: Row) -> ProviderError:
    return formats[row.format].read_error(row.body, row.status)


def test_errors_of_every_recorded_format_have_rows() -> None:
    assert len(ROWS) > 150
    assert {row.format for row in ROWS} == set(formats) - {"gemini-interactions"}, "no error of that API was recorded"


@each_case("row", ROWS)
def test_every_recorded_error_has_its_kind(row: Row) -> None:
    expected = next(kind for words, kind in EXPECTED if re.search(words, row.words))
    assert read(row).kind == expected


def test_every_expectation_is_about_some_row() -> None:
    used = {next(words for words, _ in EXPECTED if re.search(words, row.words)) for row in ROWS}
    assert used == {words for words, _ in EXPECTED}


# The reaction to each: another key, a retry, a fallback.
# ruff: noqa: E501 - a table reads better in lines
DONE: tuple[tuple[str, int | None, dict[str, Any], ErrorKind, str], ...] = (
    ("gemini", 400, {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}, "authentication", "rotate, fall back"),
    ("openai-responses", 400, {"code": "invalid-argument", "error": "Incorrect API key provided."}, "authentication", "rotate, fall back"),
    ("openai-chat", 429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, "billing", "rotate, fall back"),
    ("openai-chat", 429, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, "rate_limit", "rotate, retry, fall back"),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}, "billing", "rotate, fall back"),
    ("anthropic", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", "retry, fall back"),
    ("anthropic", None, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", "retry, fall back"),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 5"}}, "context_length", "fall back to another model"),
    ("anthropic", 413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the size"}}, "too_large", "fall back to another model"),
    ("openai-chat", 404, {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}, "not_found", "fall back"),
    ("openai-chat", 400, {"error": {"message": "filtered", "code": "content_filter"}}, "invalid_request", "give up"),
    ("openai-chat", 400, {"error": {"message": "Missing required parameter"}}, "invalid_request", "give up"),
    ("openai-chat", 502, {"error": {"message": "Bad gateway"}}, "server", "retry, fall back"),
    ("openai-chat", 503, {}, "overloaded", "retry, fall back"),
    ("gemini", 503, {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}, "overloaded", "retry, fall back"),
    ("gemini", 504, {"error": {"code": 504, "message": "Deadline expired", "status": "DEADLINE_EXCEEDED"}}, "timeout", "retry, fall back"),
    ("gemini", 403, {"error": {"code": 403, "message": "denied", "status": "PERMISSION_DENIED"}}, "permission", "rotate, fall back"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "status", "body", "kind", "done"), DONE)
def test_retry_rotation_and_fallback_for_each_recorded_error(
    name: str, status: int | None, body: Any, kind: ErrorKind, done: str
) -> None:
    error = formats[name].read_error(body, status)
    assert error.kind == kind
    does = ["rotate"] if RETRY_RULES[error.kind].rotates else []
    does += ["retry"] if may_retry(error) else []
    reach = RETRY_RULES[error.kind].fallback
    does += {"anywhere": ["fall back"], "another model": ["fall back to another model"]}.get(reach, [])
    assert ", ".join(does or ["give up"]) == done
