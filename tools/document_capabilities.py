"""The tables "what happens to X on model Y", made by asking the writers themselves; `reference_pages.py` puts them on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from antiphon.parts import Audio, Document, Image, Text
from antiphon.wire import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition, formats
from antiphon.wire.capabilities import capability_data

VENDORS = (("OpenAI", "openai-chat"), ("Anthropic", "anthropic"), ("Google", "gemini"))

_ASK = Message("user", (Text("?"),))
_TOOL = ToolDefinition("t", None, {"type": "object", "properties": {}})
_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
_SETTINGS = ("reasoning_effort", "reasoning", "thinking", "output_config", "thinkingConfig")


def _setting(body: dict[str, Any]) -> str:
    """What was sent to set thinking."""
    sent = [
        str(value) for name in _SETTINGS for value in _scalars(body.get(name)) if value not in ("enabled", True, None)
    ]
    return ", ".join(sent) or "dropped"


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _scalars(inner)
    else:
        yield value


def _kept(*names: str) -> Callable[[dict[str, Any]], str]:
    def outcome(body: dict[str, Any]) -> str:
        kept = [name for name in names if name in body or _camel(name) in body]
        return "kept" if len(kept) == len(names) else ", ".join(kept) or "dropped"

    return outcome


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _output_tokens(body: dict[str, Any]) -> str:
    names = ("max_completion_tokens", "max_tokens", "maxOutputTokens")
    value = next(body[name] for name in names if name in body)
    return "kept" if value == 10**7 else f"{value:,}"


def _forced(body: dict[str, Any]) -> str:
    choice = body.get("tool_choice")
    is_forced = (
        choice == "required" or (isinstance(choice, dict) and choice.get("type") == "any") or "toolConfig" in body
    )
    switches = {name: value for name, value in body.items() if name != "output_config"}
    is_thinking = _setting(switches) != "dropped"
    return f"{'forced' if is_forced else 'auto'}, {'thinking' if is_thinking else 'no thinking'}"


def _prefill(body: dict[str, Any]) -> str:
    messages = body.get("messages") or body["contents"]
    return "kept" if messages[-1]["role"] in ("assistant", "model") else "“(continue)” added"


_MEDIA = {
    "image": Image("image/png", "iVBORw0KGgo="),
    "PDF": Document("application/pdf", "JVBERi0xLjQK"),
    "audio": Audio("audio/wav", "UklGRgAAAABXQVZF"),
    "video": Document("video/mp4", "AAAAGGZ0eXBpc29t"),
}


def _media(body: dict[str, Any]) -> str:
    """The media that were sent; the others became notes."""
    text = str(body)
    kept = [name for name, part in _MEDIA.items() if part.data in text]
    return "kept" if len(kept) == len(_MEDIA) else ", ".join(kept) or "notes"


def _has_schema(body: dict[str, Any]) -> str:
    names = ("response_format", "responseJsonSchema")
    return "kept" if any(name in body for name in names) or "format" in body.get("output_config", {}) else "dropped"


QUESTIONS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], str]]] = {
    "`temperature`": ({"temperature": 0.5}, _kept("temperature")),
    "both `temperature` and `top_p`": ({"temperature": 0.5, "top_p": 0.5}, _kept("temperature", "top_p")),
    "effort none": ({"reasoning": Reasoning("none")}, _setting),
    "effort minimal": ({"reasoning": Reasoning("minimal")}, _setting),
    "effort medium": ({"reasoning": Reasoning("medium")}, _setting),
    "effort max": ({"reasoning": Reasoning("max")}, _setting),
    "budget 50,000": ({"reasoning": Reasoning(budget_tokens=50_000)}, _setting),
    "forced tool, effort high": (
        {"reasoning": Reasoning("high"), "tools": (_TOOL,), "tool_choice": ToolChoice("required")},
        _forced,
    ),
    "prefill": ({"messages": (_ASK, Message("assistant", (Text("It"),)))}, _prefill),
    "output schema": ({"output_format": OutputFormat("json_schema", _SCHEMA)}, _has_schema),
    "image, PDF, audio, video": ({"messages": (Message("user", tuple(_MEDIA.values())),)}, _media),
    "10 million output tokens": ({"max_output_tokens": 10**7}, _output_tokens),
}


def answer(question: str, model: str, format_name: str) -> str:
    """What the writer does with a request for this model."""
    fields, outcome = QUESTIONS[question]
    request = ModelRequest(**{"messages": (_ASK,), "model": model, **fields})
    body = formats[format_name].write_request(request).body
    return outcome({**body, **body.get("generationConfig", {})})


def tables() -> str:
    """The tables as Markdown."""
    parts = []
    for vendor, format_name in VENDORS:
        lines = [f"## {vendor}", "", f"| family | {' | '.join(QUESTIONS)} |", f"| --- |{' --- |' * len(QUESTIONS)}"]
        for family in capability_data().families:
            if format_name in family.home:
                cells = [answer(question, family.examples[0], format_name) for question in QUESTIONS]
                lines.append(f"| {family.name} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
