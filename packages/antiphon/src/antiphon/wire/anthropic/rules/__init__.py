"""The rules of the Messages API (AN-01 to AN-33) as rows.

`tables` has the rows about single objects; here are the rules about several values, and the book. Rules that depend on the
model apply only if its name has a known version. Paths are those of the body (`messages.3.content.0.tool_use_id`), without the
union tags the provider adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.anthropic import FORMAT, SPEC
from antiphon.wire.anthropic.cache_breakpoints import judge_breakpoints, limit_breakpoints, marked_blocks
from antiphon.wire.anthropic.limits import (
    CHOICES,
    FORCED_CHOICES,
    HOST_PARAMETERS,
    MAX_OPTIONAL_PARAMETERS,
    MAX_STRICT_TOOLS,
    MAX_UNION_PARAMETERS,
    PARAMETER_TABLE,
    PARAMETERS,
    SAMPLING,
    SERVER_CALLS,
    VERSION,
    Target,
    is_server_block,
    refusals,
    target_for,
)
from antiphon.wire.anthropic.rules.tables import BODY, ROLES
from antiphon.wire.anthropic.rules.thinking import FORCED_ADAPTIVE, THINKING_RULES, thinking_type
from antiphon.wire.anthropic.shapes import block_type
from antiphon.wire.anthropic.tools import is_declared
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss, other_fields
from antiphon.wire.rules import Checked, each, list_of
from antiphon.wire.rules.book import CrossRule, Finding, RuleBook, accepted_media
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.tools.schema import count_optional_and_unions, grammar_policy, problems


def _target(body: dict[str, Any], options: WriteOptions, model: Capabilities) -> Target:
    """`options.version` is the `anthropic-version` header."""
    return target_for(model, options.version or VERSION, body.get("anthropic_version"))


def _entries(body: dict[str, Any]) -> list[tuple[int, str, list[Any]]]:
    """The index, the role and the blocks of each message; text alone is a block too."""
    entries: list[tuple[int, str, list[Any]]] = []
    for index, message in enumerate(list_of(body.get("messages"))):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        blocks = ([{"type": "text"}] if content else []) if isinstance(content, str) else list_of(content)
        entries.append((index, role if isinstance(role, str) else "", blocks))
    return entries


def _find_required(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if "model" in body and not isinstance(body["model"], str):
        yield "model", rows.expected("a string", body["model"])
    if body.get("max_tokens") is None:
        yield "max_tokens", "Field required"


def _find_unknown_names(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    known = PARAMETERS if "model" in body else HOST_PARAMETERS
    yield from ((name, "unknown field") for name in body if name not in known)


def _refused(rule: str) -> CrossRule:
    """The sampling parameters that the model refuses by this rule."""

    def find(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
        if not found.target.is_version_2026_10 and any(name in body for name in SAMPLING):
            present = {name: body.get(name) if rows.is_number(body.get(name)) else None for name in SAMPLING}
            thinking = body.get("thinking") if thinking_type(body) == "enabled" else None
            refused = refusals(present["temperature"], present["top_p"], present["top_k"], thinking, found.target)
            yield from PARAMETER_TABLE.find_refused(present, refused, rule)

    return CrossRule(rule, find)


def _find_empty_messages(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    messages = list_of(body.get("messages"))
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        role = message.get("role") if isinstance(message, dict) else ""
        is_prefill = role == "assistant" and index + 1 == len(messages)
        if content in ("", []) and role in (*ROLES, None) and not is_prefill:
            yield ("messages", index), "only the last message, of the assistant, may be empty"


def _find_version_blocks(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    for index, role, blocks in found.entries if found.target.is_version_2026_10 else ():
        for position, block in enumerate(blocks):
            kind, place = block_type(block), ("messages", index, "content", position)
            if kind == "text" and role == "user":
                citations = block.get("citations")
                if citations and not isinstance(citations, dict):
                    yield (*place, "citations"), "unknown field"
            elif kind == "document" and role == "assistant":
                yield place, "is not allowed in a message of the assistant"


def _find_image_urls(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    for place, block in each(body, "messages", "content") if found.target.is_on_bedrock else ():
        if block_type(block) == "image" and block_type(block.get("source")) == "url":
            yield (*place, "source"), "URL sources are not supported"


def _judge(body: dict[str, Any], found: Checked) -> list[Problem]:
    """What is wrong with the order of calls and results. System messages belong to no turn."""
    thread = body.get("thread")
    is_continued = isinstance(thread, dict) and thread.get("type") == "continue"
    judge = SequenceJudge(SPEC.sequence_rule, is_continued=is_continued)
    previous = None
    for index, role, blocks in found.entries:
        if role == "system":
            continue
        if role != previous or role != "user":
            judge.turn(role == "assistant")
        previous = role
        for position, block in enumerate(blocks):
            kind = block_type(block)
            if kind == "tool_result":
                if role != "assistant" and isinstance(block.get("tool_use_id"), str):
                    judge.result(block["tool_use_id"], index, position)
            elif kind == "tool_use" and role == "assistant" and isinstance(block.get("id"), str):
                judge.call(block["id"], index, position)
            elif role != "assistant":
                judge.other()
    return judge.end()


def _place_of(problem: Problem, _: Any) -> tuple[str | int, ...]:
    place = ("messages", problem.index)
    return place if problem.kind == "unanswered" else (*place, "content", problem.position)


def _find_text_after_calls(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    """Text after a call of the same turn: rejected in the only recording, although documented as a recommendation."""
    first_call: int | None = None
    previous = ""
    for index, role, blocks in found.entries:
        if role == "system":
            continue
        if role != previous:
            first_call, previous = None, role
        for block in blocks if role == "assistant" else ():
            kind = block_type(block)
            if kind == "tool_use" and first_call is None and isinstance(block.get("id"), str):
                first_call = index
            elif kind == "text" and first_call is not None and first_call >= 0:
                yield ("messages", first_call), "has text after a call"
                first_call = -1


def _find_server_results(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    known: set[str] = set()
    for index, _role, blocks in found.entries:
        for position, block in enumerate(blocks):
            kind = block_type(block)
            if kind in SERVER_CALLS and isinstance(block.get("id"), str):
                known.add(block["id"])
            elif kind.endswith("_tool_result"):
                call_id = block.get("tool_use_id")
                if isinstance(call_id, str) and call_id not in known:
                    yield ("messages", index, "content", position), "answers no call of the server before it"


def _find_system_place(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    previous = last_kind = ""
    has_turn = False
    for index, role, blocks in found.entries:
        if role == "system":
            if index == 0:
                yield ("messages", 0), "the first system prompt belongs into system"
            elif previous == "assistant" and not is_server_block(last_kind):
                yield ("messages", index), "must follow a user message, or a call that the server runs"
        else:
            if previous == "system" and role != "assistant" and has_turn:
                yield ("messages", index - 1), "must come before a message of the assistant, or be the last"
            has_turn = has_turn or bool(role)
            last_kind = block_type(blocks[-1]) if blocks else last_kind
        previous = role


def _find_system_role(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    first = next((index for index, role, _ in found.entries if role == "system"), None)
    if first is not None and not found.target.accepts_system_role(is_native=True):
        yield ("messages", first), "the model does not support the role system"


def _find_ignored_system(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    first = next((index for index, role, _ in found.entries if role == "system"), None)
    if first is not None and found.model.system_messages == "ignored":
        yield ("messages", first), "the model accepts the role system and ignores it"


def _last_assistant(body: dict[str, Any]) -> tuple[int, Any] | None:
    messages = list_of(body.get("messages"))
    last = messages[-1] if messages else None
    return (
        (len(messages) - 1, last.get("content")) if isinstance(last, dict) and last.get("role") == "assistant" else None
    )


def _find_trailing_space(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    final = _last_assistant(body)
    if final is not None:
        index, content = final
        last = content[-1] if isinstance(content, list) and content else None
        text = last.get("text") if isinstance(last, dict) and block_type(last) == "text" else content
        if isinstance(text, str) and text[-1:].isspace():
            yield ("messages", index), "the last message of the assistant must not end with whitespace"


def _find_prefill(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    final = _last_assistant(body)
    if final is not None and not found.model.prefill:
        # A turn with a server call may be one that the provider paused during its own tools (pause_turn).
        is_paused = any(block_type(block) in SERVER_CALLS for block in list_of(final[1]))
        if not is_paused and body.get("fallback_credit_token") is None:
            yield ("messages", final[0]), "the model does not support prefill; the last message must be the user's"


def _find_output(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    place = _output_place(body)
    if place is not None:
        yield from ((place, reason) for reason in _why_no_output(found.model, _has_citations(body)))


def _output_place(body: dict[str, Any]) -> str | tuple[str, str] | None:
    config = body.get("output_config")
    if body.get("output_format"):
        return "output_format"
    return ("output_config", "format") if isinstance(config, dict) and config.get("format") else None


def _has_citations(body: dict[str, Any]) -> bool:
    return any(
        isinstance(citations := block.get("citations"), dict) and citations.get("enabled") is True
        for _, block in each(body, "messages", "content")
    )


def _why_no_output(model: Capabilities, has_citations: bool) -> Iterator[str]:
    if model.structured_output is False:
        yield "the model does not support output formats"
    if has_citations:
        yield "cannot be combined with citations"


def _drop_output(body: dict[str, Any], writing: Any) -> None:
    place = _output_place(body)
    reasons = _why_no_output(writing.model, writing.messages.citations_enabled) if place is not None else ()
    for reason in islice(reasons, 1):
        if place == "output_format" or len(body["output_config"]) == 1:
            del body["output_format" if place == "output_format" else "output_config"]
        else:
            del body["output_config"]["format"]
        losses = writing.losses
        losses[:] = [loss for loss in losses if not loss.path.startswith("output_format.schema")]  # it is not sent
        losses.append(Loss("output_format", writing.request.output_format.kind, f"{reason}; dropped (AN-32)"))


def _find_tools(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    tools = list(each(body, "tools"))
    names = [tool["name"] for _, tool in tools if isinstance(tool.get("name"), str)]
    if len(set(names)) < len(names):
        yield "tools", "names must be unique"
    strict = [(place, tool.get("input_schema")) for place, tool in tools if tool.get("strict") is True]
    for place, schema in strict:
        if found.model.strict_tools is False:
            yield (*place, "strict"), "the model does not support strict tools"
        for problem in problems(schema, grammar_policy(found.model, "AN-16", "")):
            yield (*place, "custom"), problem
    counts = [count_optional_and_unions(schema) for _, schema in strict]
    for count, limit, what in (
        (len(strict), MAX_STRICT_TOOLS, "strict tools"),
        (sum(optional for optional, _ in counts), MAX_OPTIONAL_PARAMETERS, "optional parameters of strict tools"),
        (sum(unions for _, unions in counts), MAX_UNION_PARAMETERS, "parameters of strict tools with several types"),
    ):
        if count > limit:
            yield "tools", f"must have at most {limit} {what}, not {count}"


def _find_deferred(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    tools = [tool for _, tool in each(body, "tools")]
    if tools and all(tool.get("defer_loading") is True for tool in tools):
        yield "tools", "not all of them may have defer_loading"


def _find_choice(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    choice, tools = body.get("tool_choice"), body.get("tools")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or kind not in CHOICES:
        return
    if not tools and not body.get("mcp_servers"):
        yield "tool_choice", "is only allowed with tools"
    elif kind == "tool":
        name = choice.get("name")
        if not isinstance(name, str):
            yield ("tool_choice", "name"), rows.expected("a string", name)
        elif isinstance(tools, list) and not is_declared(name, tools):
            yield ("tool_choice", "name"), f'no tool "{name[:80]}" is declared'
    if kind in FORCED_CHOICES:
        if body.get("max_tokens") == 0:
            yield "tool_choice", "a call cannot be forced while max_tokens is 0"
        if not found.model.forced_tool_choice:
            yield ("tool_choice", "type"), "the model does not support forced calls"


def _fit_choice(body: dict[str, Any], writing: Any) -> None:
    """Leave out a choice without tools, and let the model choose where the choice is not accepted."""
    choice = body.get("tool_choice")
    if choice is None or (choice["type"] == "auto" and "tools" in body):  # as nearly all are
        return
    whole = {**body, "mcp_servers": writing.own.get("mcp_servers")}
    reasons = [message for _, message in _find_choice(whole, Checked(whole, writing.model))]
    if not reasons:
        return
    if "tools" in body or whole["mcp_servers"]:
        body["tool_choice"] = {"type": "auto", **other_fields(choice, ("type", "name"))}
        writing.losses.append(Loss("tool_choice", choice["type"], f'{reasons[0]}; sent "auto" (AN-17)'))
        return
    del body["tool_choice"]
    given = [name for name in ("tool_choice", "parallel_tool_calls") if getattr(writing.request, name) is not None]
    writing.losses.extend(Loss(name, name, f"{reasons[0]}; dropped (AN-17)") for name in given)


def _find_breakpoints(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    marked, limit = list(marked_blocks(body)), found.model.cache_breakpoints
    surplus, late = judge_breakpoints([block["cache_control"] for _, block in marked], limit)
    if surplus:
        yield "", f"must have at most {limit} blocks with cache_control, not {len(marked)}"
    for position in late:
        place = (*marked[position][0], "cache_control", "ttl")
        yield place, "1h must not come after 5m, in the order tools, system, messages"


def _limit_breakpoints(body: dict[str, Any], writing: Any) -> None:
    limit_breakpoints(body, writing.breakpoints, writing.model.cache_breakpoints, writing.losses)


def _find_no_model(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if "model" not in body:
        yield "model", "is required"


def _find_calls_without_tools(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    if not body.get("tools") and not body.get("mcp_servers"):
        for index, _role, blocks in found.entries:
            if any(block_type(block) == "tool_use" for block in blocks):
                yield ("messages", index), "some hosts refuse calls in the history of a request without tools"
                return


RULES = RuleBook(
    FORMAT,
    {
        "AN-01": "OpenAPI; anthropic 2.8.0",
        "AN-02": "OpenAPI; recorded",
        "AN-03": "report anthropics/claude-code#73821; litellm 1.106.2",
        "AN-04": "report anthropics/claude-code#6774",
        "AN-05": "reports anthropics/claude-code#59812, home-assistant/core#175733",
        "AN-06": "Anthropic's guide on prefilling",
        "AN-07": "anthropics/skills",
        "AN-08": "reports anthropics/claude-code#1237, Ironclad/rivet#487",
        "AN-09": "report anthropics/claude-code#13460",
        "AN-10": "reports vectorize-io/hindsight#4250, trycua/cua#524",
        "AN-11": "OpenAPI",
        "AN-12": "OpenAPI",
        "AN-13": "OpenAPI; recorded",
        "AN-14": "Anthropic's error text",
        "AN-15": "OpenAPI; @oh-my-pi/pi-ai 18.2.11",
        "AN-16": "reports anthropics/claude-code#27337, diegosouzapw/OmniRoute#13552",
        "AN-17": "Anthropic's error text; pydantic-ai 2.66.0",
        "AN-18": "report Wei-Shaw/sub2api#176",
        "AN-19": "report mastra-ai/mastra#7507; anthropics/skills; pydantic-ai 2.66.0",
        "AN-20": "report Yeachan-Heo/gajae-code#107; litellm 1.106.2",
        "AN-21": "OpenAPI; litellm 1.106.2",
        "AN-22": "Anthropic's error text",
        "AN-23": "OpenAPI",
        "AN-24": "OpenAPI",
        "AN-25": "report anthropics/claude-code#64383",
        "AN-26": "OpenAPI",
        "AN-27": "OpenAPI",
        "AN-28": "platform.claude.com/docs/en/api/versioning",
        "AN-29": "recorded; @oh-my-pi/pi-ai 18.2.11",
        "AN-30": "reports pydantic/pydantic-ai#2075, anthropics/claude-code#14264",
        "AN-31": "litellm 1.106.2; report vercel/ai#16991",
        "AN-32": "recorded; anthropics/skills; litellm 1.106.2",
        "AN-33": "anthropics/skills",
    },
    BODY,
    CrossRule("AN-01", _find_required),
    CrossRule("AN-27", _find_unknown_names),
    *map(_refused, ("AN-19", "AN-21", "AN-31")),
    CrossRule("AN-04", _find_empty_messages),
    CrossRule("AN-28", _find_version_blocks),
    CrossRule("AN-24", _find_image_urls),
    accepted_media("AN-24", SPEC, with_types=False),
    Order(
        broken={
            "unanswered": "AN-08",
            "orphan": "AN-09",
            "stray": "AN-09",
            "repeated call": "AN-10",
            "repeated result": "AN-10",
        },
        judge=_judge,
        place=_place_of,
    ),
    CrossRule("AN-29", _find_text_after_calls),
    CrossRule("AN-25", _find_server_results),
    CrossRule("AN-03", _find_system_place),
    CrossRule("AN-03", _find_system_role),
    CrossRule("AN-06", _find_trailing_space),
    CrossRule("AN-07", _find_prefill),
    *THINKING_RULES,
    CrossRule("AN-32", _find_output, "reasoning", _drop_output),
    CrossRule("AN-16", _find_tools),
    CrossRule("AN-33", _find_deferred),
    CrossRule("AN-17", _find_choice, "choice", _fit_choice),
    CrossRule("AN-18", _find_breakpoints, "breakpoints", _limit_breakpoints),
    advice=(
        CrossRule("AN-01", _find_no_model),
        CrossRule("AN-03", _find_ignored_system),
        FORCED_ADAPTIVE,
        CrossRule("AN-31", _find_calls_without_tools),
    ),
    has_dots=True,
    target=_target,
    entries=_entries,
)
check_request = RULES.check_request
