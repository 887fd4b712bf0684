"""The request bodies of the history view: whatever host answered before, none of our own requests breaks a rule (law L4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.conversation.turn import EntryPosition
from antiphon.history import AgentHistory, ApprovalRequestedEntry, HumanDecisionEntry, ModelOutputEntry, Origin
from antiphon.parts import Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.presets import PRESETS
from antiphon.wire import formats
from antiphon.wire.openai_chat.dialects import OPENAI_ITSELF, Dialect
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_chat.page.history_view import cache_findings, entry_row, provider_bodies, words_of_calls
from support.installed import needs_devtools

HOSTS = [*(name for name, preset in PRESETS.items() if preset.format == "openai-chat"), "a-host-of-my-own"]
FIELDS: dict[str, dict[str, Any]] = {
    "reasoning_content": {},
    "reasoning": {},
    "thinking": {},
    "reasoning_details": {"reasoning_details": [{"type": "reasoning.text", "text": "Left, or right?"}]},
}
SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
LOOK = ToolDefinition("look", "Look somewhere.", {**SCHEMA, "additionalProperties": False})


def conversation_with(host: str, field: str) -> AgentHistory:
    """A conversation in which a host returned its reasoning in a field."""
    call = ToolCallRequest("look", "call_1", '{"what": "left"}')
    native = {"openai-chat": {"field": field, **FIELDS[field]}}
    origin = Origin(host, "openai-chat", "a-model")
    history = AgentHistory()
    history.append(ap.ModelInputEntry.of("Where is the heron?"))
    history.append(ModelOutputEntry((Thinking("Left, or right?", native=native), Text("I look."), call), origin=origin))
    history.append(ap.ToolCallResultsEntry((ToolCallResult.of(call, "a heron"),)))
    return history


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("host", HOSTS)
def test_no_request_of_ours_is_marked_as_a_violation(host: str, field: str) -> None:
    views = provider_bodies(conversation_with(host, field).entries, (LOOK,), ModelRequest())
    assert {name: view["violations"] for name, view in views.items() if view["violations"]} == {}


@pytest.mark.parametrize("value", ["1e400", '{"a":' * 600 + "1" + "}" * 600, "[" * 996 + "]" * 996])
def test_arguments_that_are_hard_to_read_are_shown(value: str) -> None:
    call = ToolCallRequest("look", "call_1", f'{{"what": {value}}}')
    history = AgentHistory()
    history.append(ap.ModelInputEntry.of("Where is the heron?"))
    history.append(ModelOutputEntry((call,)))
    for name, view in provider_bodies(history.entries, (LOOK,), ModelRequest()).items():
        shown = msgspec.json.encode(view["body"])
        assert value in shown.decode().replace("\\", "").replace(" ", ""), name


def test_openai_itself_gets_no_reasoning_back_and_the_loss_is_reported() -> None:
    view = provider_bodies(conversation_with("openai", "reasoning_content").entries, (LOOK,), ModelRequest())
    assert "reasoning_content" not in view["openai-chat"]["body"]["messages"][1]
    assert any("reasoning" in loss.why for loss in view["openai-chat"]["losses"])


def test_a_host_that_wants_its_reasoning_back_gets_it() -> None:
    view = provider_bodies(conversation_with("deepseek", "reasoning_content").entries, (LOOK,), ModelRequest())
    assert view["openai-chat"]["body"]["messages"][1]["reasoning_content"] == "Left, or right?"


@pytest.mark.parametrize(
    ("base_url", "dialect"), [("https://api.openai.com/v1/", OPENAI_ITSELF), ("http://127.0.0.1:9/v1", "openai")]
)
def test_a_proxy_under_the_name_of_openai_is_not_openai(base_url: str, dialect: str | Dialect) -> None:
    client = HttpProviderClient(PRESETS["openai"], base_url=base_url, keys=["k"])
    assert client.wire_options["dialect"] == dialect


def test_the_checker_follows_the_dialect() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."},
        ],
    }
    check = formats["openai-chat"].check_request
    assert [one.rule for one in check(body, advisories=True)] == ["OC-31"]
    assert [one.rule for one in check(body, advisories=True, dialect=OPENAI_ITSELF)] == ["OC-31"]
    assert check(body, advisories=True, dialect="vllm") == []


@needs_devtools
def test_cache_findings_are_about_real_models_only() -> None:
    history = AgentHistory()
    history.set_system_instruction("Answer in one sentence. " * 1_000)
    for number in range(2):
        history.append(ap.ModelInputEntry.of(f"Question {number}?"))
        history.append(ModelOutputEntry((Text("Yes."),), origin=Origin("openai", "openai-chat", "gpt-5.5")))
    history.append(ap.ModelInputEntry.of("And offline?"))
    history.append(ModelOutputEntry.of("No."))
    first, second = cache_findings(history.entries, (LOOK,), ModelRequest())
    assert (first["verdict"], first["sequence_number"]) == ("first", 3)
    assert (second["verdict"], second["sequence_number"], second["difference"]) == ("hit", 5, None)
    assert second["predicted_tokens"] > 4_000


def test_a_row_names_a_call_by_what_it_does() -> None:
    call = ToolCallRequest("create_plan", "c1795", '{"title": "Lisbon"}')
    history = AgentHistory()
    history.append(ApprovalRequestedEntry(("c1795",)))
    history.append(ModelOutputEntry((call,)))
    history.append(HumanDecisionEntry("c1795", "deny", reason="too dear"))
    calls = words_of_calls(history.entries)
    asked, _, denied = (
        entry_row(entry, EntryPosition(1, 1), calls, is_effective=True, tokens=None)["excerpt"]
        for entry in history.entries
    )
    assert (asked, denied) == ("create_plan Lisbon", "deny: create_plan Lisbon: too dear")
