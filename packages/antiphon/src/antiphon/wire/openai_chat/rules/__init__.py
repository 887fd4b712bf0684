"""The rules of Chat Completions (OC-01 to OC-32, MI-01, MI-02, DS-01), one entry each, and the check of a request body.

An error is what api.openai.com certainly refuses. What only some models or hosts refuse is an advisory; advisories have their own
pass, so that the usual check does not pay for them. A null parameter is absent. A new rule needs its entry here, OpenAI's own
sentence, and a row in the tests.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import lose_native
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.assistant import defer_media
from antiphon.wire.openai_chat.content import write_part
from antiphon.wire.openai_chat.dialects import MISTRAL_IDS, NAMES, SHORT_IDS, get_dialect
from antiphon.wire.openai_chat.limits import legal_participant_name
from antiphon.wire.openai_chat.messages import MessageListWriter
from antiphon.wire.openai_chat.parameters import PARAMETER_TABLE, limit_stops, write_extras, write_parameters
from antiphon.wire.openai_chat.request import write_request
from antiphon.wire.openai_chat.rules.advisories import check_advisories
from antiphon.wire.openai_chat.rules.messages import check_messages, check_sequence
from antiphon.wire.openai_chat.rules.parameters import (
    check_model_limits,
    check_response_format,
    check_settings,
    check_tool_choice,
    check_tools,
)
from antiphon.wire.openai_chat.tools import arguments_as_object_text, write_tools
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation, json_type_name

__all__ = ["RULES", "check_request", "check_sequence"]


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of Chat Completions that a request body breaks; advisories follow the errors, on request."""
    if not isinstance(body, dict):
        return [Violation("OC-01", "", f"Invalid body: expected an object, but got {json_type_name(body)}.")]
    model = body.get("model")
    capabilities = look_up(model if isinstance(model, str) else "", FORMAT, options.capabilities)
    host_fields = get_dialect(options.dialect).host_fields if options.dialect else frozenset[str]()
    return RULES.check(RuleContext(body, capabilities, advisories, host_fields))


RULES = RuleBook(
    Rule("OC-01", check_messages, write_request, "OpenAPI; report CopilotKit/CopilotKit#529"),
    Rule("OC-02", check_messages, MessageListWriter.write, "OpenAPI; recorded"),
    Rule("OC-28", check_messages, MessageListWriter.write, "OpenAPI"),
    Rule("OC-25", check_messages, legal_participant_name, "OpenAI's error text"),
    Rule("OC-10", check_messages, MessageListWriter.write, "report run-llama/llama_index#17921"),
    Rule("OC-11", check_messages, write_part, "OpenAPI; recorded"),
    Rule("OC-12", check_messages, write_part, "OpenAPI; recorded"),
    Rule("OC-13", check_messages, write_part, "recorded"),
    Rule("OC-06", check_messages, MessageListWriter.write, "report openai/openai-node#1341"),
    Rule("OC-07", check_messages, arguments_as_object_text, "OpenAPI"),
    Rule("OC-08", check_messages, NAMES.to_wire, "reports LaurieWired/GhidraMCP#116, continuedev/continue#11645"),
    Rule("OC-03", check_messages, None, "report aliasrobotics/cai#111"),
    Rule("OC-04", check_messages, None, "report miurla/morphic#136"),
    Rule("OC-05", check_messages, None, "report agno-agi/agno#5116"),
    Rule("OC-14", check_tools, write_tools, "report continuedev/continue#3403"),
    Rule("OC-15", check_tools, write_tools, "OpenAPI"),
    Rule("OC-16", check_tools, write_tools, "report chatanywhere/GPT_API_free#403"),
    Rule(
        "OC-17", check_tools, write_tools, "reports lastmile-ai/openai-agents-mcp#2, makenotion/notion-mcp-server#102"
    ),
    Rule("OC-18", check_tool_choice, write_tools, "OpenAPI"),
    Rule("OC-19", check_tool_choice, write_tools, "report openai/swarm#30"),
    Rule("OC-20", check_model_limits, PARAMETER_TABLE.write, "OpenAPI; recorded"),
    Rule("OC-26", check_model_limits, write_parameters, "reports nashsu/llm_wiki#336, davidmigloz/langchain_dart#712"),
    Rule("OC-21", check_settings, limit_stops, "OpenAPI"),
    Rule("OC-22", check_settings, write_extras, "OpenAPI"),
    Rule("OC-23", check_settings, write_parameters, "OpenAI's error text"),
    Rule("OC-27", check_settings, PARAMETER_TABLE.write, "OpenAPI"),
    Rule("OC-24", check_response_format, write_request, "OpenAPI"),
    Rule("OC-09", check_advisories, SHORT_IDS.to_wire, "reports vercel/ai#5171, vercel/ai#17233"),
    Rule("OC-29", check_advisories, None, "reports musistudio/claude-code-router#686, getsentry/sentry-mcp#106"),
    Rule("OC-30", check_advisories, defer_media, "reports OpenHands/OpenHands#7700, openai/openai-openapi#523"),
    Rule("OC-31", check_advisories, lose_native, "OpenAPI"),
    Rule("OC-32", check_advisories, None, "reports nspady/google-calendar-mcp#39, langchain-ai/langchainjs#9804"),
    Rule("MI-01", check_advisories, MISTRAL_IDS.to_wire, "report editor-code-assistant/eca#233"),
    Rule("MI-02", check_advisories, MessageListWriter.write, "report datapizza-labs/datapizza-ai#98"),
    Rule("DS-01", check_advisories, MessageListWriter.write, "reports earendil-works/pi#3636, qwersyk/Newelle#404"),
)
