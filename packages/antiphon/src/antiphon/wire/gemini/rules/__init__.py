"""The rules of generateContent (GM-01 to GM-20), one entry each, and the check of a request body.

The API parses JSON as proto3, and so do the checks: camelCase or snake_case names, null as absent, one object for a list, unknown
names as errors. Messages are the provider's own.

The model is in the URL: rules that depend on it apply only if the caller passes a name with a known version. Nothing here
raises: a value of the wrong type is a violation and is not examined further.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import NAMES, ContentWriter, write_call
from antiphon.wire.gemini.media import write_media
from antiphon.wire.gemini.messages import write_turns
from antiphon.wire.gemini.parameters import write_generation
from antiphon.wire.gemini.request import write_other_fields, write_request, write_system
from antiphon.wire.gemini.rules.messages import check_contents, check_sequence, check_system
from antiphon.wire.gemini.rules.parameters import (
    check_cached_content,
    check_generation_config,
    check_names,
    check_tools,
)
from antiphon.wire.gemini.tools import write_tool_choice, write_tools
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation

__all__ = ["RULES", "check_request", "check_sequence"]


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of generateContent that a request body breaks; `options.model` is the name in the URL."""
    if not isinstance(body, dict):
        return [Violation("GM-01", "", "Invalid JSON payload received. The body is not an object.")]
    return RULES.check(RuleContext(body, look_up(options.model, FORMAT, options.capabilities), advisories))


RULES = RuleBook(
    Rule("GM-18", check_names, write_request, "recorded; proto3 JSON refuses unknown names"),
    Rule("GM-15", check_system, write_system, "vendor: systemInstruction is a Content of text"),
    Rule("GM-11", check_tools, write_tools, "reports kaitranntt/ccs#219, smarter-sh/smarter#537; google-genai 3.1.0"),
    Rule("GM-12", check_tools, write_tools, "reports thClaws/thClaws#172, TableProApp/TablePro#1276"),
    Rule("GM-13", check_tools, write_tool_choice, "pydantic-ai 2.66.0; recorded"),
    Rule("GM-20", check_tools, NAMES.to_wire, "report kaitranntt/ccs#219: 64 until 2025-12"),
    Rule("GM-19", check_cached_content, write_other_fields, "pydantic-ai 2.66.0"),
    Rule("GM-14", check_generation_config, write_generation, "vendor; pydantic-ai 2.66.0"),
    Rule("GM-01", check_contents, write_turns, "report vercel/ai#3775"),
    Rule("GM-02", check_contents, write_turns, "report the-open-agent/openagent#1666"),
    Rule("GM-03", check_contents, write_turns, "report egoist/chatwise-releases#250"),
    Rule("GM-04", check_contents, ContentWriter.write, "recorded"),
    Rule("GM-08", check_contents, write_call, "vendor: args is a Struct"),
    Rule("GM-09", check_contents, ContentWriter.result, "report vercel/ai#3589"),
    Rule("GM-17", check_contents, write_media, "vendor; recorded"),
    Rule("GM-05", check_contents, write_turns, "report google-gemini/gemini-cli#11814"),
    Rule("GM-06", check_contents, None, "report langchain-ai/langchain#27799"),
    Rule("GM-07", check_contents, None, "report google-gemini/gemini-cli#16543"),
    Rule("GM-16", check_contents, write_turns, "reports LibreChat-AI/agents#323, microsoft/semantic-kernel#13288"),
    Rule("GM-10", check_contents, ContentWriter.call, "report lbjlaq/Antigravity-Manager#733"),
)
