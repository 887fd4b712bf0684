"""The cache doctor: what is read, the first field that differs, and why something was not read."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from antiphon.parts import TokenUsage
from antiphon.prices import PriceOverride, PriceTable
from antiphon_devtools.cache_doctor import CacheDoctor, CacheReport, outline_prompt

from .bodies import MARK, RULES, TOOLS, anthropic, chat, gemini, responses

FORMATS: dict[str, Callable[..., dict[str, Any]]] = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}


def examine(
    format_name: str, *bodies: dict[str, Any], times: tuple[float, ...] = (), keeps_text: bool = True, model: str = ""
) -> CacheReport:
    """The report of the last of some requests."""
    doctor = CacheDoctor()
    report = None
    for number, body in enumerate(bodies):
        outline = outline_prompt(
            body, format_name, model=model or body.get("model", "gemini-3.5-flash"), keeps_text=keeps_text
        )
        report = doctor.examine(outline, at=times[number] if times else float(number))
    assert report is not None
    return report


@pytest.mark.parametrize("name", FORMATS)
def test_a_continued_prompt_is_read_up_to_where_it_continues(name: str) -> None:
    body = FORMATS[name]
    first = examine(name, body("Hi."))
    assert (first.verdict, first.predicted_tokens, first.lost_tokens) == ("first", 0, 0)
    second = examine(name, body("Hi."), body("Hi.", "Hello.", "And now?"))
    assert (second.verdict, second.lost_tokens, second.difference) == ("hit", 0, None)
    assert first.prompt_tokens - 128 <= second.predicted_tokens <= first.prompt_tokens


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("keeps_text", [True, False])
def test_a_changed_line_in_the_instructions_is_named(name: str, keeps_text: bool) -> None:
    before, after = "Now it is 10:01.\n" + RULES, "Now it is 10:02.\n" + RULES
    body = FORMATS[name]
    report = examine(name, body("Hi.", system=before), body("Hi.", "Yes?", "Go.", system=after), keeps_text=keeps_text)
    assert report.verdict == "changed"
    assert report.predicted_tokens == 0
    assert report.lost_tokens > 7_000
    found = report.difference
    assert found is not None
    expected = {
        "anthropic": "system",
        "openai-chat": "messages[0].content",
        "openai-responses": "instructions",
        "gemini": "systemInstruction.parts[0].text",
    }
    assert found.path == expected[name]
    assert found.is_exact is keeps_text
    assert found.offset == (14 if keeps_text else 0)
    assert ("10:01" in found.before, "10:02" in found.after) == (keeps_text, keeps_text)


def test_hashes_locate_a_late_change_to_256_bytes() -> None:
    late = RULES[:20_000] + "X" + RULES[20_001:]
    found = examine("anthropic", anthropic("Hi."), anthropic("Hi.", system=late), keeps_text=False).difference
    assert found is not None
    assert not found.is_exact
    assert found.offset <= 20_000 < found.offset + 256


@pytest.mark.parametrize(
    ("tools", "path", "change"),
    [
        ([TOOLS[0], TOOLS[1], TOOLS[2], {**TOOLS[3], "description": "Reads all news."}], "tools[3].description", "changed"),
        (TOOLS[:3], "tools[3]", "removed"),
        ([*TOOLS, {"name": "maps", "input_schema": {"type": "object"}}], "tools[4]", "added"),
        ([TOOLS[0], *TOOLS[2:]], "tools[1]", "removed"),
        ([TOOLS[1], TOOLS[0], *TOOLS[2:]], "tools[0]", "added"),
    ],
)  # fmt: skip
def test_changed_tools_are_named(tools: list[Any], path: str, change: str) -> None:
    report = examine("anthropic", anthropic("Hi."), anthropic("Hi.", "Yes?", "Go.", tools=tools))
    assert report.verdict == "changed"
    assert report.difference is not None
    assert (report.difference.path, report.difference.change) == (path, change)
    assert "same tools" in report.advice


def test_the_order_of_names_in_arguments_counts() -> None:
    def body(arguments: dict[str, Any]) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "c", "name": "mail", "input": arguments}
        result = {"type": "tool_result", "tool_use_id": "c", "content": "none", "cache_control": MARK}
        return anthropic("Hi.") | {
            "messages": [
                {"role": "user", "content": "Hi."},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
        }

    report = examine("anthropic", body({"to": "a", "cc": "b"}), body({"cc": "b", "to": "a"}))
    assert report.difference is not None
    assert (report.difference.path, report.difference.change) == ("messages[1].content[0].input.cc", "moved")


def test_moved_breakpoints_and_text_blocks_are_the_same_prefix() -> None:
    first = anthropic("Hi.")
    second = anthropic("Hi.", "Yes?", "Go.")
    second["messages"][0] = {"role": "user", "content": "Hi."}
    assert examine("anthropic", first, second).verdict == "hit"


def test_another_role_is_a_difference() -> None:
    first, second = chat("Hi.", "Yes?"), chat("Hi.", "Yes?", "Go.")
    second["messages"][0]["role"] = "developer"
    found = examine("openai-chat", first, second).difference
    assert found is not None
    assert found.path == "messages[0].role"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"model": "claude-opus-5"}, "model_changed"),
        ({"tool_choice": {"type": "any"}}, "changed"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "changed"),
        ({"temperature": 0.2, "max_tokens": 9}, "hit"),
    ],
)
def test_settings_that_break_the_prefix_and_settings_that_do_not(change: dict[str, Any], verdict: str) -> None:
    assert examine("anthropic", anthropic("Hi."), anthropic("Hi.", "Yes?", "Go.", **change)).verdict == verdict


def test_a_changed_tool_choice_keeps_what_is_before_the_messages() -> None:
    system = [{"type": "text", "text": RULES, "cache_control": MARK}]
    first = anthropic("Hi.") | {"system": system}
    second = anthropic("Hi.", "Yes?", "Go.", tool_choice={"type": "any"}) | {"system": system}
    report = examine("anthropic", first, second)
    assert report.difference is not None
    assert (report.verdict, report.difference.path) == ("changed", "tool_choice")
    assert report.predicted_tokens > 7_000
    assert 0 < report.lost_tokens < 20


def test_no_breakpoint_no_cache() -> None:
    report = examine("anthropic", anthropic("Hi.", mark=None), anthropic("Hi.", "Yes?", "Go.", mark=None))
    assert (report.verdict, report.predicted_tokens) == ("no_breakpoints", 0)
    assert report.lost_tokens > 7_000
    assert "cache_control" in report.advice
    automatic: dict[str, Any] = {"mark": None, "cache_control": MARK}
    assert (
        examine("anthropic", anthropic("Hi.", **automatic), anthropic("Hi.", "Yes?", "Go.", **automatic)).verdict
        == "hit"
    )


def test_prefixes_expire_and_each_read_extends_their_life() -> None:
    bodies = [anthropic("Hi."), anthropic("Hi.", "Yes?", "Go."), anthropic("Hi.", "Yes?", "Go.", "Well.", "And?")]
    assert examine("anthropic", *bodies, times=(0, 290, 580)).verdict == "hit"
    late = examine("anthropic", *bodies, times=(0, 290, 700))
    assert (late.verdict, late.predicted_tokens) == ("expired", 0)
    assert '"1h"' in late.advice
    hour = {"type": "ephemeral", "ttl": "1h"}
    kept = [anthropic("Hi.", mark=hour), anthropic("Hi.", "Yes?", "Go.", mark=hour)]
    assert examine("anthropic", *kept, times=(0, 3500)).verdict == "hit"


def test_twenty_blocks_after_the_last_breakpoint_it_is_out_of_reach() -> None:
    added = [f"Message {number}." for number in range(24)]
    report = examine("anthropic", anthropic("Hi."), anthropic("Hi.", *added))
    assert (report.verdict, report.predicted_tokens) == ("lookback", 0)
    assert examine("anthropic", anthropic("Hi."), anthropic("Hi.", *added[:18])).verdict == "hit"


def test_a_prompt_below_the_minimum_is_too_short() -> None:
    short = "Be brief. " * 60
    assert examine("anthropic", anthropic("Hi.", system=short)).verdict == "too_short"
    assert examine("openai-chat", chat("Hi.", system=short)).verdict == "too_short"


@pytest.mark.parametrize(
    ("format_name", "model", "minimum"),
    [
        ("anthropic", "claude-opus-5-5", 512),
        ("anthropic", "claude-opus-4-6", 4096),
        ("anthropic", "claude-haiku-4-5-20251001", 4096),
        ("anthropic", "claude-sonnet-4-5", 1024),
        ("gemini", "gemini-2.5-pro", 2048),
        ("gemini", "gemini-3.5-flash", 4096),
        ("openai-responses", "gpt-5.5", 1024),
    ],
)
def test_minimum_of_a_model(format_name: str, model: str, minimum: int) -> None:
    body = {"anthropic": anthropic, "gemini": gemini, "openai-responses": responses}[format_name]
    for size, verdict in ((minimum - 300, "too_short"), (minimum + 100, "first")):
        given = body("Hi.", system="one " * size) | {"model": model, "tools": []}
        assert examine(format_name, given, model=model).verdict == verdict


def test_openai_reads_in_steps_of_128_and_inside_a_text() -> None:
    late = RULES[:20_000] + "X" + RULES[20_001:]
    report = examine("openai-chat", chat("Hi."), chat("Hi.", system=late))
    assert report.verdict == "changed"
    assert report.predicted_tokens % 128 == 0
    assert 4_800 <= report.predicted_tokens <= 5_000


def test_newer_openai_models_match_at_the_end_of_a_message() -> None:
    late = RULES[:20_000] + "X" + RULES[20_001:]
    new = {"model": "gpt-5.6-luna"}
    assert examine("openai-chat", chat("Hi.", **new), chat("Hi.", system=late, **new)).predicted_tokens == 0
    assert examine("openai-chat", chat("Hi.", **new), chat("Hi.", "Yes?", "Go.", **new)).verdict == "hit"


def test_another_prompt_cache_key_is_another_cache() -> None:
    report = examine("openai-chat", chat("Hi.", prompt_cache_key="a"), chat("Hi.", "Yes?", "Go.", prompt_cache_key="b"))
    assert (report.verdict, report.predicted_tokens) == ("key_changed", 0)


def test_a_prompt_that_is_stored_at_the_provider_is_not_judged() -> None:
    report = examine("openai-responses", responses("Hi."), responses("Go.", previous_response_id="resp_1"))
    assert (report.verdict, report.lost_tokens) == ("elsewhere", 0)
    assert "previous_response_id" in report.reason


def test_requests_between_do_not_hide_the_conversation() -> None:
    side = chat("Give this conversation a title.", system="You write titles.")
    report = examine("openai-chat", chat("Hi."), side, chat("Hi.", "Yes?", "Go."))
    assert (report.verdict, report.difference) == ("hit", None)


def test_conversations_of_other_clients_are_not_compared_but_share_the_cache() -> None:
    doctor = CacheDoctor()
    doctor.examine(outline_prompt(chat("Hi."), "openai-chat"), scope="alice")
    report = doctor.examine(outline_prompt(chat("Hi.", "Yes?", "Go."), "openai-chat"), scope="bob")
    assert (report.verdict, report.difference) == ("first", None)
    assert report.predicted_tokens > 7_000
    other = doctor.examine(outline_prompt(chat("Hi."), "openai-chat"), scope="bob", provider="elsewhere")
    assert other.predicted_tokens == 0


def test_usage_scales_the_tokens_and_prices_the_loss() -> None:
    table = PriceTable([PriceOverride(model="claude-sonnet-5", input=3, cache_write=3.75, cache_read=0.3, output=15)])
    report = examine("anthropic", anthropic("Hi."), anthropic("Hi.", "Yes?", "Go.", system="x" + RULES))
    priced = report.with_usage(TokenUsage(prompt_tokens=100_000), table)
    assert (priced.prompt_tokens, priced.is_estimated, priced.cached_tokens) == (100_000, False, 0)
    assert 95_000 < priced.lost_tokens <= 100_000
    assert priced.lost_cost == Decimal("3.45") * priced.lost_tokens / 1_000_000
    assert report.with_usage(None, PriceTable()).lost_cost is not None
    unknown = examine("anthropic", anthropic("Hi."), model="a-model-of-mine").with_usage(None)
    assert unknown.lost_cost is None


def test_reported_cache_tokens_win_over_predicted_ones() -> None:
    report = examine("anthropic", anthropic("Hi."), anthropic("Hi.", "Yes?", "Go."))
    size = report.prompt_tokens
    assert report.with_usage(TokenUsage(prompt_tokens=size)).verdict == "missed"
    assert report.with_usage(TokenUsage(prompt_tokens=size, cached_tokens=size - 10)).verdict == "hit"
    expired = examine("anthropic", anthropic("Hi."), anthropic("Hi.", "Yes?", "Go."), times=(0, 1000))
    found = expired.with_usage(TokenUsage(prompt_tokens=size, cached_tokens=size - 10))
    assert (found.verdict, found.lost_tokens) == ("hit", 0)


def test_memory_is_bounded() -> None:
    doctor = CacheDoctor(max_prompts=2, max_scopes=3, max_prefixes=10)
    for number in range(50):
        outline = outline_prompt(chat(f"Question {number}.", "Yes?"), "openai-chat")
        doctor.examine(outline, scope=f"client {number % 7}")
    assert len(doctor._stored) == 10
    assert len(doctor._seen) == 3
    assert all(len(seen) <= 2 for seen in doctor._seen.values())


def test_an_outline_holds_no_text() -> None:
    outline = outline_prompt(anthropic("My password is hunter2.", system="Secret rules. " + RULES), "anthropic")
    assert "hunter2" not in repr(outline)
    assert "Secret rules" not in repr(outline)


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": None}, {"messages": "Hi.", "tools": 3, "system": 4}, {"messages": [1, None, {"content": {}}]}],
)
@pytest.mark.parametrize("name", [*FORMATS, "gemini-interactions"])
def test_odd_bodies_do_not_fail(name: str, body: dict[str, Any]) -> None:
    renamed = {{"messages": "input"}.get(key, key): value for key, value in body.items()}
    for odd in (body, renamed, {"contents": body.get("messages")}):
        assert examine(name, odd, odd).reason
