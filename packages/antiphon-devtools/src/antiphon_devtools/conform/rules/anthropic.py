"""What the Messages API refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from antiphon_devtools.conform.bodies import Turns, merge_turns, objects, words
from antiphon_devtools.conform.conversation import Violation

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PARAMETERS = words(
    "model max_tokens messages system tools tool_choice stream temperature top_p top_k stop_sequences metadata"
    " thinking output_config output_format service_tier container context_management mcp_servers inference_geo"
    " cache_control speed betas fallback_credit_token diagnostics user_profile_id"
)
_NO_SAMPLING = re.compile(r"(.*/)?claude-(opus-4-[789]|[a-z]+-5)")
_NO_PREFILL = re.compile(r"(.*/)?claude-([a-z]+-4-[6789]|[a-z]+-5)")
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")


def check(body: dict[str, Any]) -> Iterator[Violation]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield Violation("AN-01", "messages", "messages: at least one message is required")
        return
    if not isinstance(body.get("max_tokens"), int | float):
        yield Violation("AN-01", "max_tokens", "max_tokens: Field required")
    for place, message in enumerate(messages):
        yield from _message(message, f"messages.{place}", is_last=place == len(messages) - 1)
    turns = merge_turns((str(each.get("role")), _blocks(each.get("content"))) for each in objects(messages))
    yield from _pairs(turns)
    yield from _tools(body)
    yield from _parameters(body, messages)
    yield from _breakpoints(body, messages)


def _message(message: Any, where: str, *, is_last: bool) -> Iterator[Violation]:
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
        yield Violation("AN-02", where, f"{where}.role: Input should be 'user' or 'assistant'")
        return
    for name in sorted(
        message.keys() - {"role", "content", *(["output_config"] if message["role"] == "system" else [])}
    ):
        yield Violation("AN-02", f"{where}.{name}", f"{where}.{name}: Extra inputs are not permitted")
    content = message.get("content")
    if not content and not (is_last and message["role"] == "assistant"):
        text = "all messages must have non-empty content except for the optional final assistant message"
        yield Violation("AN-04", where, f"{where}: {text}")
    if isinstance(content, str) and content and not content.strip():
        yield Violation("AN-05", where, "messages: text content blocks must contain non-whitespace text")
    for number, block in enumerate(objects(content)):
        yield from _block(block, message["role"], f"{where}.content.{number}")


def _block(block: dict[str, Any], role: str, at: str) -> Iterator[Violation]:
    match block.get("type"):
        case "text":
            if not str(block.get("text") or "").strip():
                yield Violation("AN-05", at, "messages: text content blocks must be non-empty")
        case "tool_use":
            if role != "assistant":
                yield Violation("AN-14", at, f"{at}: `tool_use` blocks can only be in `assistant` messages")
            if not _ID.fullmatch(str(block.get("id") or "")):
                yield Violation("AN-11", f"{at}.id", f"{at}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            if not isinstance(block.get("input"), dict):
                yield Violation("AN-12", f"{at}.input", f"{at}.input: Input should be a valid dictionary")
        case "tool_result":
            if role != "user":
                yield Violation("AN-14", at, f"{at}: `tool_result` blocks can only be in `user` messages")
        case "thinking":
            if not isinstance(block.get("signature"), str):
                yield Violation("AN-20", at, f"{at}.thinking.signature: Field required")
            elif role != "assistant":
                yield Violation("AN-14", at, f"{at}: `thinking` blocks can only be in `assistant` messages")
        case "image":
            given = block.get("source")
            source: dict[str, Any] = given if isinstance(given, dict) else {}
            if source.get("type") == "base64" and (
                source.get("media_type") not in _MEDIA or str(source.get("data")).startswith("data:")
            ):
                yield Violation("AN-24", at, f"{at}.source: media type and base64 data without a prefix are required")
            elif source.get("type") not in ("base64", "url", "file"):
                yield Violation("AN-24", at, f"{at}.source.type: Input should be 'base64', 'url' or 'file'")
        case "image_url" | "input_text" | "output_text" | None:
            yield Violation(
                "AN-13", at, f"{at}: Input tag '{block.get('type')}' does not match any of the expected tags"
            )


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def _pairs(turns: Turns) -> Iterator[Violation]:
    open_ids: list[Any] = []
    used: set[str] = set()
    for place, (_, blocks) in enumerate([*turns, ("end", [])]):
        leading = []
        for block in blocks:
            if block.get("type") != "tool_result":
                break
            leading.append(block.get("tool_use_id"))
        missing = [each for each in open_ids if each not in leading]
        if missing:
            text = (
                "`tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(map(str, missing))}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
            yield Violation("AN-08", f"messages.{place - 1}", f"messages.{place - 1}: {text}")
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        for wanted in dict.fromkeys(map(str, results)):
            if wanted not in map(str, open_ids):
                text = f"unexpected `tool_use_id` found in `tool_result` blocks: {wanted}."
                yield Violation("AN-09", f"messages.{place}", f"messages.{place}: {text}")
            elif list(map(str, results)).count(wanted) > 1:
                text = f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {wanted}"
                yield Violation("AN-10", f"messages.{place}", f"messages.{place}: {text}")
        open_ids = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        if len(set(map(str, open_ids))) != len(open_ids) or used & set(map(str, open_ids)):
            yield Violation("AN-10", f"messages.{place}", f"messages.{place}: `tool_use` ids must be unique")
        used |= set(map(str, open_ids))


def _tools(body: dict[str, Any]) -> Iterator[Violation]:
    names = []
    for place, tool in enumerate(objects(body.get("tools"))):
        names.append(tool.get("name"))
        if tool.get("type", "custom") not in ("custom", None):
            continue
        schema = tool.get("input_schema")
        if not _NAME.fullmatch(str(tool.get("name"))):
            yield Violation(
                "AN-16", f"tools.{place}.name", f"tools.{place}.custom.name: String should match the pattern"
            )
        if not isinstance(schema, dict) or schema.get("type") != "object":
            text = f"tools.{place}.custom.input_schema.type: Input should be 'object'"
            yield Violation("AN-16", f"tools.{place}.input_schema", text)
    if len(set(map(str, names))) != len(names):
        yield Violation("AN-16", "tools", "tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        yield Violation("AN-17", "tool_choice", "tool_choice may only be specified while providing tools")
    elif not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
        yield Violation("AN-17", "tool_choice", "tool_choice: Input tag does not match any of the expected tags")
    elif choice["type"] == "tool" and None not in names and choice.get("name") not in names:
        yield Violation("AN-17", "tool_choice", f"Tool '{choice.get('name')}' not found in provided tools")


def _parameters(body: dict[str, Any], messages: list[Any]) -> Iterator[Violation]:
    for name in sorted(body.keys() - _PARAMETERS):
        yield Violation("AN-27", name, f"{name}: Extra inputs are not permitted")
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 1:
        yield Violation("AN-21", "temperature", "temperature: range: 0..1")
    model = str(body.get("model"))
    is_sampling = temperature not in (None, 1) or body.get("top_k") is not None or (body.get("top_p") or 1) < 0.99
    if _NO_SAMPLING.match(model) and is_sampling:
        yield Violation("AN-21", "temperature", "temperature is deprecated for this model")
    last = messages[-1] if isinstance(messages[-1], dict) else {}
    if _NO_PREFILL.match(model) and last.get("role") == "assistant":
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        yield Violation("AN-07", "messages", text)
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield Violation(
                "AN-19", "thinking", "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        elif isinstance(limit, int) and budget >= limit and not body.get("tools"):
            yield Violation("AN-19", "thinking", "`max_tokens` must be greater than `thinking.budget_tokens`.")
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
            yield Violation("AN-19", "thinking", "Thinking may not be enabled when tool_choice forces tool use.")


def _breakpoints(body: dict[str, Any], messages: list[Any]) -> Iterator[Violation]:
    blocks = [*objects(body.get("tools")), *objects(body.get("system"))]
    for message in objects(messages):
        for block in objects(message.get("content")):
            blocks += [block, *(objects(block.get("content")) if block.get("type") == "tool_result" else ())]
    marked = [block for block in blocks if isinstance(block.get("cache_control"), dict)]
    if len(marked) > 4:
        text = f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
        yield Violation("AN-18", "", text)
    is_short = False
    for block in marked:
        if block.get("type") in ("thinking", "redacted_thinking"):
            yield Violation("AN-18", "", f"{block['type']}.cache_control: Extra inputs are not permitted")
        elif block.get("type") == "text" and not block.get("text"):
            yield Violation("AN-18", "", "cache_control cannot be set for empty text blocks")
        if block["cache_control"].get("ttl") != "1h":
            is_short = True
        elif is_short:
            text = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block."
            yield Violation("AN-18", "", text)
