"""What each API accepts, restated in small checks, and where each rule is known from (`sources.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, convert

from antiphon_devtools.conform.conversation import Violation
from antiphon_devtools.conform.rules import anthropic, gemini, gemini_interactions, openai_chat, openai_responses

Check = Callable[[dict[str, Any], str], Iterator[Violation]]
_CHECKS: dict[str, Check] = {
    "openai-chat": lambda body, _: openai_chat.check(body),
    "openai-responses": lambda body, _: openai_responses.check(body),
    "anthropic": lambda body, _: anthropic.check(body),
    "gemini": gemini.check,
    "gemini-interactions": lambda body, _: gemini_interactions.check(body),
}


class Source(Struct, frozen=True):
    """A rule in one sentence, and where it is known from."""

    rule: str
    source: str


@cache
def sources() -> dict[str, Source]:
    """Every rule of the suite, by id."""
    text = (Path(__file__).parent / "sources.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), dict[str, Source])


def violations(format_name: str, body: Any, path: str = "") -> list[Violation]:
    """The rules that a request body breaks. `path` is the request path, which names the model in Gemini's API."""
    if not isinstance(body, dict):
        return [Violation("JSON", "", "the request body is not a JSON object")]
    return list(_CHECKS[format_name](body, path))
