"""Checks of the messages of a Messages request, and of their order.

Paths are those of the body (`messages.3.content.0.tool_use_id`), without the union tags the provider adds.
`check_sequence` checks only the order.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.wire.anthropic.limits import (
    MAX_MESSAGES,
    MESSAGE_FIELDS,
    ROLES,
    SERVER_CALLS,
    SYSTEM_FIELDS,
    is_server_block,
)
from antiphon.wire.anthropic.parameters import find_loop_without_thinking, is_prefilled_without_thinking
from antiphon.wire.anthropic.rules.blocks import (
    EXTRA_FIELD,
    LIST,
    MISSING_FIELD,
    WRONG_SHAPE,
    check_block,
    expected_one_of,
    unknown_fields,
    with_prefix,
)
from antiphon.wire.anthropic.rules.parameters import MessagesContext
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.rules import Violation
from antiphon.wire.vendors.anthropic import block_type

_STRING_CONTENT = [{"type": "text"}]


def check_messages(context: MessagesContext) -> None:
    messages = context.body.get("messages")
    if not isinstance(messages, list):
        context.error("AN-01", "messages", LIST if "messages" in context.body else MISSING_FIELD)
        return
    if not messages:
        context.error("AN-01", "messages", "at least one message is required")
        return
    if len(messages) > MAX_MESSAGES:
        message = f"List should have at most {MAX_MESSAGES} items after validation, not {len(messages)}"
        context.error("AN-01", "messages", message)
    final = len(messages) - 1
    for index, message in enumerate(messages):
        _check_message(context, index, message, index == final)
    thread = context.body.get("thread")
    is_continued = isinstance(thread, dict) and thread.get("type") == "continue"
    context.violations.extend(check_sequence(messages, is_continued=is_continued))
    _check_ending(context, final, messages[final])
    _check_thinking_loop(context, messages)
    _check_cross_field(context)
    for path, reason in media_problems(messages, "messages", context.model, with_types=False):
        context.error("AN-24", path, reason)


def _check_message(context: MessagesContext, index: int, message: Any, is_final: bool) -> None:
    if not isinstance(message, dict):
        context.error("AN-02", f"messages.{index}", WRONG_SHAPE)
        return
    if message.keys() != MESSAGE_FIELDS:
        for name in sorted(MESSAGE_FIELDS - message.keys()):
            context.error("AN-02", f"messages.{index}.{name}", MISSING_FIELD)
        known = SYSTEM_FIELDS if message.get("role") == "system" else MESSAGE_FIELDS
        context.violations.extend(with_prefix(f"messages.{index}", unknown_fields("AN-02", message, known)))
    role, content = message.get("role"), message.get("content")
    if "role" in message and role not in ROLES:
        context.error("AN-02", f"messages.{index}.role", expected_one_of(ROLES))
        return
    if role == "system" and context.first_system is None:
        context.first_system = index
    if not content and (content == "" or content == []):
        if not (is_final and role == "assistant"):
            message_text = "all messages must have non-empty content except for the optional final assistant message"
            context.error("AN-04", f"messages.{index}", message_text)
    elif isinstance(content, str):
        if content.isspace():
            context.error("AN-05", f"messages.{index}.content", "text content blocks must contain non-whitespace text")
    elif isinstance(content, list):
        _check_content(context, index, role or "user", content)
    elif "content" in message:
        context.error("AN-02", f"messages.{index}.content", WRONG_SHAPE)


def _check_content(context: MessagesContext, index: int, role: str, content: list[Any]) -> None:
    for position, block in enumerate(content):
        block_violations = check_block(block, role)
        if block_violations:
            context.violations.extend(with_prefix(f"messages.{index}.content.{position}", block_violations))
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if "cache_control" in block:
            context.add_cache_breakpoint(f"messages.{index}.content.{position}", block)
        citations = block.get("citations")
        if isinstance(citations, dict):
            context.citations_enabled = context.citations_enabled or citations.get("enabled") is True
        elif citations and role == "user" and context.target.is_version_2026_10 and kind == "text":
            context.error("AN-28", f"messages.{index}.content.{position}.citations", EXTRA_FIELD)
        if kind == "tool_use" and context.first_call is None:
            context.first_call = index
        elif kind == "tool_result" and isinstance(block.get("content"), list):
            for inner, part in enumerate(block["content"]):
                if isinstance(part, dict) and "cache_control" in part:
                    context.add_cache_breakpoint(f"messages.{index}.content.{position}.content.{inner}", part)
        elif kind == "document" and role == "assistant" and context.target.is_version_2026_10:
            message = "`document` blocks are not permitted in `assistant` messages"
            context.error("AN-28", f"messages.{index}.content.{position}", message)
        elif kind == "image" and context.target.is_on_bedrock and block_type(block.get("source")) == "url":
            context.error("AN-24", f"messages.{index}.content.{position}.source", "URL sources are not supported")


def _check_ending(context: MessagesContext, final: int, message: Any) -> None:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    last = blocks[-1].get("text") if blocks and block_type(blocks[-1]) == "text" else content
    if isinstance(last, str) and last[-1:].isspace():
        context.error("AN-06", f"messages.{final}", "final assistant content cannot end with trailing whitespace")
    # A turn with a server call may be one that the provider paused during its own tools (pause_turn).
    is_paused = any(block_type(block) in SERVER_CALLS for block in blocks)
    is_continued = is_paused or context.body.get("fallback_credit_token") is not None
    if not context.target.model.prefill and not is_continued:
        prefill = (
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
        context.error("AN-07", f"messages.{final}", prefill)


def _role_and_blocks(message: Any) -> tuple[str, list[Any]]:
    if not isinstance(message, dict):
        return "", []
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        content = _STRING_CONTENT if content else []
    return role if isinstance(role, str) else "", content if isinstance(content, list) else []


def _check_thinking_loop(context: MessagesContext, messages: list[Any]) -> None:
    """The current tool loop has no thinking blocks although thinking is enabled (AN-30)."""
    thinking = context.body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    if not context.target.model.prefill_with_thinking and is_prefilled_without_thinking(messages):
        message = (
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block. "
            "To avoid this requirement, disable `thinking`."
        )
        context.error("AN-19", f"messages.{len(messages) - 1}.content.0.type", message)
    last_call = find_loop_without_thinking(messages)
    if last_call is not None and _role_and_blocks(messages[-1])[0] == "user":
        index, kind = last_call
        message = (
            f"Expected `thinking` or `redacted_thinking`, but found `{kind[:80]}`. When `thinking` is enabled, a final "
            "`assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks)."
        )
        context.error("AN-30", f"messages.{index}.content.0.type", message)


def _check_cross_field(context: MessagesContext) -> None:
    """Rules that combine the messages with parameters."""
    body, system = context.body, context.first_system
    if system is not None:
        if not context.target.accepts_system_role(is_native=True):
            context.error("AN-03", f"messages.{system}", "role 'system' is not supported on this model")
        elif context.target.model.system_messages == "ignored":
            context.advise("AN-03", f"messages.{system}", "role 'system' is accepted but ignored by this model")
    if context.citations_enabled:
        message, config = "citations are not supported together with an output format", body.get("output_config")
        if body.get("output_format"):
            context.error("AN-32", "output_format", message)
        elif isinstance(config, dict) and config.get("format"):
            context.error("AN-32", "output_config.format", message)
    if context.first_call is not None and not body.get("tools") and not body.get("mcp_servers"):
        advice = "a history with tool calls is refused by some hosts when no tools are given"
        context.advise("AN-31", f"messages.{context.first_call}", advice)


def check_cache_breakpoints(context: MessagesContext) -> None:
    breakpoints = context.cache_breakpoints
    limit = context.target.model.cache_breakpoints
    if limit is not None and len(breakpoints) > limit:
        context.error(
            "AN-18",
            "",
            f"A maximum of {limit} blocks with cache_control may be provided. Found {len(breakpoints)}.",
        )
    has_five_minutes = False
    for path, cache_control in breakpoints:
        if cache_control.get("ttl") != "1h":
            has_five_minutes = True
        elif has_five_minutes:
            message = (
                "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
                "Note that blocks are processed in the following order: tools, system, messages."
            )
            context.error("AN-18", f"{path}.cache_control.ttl", message)


def check_sequence(messages: list[Any], *, is_continued: bool = False) -> list[Violation]:
    """The rules the order of messages, calls and results breaks (AN-03, AN-08 to AN-10, AN-25, AN-29).

    `is_continued`: the server has earlier turns, so the first results may belong to calls that are not here.
    """
    sequence = _TurnChecker(is_continued=is_continued)
    for index, message in enumerate(messages):
        sequence.read(index, message)
    sequence.end_turn("")
    return sequence.violations


class _TurnChecker(Struct):
    """The messages so far, as turns: the provider merges messages of one role before it checks (AN-02).

    System messages belong to no turn: calls before one may be answered after it.
    """

    violations: list[Violation] = []
    role: str = ""  # of the current turn
    previous: str = ""  # role of the previous message, system included
    last_kind: str = ""  # type of the previous block
    calls: dict[str, int] = {}  # calls of the last assistant turn without a result: id, message index
    answered: set[str] = set()  # those with a result
    seen: set[str] = set()  # every call id so far
    server_call_ids: set[str] = set()  # calls the provider runs itself
    is_leading: bool = False  # nothing but results yet in this user turn
    text_after_call_reported: bool = False
    is_continued: bool = False  # until the first assistant turn

    def read(self, index: int, message: Any) -> None:
        role, blocks = _role_and_blocks(message)
        if role == "system":
            if index == 0:
                self._report_system(0, "use the top-level 'system' parameter for the initial system prompt")
            elif self.previous == "assistant" and not is_server_block(self.last_kind):
                position_text = "a 'user' message or an 'assistant' message ending in a server tool use"
                self._report_system(index, f"role 'system' must follow {position_text}")
        else:
            if self.previous == "system" and role != "assistant" and self.role:
                self._report_system(index - 1, "role 'system' must precede an 'assistant' message or end the array")
            if role != self.role:
                self.end_turn(role)
            for position, block in enumerate(blocks):
                self._read_block(index, position, block)
        self.previous = role
        self.is_continued = self.is_continued and role != "assistant"

    def _report_system(self, index: int, message: str) -> None:
        self.violations.append(Violation("AN-03", f"messages.{index}", message))

    def end_turn(self, role: str) -> None:
        """End the current turn before one of another role."""
        is_answering = self.role == "assistant" and role == "user"
        if not is_answering:
            if self.calls:
                self._report_calls("AN-08")
            self.calls = {}
        self.answered = set()
        self.role = role
        self.is_leading = is_answering
        self.text_after_call_reported = False

    def _report_calls(self, rule: str) -> None:
        message = (
            "`tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(self.calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
        self.violations.append(Violation(rule, f"messages.{next(iter(self.calls.values()))}", message))

    def _read_block(self, index: int, position: int, block: Any) -> None:
        kind = self.last_kind = block_type(block)
        if kind == "tool_result":
            if self.role != "assistant":
                self._read_result(index, position, block.get("tool_use_id"))
            return
        self.is_leading = False
        if kind == "tool_use":
            self._read_call(index, position, block.get("id"))
        elif kind in SERVER_CALLS:
            if isinstance(block.get("id"), str):
                self.server_call_ids.add(block["id"])
        elif kind.endswith("_tool_result"):
            self._read_server_result(index, position, kind, block.get("tool_use_id"))
        elif kind == "text" and self.calls and self.role == "assistant" and not self.text_after_call_reported:
            # Rejected in the only recording, although documented as a recommendation (AN-29).
            self._report_calls("AN-29")
            self.text_after_call_reported = True

    def _read_call(self, index: int, position: int, call_id: Any) -> None:
        if not isinstance(call_id, str) or self.role != "assistant":
            return
        if call_id in self.seen:
            message = "`tool_use` ids must be unique"
            self.violations.append(Violation("AN-10", f"messages.{index}.content.{position}", message))
        self.seen.add(call_id)
        self.calls[call_id] = index

    def _read_result(self, index: int, position: int, call_id: Any) -> None:
        if not isinstance(call_id, str):
            return
        if call_id in self.answered:
            message = f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}"
            self.violations.append(Violation("AN-10", f"messages.{index}.content.{position}", message))
        elif call_id not in self.calls and self.is_continued:
            self.answered.add(call_id)
        elif call_id not in self.calls:
            message = (
                f"unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
            self.violations.append(Violation("AN-09", f"messages.{index}.content.{position}", message))
        else:
            self.answered.add(call_id)
            # A result after other content does not count: the call is reported at the end of the turn (AN-08).
            if self.is_leading:
                del self.calls[call_id]

    def _read_server_result(self, index: int, position: int, kind: str, call_id: Any) -> None:
        if isinstance(call_id, str) and call_id not in self.server_call_ids:
            message = (
                f"unexpected `tool_use_id` found in `{kind}` blocks: {call_id}. "
                f"Each `{kind}` block must have a corresponding `server_tool_use` block before it."
            )
            self.violations.append(Violation("AN-25", f"messages.{index}.content.{position}", message))
