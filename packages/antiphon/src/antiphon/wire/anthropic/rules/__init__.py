"""The rules of the Messages API (AN-01 to AN-33), one entry each, and the check of a request body.

Messages are the provider's own. Rules that depend on the model apply only if its name has a known version. Nothing here raises: a
value of the wrong type is a violation and is not examined further.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.anthropic.cache_breakpoints import limit_cache_breakpoints
from antiphon.wire.anthropic.content import CALL_IDS, ContentWriter, repair_input
from antiphon.wire.anthropic.media import write_image
from antiphon.wire.anthropic.messages import MessageListWriter
from antiphon.wire.anthropic.parameters import (
    VERSION,
    allow_thinking,
    target_for,
    write_parameters,
    write_stops,
    write_thinking_and_format,
    write_user,
)
from antiphon.wire.anthropic.request import write_request
from antiphon.wire.anthropic.rules.blocks import OBJECT
from antiphon.wire.anthropic.rules.messages import check_cache_breakpoints, check_messages, check_sequence
from antiphon.wire.anthropic.rules.parameters import (
    MessagesContext,
    check_metadata,
    check_names_and_limit,
    check_numbers,
    check_output,
    check_stop_sequences,
    check_system,
    check_thinking,
    check_tool_choice,
    check_tools,
)
from antiphon.wire.anthropic.tools import write_tool_choice, write_tools
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import lose_native
from antiphon.wire.rules import Rule, RuleBook, Violation

__all__ = ["RULES", "check_request", "check_sequence"]


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of the Messages API that a request body breaks; `options.version` is the `anthropic-version` header."""
    if not isinstance(body, dict):
        return [Violation("AN-01", "", OBJECT)]
    host = body.get("anthropic_version")
    target = target_for(body.get("model"), options.version or VERSION, host, options.capabilities)
    return RULES.check(MessagesContext(body, target.model, advisories, target=target))


RULES = RuleBook(
    Rule("AN-01", check_names_and_limit, write_request, "OpenAPI; anthropic 2.8.0"),
    Rule("AN-27", check_names_and_limit, lose_native, "OpenAPI"),
    Rule("AN-21", check_numbers, write_parameters, "OpenAPI; litellm 1.106.2"),
    Rule("AN-28", check_numbers, write_parameters, "platform.claude.com/docs/en/api/versioning"),
    Rule("AN-31", check_numbers, write_parameters, "litellm 1.106.2; report vercel/ai#16991"),
    Rule("AN-22", check_stop_sequences, write_stops, "Anthropic's error text"),
    Rule("AN-23", check_metadata, write_user, "OpenAPI"),
    Rule(
        "AN-19", check_thinking, allow_thinking, "report mastra-ai/mastra#7507; anthropics/skills; pydantic-ai 2.66.0"
    ),
    Rule("AN-32", check_output, write_thinking_and_format, "recorded; anthropics/skills; litellm 1.106.2"),
    Rule("AN-16", check_tools, write_tools, "reports anthropics/claude-code#27337, diegosouzapw/OmniRoute#13552"),
    Rule("AN-33", check_tools, write_tools, "anthropics/skills"),
    Rule("AN-17", check_tool_choice, write_tool_choice, "Anthropic's error text; pydantic-ai 2.66.0"),
    Rule("AN-26", check_system, ContentWriter.system_blocks, "OpenAPI"),
    Rule("AN-02", check_messages, MessageListWriter.write, "OpenAPI; recorded"),
    Rule("AN-03", check_messages, MessageListWriter.write, "report anthropics/claude-code#73821; litellm 1.106.2"),
    Rule("AN-04", check_messages, MessageListWriter.write, "report anthropics/claude-code#6774"),
    Rule(
        "AN-05", check_messages, ContentWriter.write, "reports anthropics/claude-code#59812, home-assistant/core#175733"
    ),
    Rule("AN-13", check_messages, ContentWriter.write, "OpenAPI; recorded"),
    Rule("AN-14", check_messages, ContentWriter.write, "Anthropic's error text"),
    Rule("AN-11", check_messages, CALL_IDS.to_wire, "OpenAPI"),
    Rule("AN-12", check_messages, repair_input, "OpenAPI"),
    Rule("AN-15", check_messages, ContentWriter.add_result, "OpenAPI; @oh-my-pi/pi-ai 18.2.11"),
    Rule("AN-20", check_messages, ContentWriter.write, "report Yeachan-Heo/gajae-code#107; litellm 1.106.2"),
    Rule("AN-24", check_messages, write_image, "OpenAPI"),
    Rule("AN-08", check_messages, None, "reports anthropics/claude-code#1237, Ironclad/rivet#487"),
    Rule("AN-09", check_messages, None, "report anthropics/claude-code#13460"),
    Rule("AN-10", check_messages, None, "reports vectorize-io/hindsight#4250, trycua/cua#524"),
    Rule("AN-25", check_messages, None, "report anthropics/claude-code#64383"),
    Rule("AN-29", check_messages, MessageListWriter.write, "recorded; @oh-my-pi/pi-ai 18.2.11"),
    Rule("AN-06", check_messages, MessageListWriter.finish, "Anthropic's guide on prefilling"),
    Rule("AN-07", check_messages, MessageListWriter.finish, "anthropics/skills"),
    Rule("AN-30", check_messages, allow_thinking, "reports pydantic/pydantic-ai#2075, anthropics/claude-code#14264"),
    Rule("AN-18", check_cache_breakpoints, limit_cache_breakpoints, "report Wei-Shaw/sub2api#176"),
)
