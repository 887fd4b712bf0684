"""The rules of Responses (OR-01 to OR-23), one entry each, and the check of a request body.

An error is what api.openai.com certainly refuses; what only some models or hosts refuse is an advisory, in a pass of its own. A
null parameter counts as absent. Messages are OpenAI's own; values are decoded JSON of any type.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.capabilities import look_up
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import lose_native
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.content import write_input_part
from antiphon.wire.openai_responses.item_ids import ItemIds
from antiphon.wire.openai_responses.messages import CALL_IDS, MessageListWriter
from antiphon.wire.openai_responses.parameters import PARAMETER_TABLE, write_parameters
from antiphon.wire.openai_responses.request import write_request
from antiphon.wire.openai_responses.rules.advisories import check_advisories
from antiphon.wire.openai_responses.rules.messages import check_input, check_sequence
from antiphon.wire.openai_responses.rules.parameters import (
    check_continuation,
    check_names,
    check_settings,
    check_text,
    check_tool_choice,
    check_tools,
)
from antiphon.wire.openai_responses.tools import allows_strict, write_tool_choice, write_tools
from antiphon.wire.rules import Rule, RuleBook, RuleContext, Violation, json_type_name

__all__ = ["RULES", "check_request", "check_sequence"]


def check_request(body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False) -> list[Violation]:
    """The rules of Responses that a request body breaks; advisories follow the errors, on request."""
    if not isinstance(body, dict):
        return [Violation("OR-01", "", f"Invalid body: expected an object, but got {json_type_name(body)}.")]
    model = body.get("model")
    capabilities = look_up(model if isinstance(model, str) else "", FORMAT, options.capabilities)
    return RULES.check(RuleContext(body, capabilities, advisories))


RULES = RuleBook(
    Rule("OR-01", check_input, write_request, "OpenAPI; pydantic-ai 2.66.0"),
    Rule("OR-02", check_input, MessageListWriter.write, "OpenAPI"),
    Rule("OR-03", check_input, write_input_part, "OpenAPI; report jeremychone/rust-genai#119"),
    Rule("OR-04", check_input, MessageListWriter.write, "OpenAPI"),
    Rule("OR-05", check_input, write_input_part, "OpenAPI; recorded"),
    Rule("OR-08", check_input, CALL_IDS.to_wire, "OpenAPI"),
    Rule("OR-09", check_input, ItemIds.add_fields, "reports nodetool-ai/nodetool#4252, openai/codex#33176"),
    Rule("OR-11", check_input, MessageListWriter.write, "OpenAPI; recorded"),
    Rule("OR-19", check_input, lose_native, "litellm 1.106.2"),
    Rule("OR-10", check_input, ItemIds.add_fields, "report vercel/ai#13307"),
    Rule("OR-06", check_input, None, "report openai/codex#93"),
    Rule("OR-07", check_input, None, "report microsoft/vscode#320060"),
    Rule("OR-12", check_tools, write_tools, "OpenAPI"),
    Rule("OR-20", check_tools, allows_strict, "as OC-17"),
    Rule("OR-13", check_tool_choice, write_tool_choice, "OpenAPI; pydantic-ai 2.66.0"),
    Rule("OR-14", check_settings, PARAMETER_TABLE.write, "OpenAPI; litellm 1.106.2"),
    Rule("OR-15", check_settings, write_parameters, "OpenAPI"),
    Rule("OR-16", check_continuation, None, "OpenAPI; pydantic-ai 2.66.0"),
    Rule("OR-17", check_text, write_parameters, "OpenAPI; pydantic-ai 2.66.0"),
    Rule("OR-18", check_names, PARAMETER_TABLE.write, "OpenAPI"),
    Rule("OR-21", check_advisories, ItemIds.claim_turn, "recorded; report continuedev/continue#11994"),
    Rule("OR-22", check_advisories, None, "report vercel/ai#7543"),
    Rule("OR-23", check_advisories, None, "recorded: accepted by OpenAI"),
)
