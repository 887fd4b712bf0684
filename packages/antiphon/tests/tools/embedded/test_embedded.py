"""Calls embedded in text: every dialect is found, quoted ones are not, and how the text is cut changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.parts import OutputPart, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.tools.embedded import DIALECTS, EmbeddedCalls, find_calls
from antiphon.wire.delta import (
    Assembler,
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ToolDefinition
from support.cases import each_case
from tools.embedded.embedded_cases import CALL, CALLS, ONLY_UNDER_ON, OSLO, STAYS_TEXT, TOOLS, WEATHER, PartSummary


def summary(parts: Iterable[OutputPart]) -> list[PartSummary]:
    return [
        (part.tool_name, part.arguments) if isinstance(part, ToolCallRequest) else part.text  # type: ignore[union-attr]
        for part in parts
    ]


def stream(pieces: Iterable[str]) -> list[ModelOutputDelta]:
    deltas: list[ModelOutputDelta] = [Started("answer"), PartStarted(0, Text(""))]
    deltas += (PartDelta(0, piece) for piece in pieces)
    return [*deltas, PartEnded(0), Finished()]


def through(
    deltas: Iterable[ModelOutputDelta],
    tools: Iterable[str | ToolDefinition] = TOOLS,
    *,
    only_closed: bool = False,
) -> list[ModelOutputDelta]:
    reader = EmbeddedCalls(tools, only_closed=only_closed)
    return [*(out for delta in deltas for out in reader.feed(delta)), *reader.close()]


def assembled(deltas: Iterable[ModelOutputDelta]) -> Assembler:
    """The deltas put together; that they keep the grammar is looked at on the way."""
    assembler = Assembler()
    open_parts: set[int] = set()
    count = 0
    for delta in deltas:
        assert not assembler.is_finished
        if isinstance(delta, PartStarted):
            assert delta.index == count
            count += 1
            open_parts.add(delta.index)
        elif isinstance(delta, PartDelta | PartExtended):
            assert delta.index in open_parts
        elif isinstance(delta, PartEnded):
            open_parts.remove(delta.index)
        elif isinstance(delta, Finished):
            assert not open_parts
        assembler.add(delta)
    return assembler


@each_case(("text", "expected"), CALLS)
def test_every_dialect_is_found(text: str, expected: list[PartSummary]) -> None:
    assert summary(find_calls(text, TOOLS)) == expected
    whole = assembled(through(stream([text]))).output
    assert summary(whole.parts) == expected
    assert whole.stop_reason == "tool_calls"
    assert assembled(through(stream(text))).output == whole  # a character at a time


def test_every_dialect_of_the_table_is_tested() -> None:
    for dialect in DIALECTS:
        assert any(dialect.opener in text for text, _ in CALLS), dialect.name


@each_case("text", STAYS_TEXT)
def test_quoted_broken_or_unknown_calls_stay_text(text: str) -> None:
    assert find_calls(text, TOOLS) == ((Text(text),) if text else ())
    for pieces in ([text], text):
        output = assembled(through(stream(pieces))).output
        assert output.parts == (Text(text),)
        assert output.stop_reason == "end"


CLOSED = [
    (text, expected)
    for text, expected in CALLS
    if text.count("<tool_call>") + text.count("<function_call>")
    == text.count("</tool_call>") + text.count("</function_call>")
    and "<tool_call>" in text
]


@each_case(("text", "expected"), CLOSED)
def test_closed_tags_are_read_alone(text: str, expected: list[PartSummary]) -> None:
    for pieces in ([text], text):
        output = assembled(through(stream(pieces), only_closed=True)).output
        assert summary(output.parts) == expected


@each_case("text", [*ONLY_UNDER_ON, *STAYS_TEXT])
def test_other_calls_stay_text_where_only_closed_tags_are_read(text: str) -> None:
    for pieces in ([text], text):
        assert assembled(through(stream(pieces), only_closed=True)).output.parts == (Text(text),)


def test_without_tools_there_are_no_calls() -> None:
    assert find_calls(CALL, ()) == (Text(CALL),)


def test_a_freeform_tool_is_not_called_with_json() -> None:
    assert find_calls(CALL, [ToolDefinition("weather", freeform=True)]) == (Text(CALL),)


def test_arguments_that_do_not_parse_are_reported_to_the_model() -> None:
    (call,) = find_calls('<tool_call>{"name": "weather", "arguments": {"city": "a\nb"}}</tool_call>', TOOLS)
    assert isinstance(call, ToolCallRequest)
    with pytest.raises(ValueError, match="not valid JSON"):
        call.parse_arguments()


FRAGMENTS = st.sampled_from(
    [
        *(text for text, _ in CALLS),
        *STAYS_TEXT,
        *(dialect.opener for dialect in DIALECTS),
        *(
            "\n",
            "\n\n",
            " ",
            "`",
            "``",
            "```",
            "```json\n",
            "```\n",
            "~~~",
            "> ",
            "1. ",
            "Hi. ",
            "</tool_call>",
            "{",
            '"',
        ),
        *(
            "<parameter=a>",
            "</parameter>",
            "</function>",
            '{"tool": "weather"',
            "}",
            "\t",
            "\r\n",
            "</think>",
            "3 ",
            ". ",
        ),
    ]
)


@given(
    st.lists(FRAGMENTS | st.text(max_size=4), max_size=8).map("".join),
    st.lists(st.integers(1, 12), min_size=1, max_size=20),
)
def test_the_result_does_not_depend_on_chunking(text: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    for number in range(len(text)):
        size = sizes[number % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    for only_closed in (True, False):
        whole = assembled(through(stream([text]), only_closed=only_closed)).output
        assert assembled(through(stream(pieces), only_closed=only_closed)).output == whole
    assert summary(find_calls(text, TOOLS)) == (summary(whole.parts) if text else [])
    if not any(isinstance(part, ToolCallRequest) for part in whole.parts):
        assert whole.parts == (Text(text),)


@given(st.text(st.sampled_from("<>[]{}`~\n \"':,;.aTtool_call=/|"), max_size=60))
def test_text_with_no_calls_passes_unchanged(text: str) -> None:
    assert assembled(through(stream(text))).output.parts == (Text(text),)


def shown_after(pieces: Iterable[str]) -> str:
    """What a screen shows before the text has ended."""
    reader = EmbeddedCalls(TOOLS)
    given = [out for delta in stream(pieces)[:-2] for out in reader.feed(delta)]
    return "".join(delta.text for delta in given if isinstance(delta, PartDelta))


@pytest.mark.parametrize("text", [text for text, expected in CALLS if all(isinstance(one, tuple) for one in expected)])
def test_no_part_of_a_call_is_shown(text: str) -> None:
    calls = [part for part in find_calls(text, TOOLS) if isinstance(part, ToolCallRequest)]
    for length in range(len(text) + 1):
        shown = shown_after(text[:length])
        assert "".join(call.arguments for call in calls).startswith(shown)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Hello", ""),
        ("Hello <", "<"),
        ("a < b", ""),
        ("Hello. <tool_", "<tool_"),
        ("Hello. <tool_box", ""),
        ("Hello [TOOL", "[TOOL"),
        ("Hello [TOO much]", ""),
        ('{"to', '{"to'),
        ('{"answer"', '{"answer"'),
        ('{"answer": 42}', ""),
        ('{"items": [' + "1, " * 500, ""),
        ('{"name": "unknown", ', ""),
        ("```js", "```js"),
        ("```js\n", ""),
        ('```json\n{"answ', '```json\n{"answ'),
        ('```json\n{"answer": 42}\n```', ""),
        ('{"' + "x" * 300, ""),
    ],
)
def test_only_what_may_become_a_call_is_held_back(text: str, held: str) -> None:
    assert shown_after(text).rstrip() == text.removesuffix(held).rstrip()


def test_non_text_parts_pass_and_keep_their_order() -> None:
    native = ToolCallRequest("weather", "id-1", "")
    deltas: list[ModelOutputDelta] = [
        Started("r"),
        PartStarted(0, Thinking("")),
        PartDelta(0, CALL),
        PartEnded(0),
        PartStarted(1, Text("Now. ")),
        PartDelta(1, CALL),
        PartEnded(1),
        PartStarted(2, native),
        PartDelta(2, OSLO),
        PartExtended(2, {"gemini": {"thoughtSignature": "s"}}),
        PartEnded(2),
        UsageReported(TokenUsage(prompt_tokens=1)),
        Finished("length"),
    ]
    assembler = assembled(through(deltas))
    thinking, text, embedded, last = assembler.output.parts
    assert thinking == Thinking(CALL)
    assert text == Text("Now.")
    assert summary([embedded]) == [WEATHER]
    assert last == ToolCallRequest("weather", "id-1", OSLO, native={"gemini": {"thoughtSignature": "s"}})
    assert assembler.output.usage == TokenUsage(prompt_tokens=1)
    assert assembler.output.stop_reason == "length"  # it was cut: that it called something does not change that


def test_candidates_are_read_apart() -> None:
    deltas: list[ModelOutputDelta] = [
        PartStarted(0, Text("")),
        PartStarted(1, Text(""), 1),
        PartDelta(0, CALL[:20]),
        PartDelta(1, "No. " + CALL[:9]),
        PartDelta(0, CALL[20:]),
        PartDelta(1, "!"),
        PartEnded(0),
        PartEnded(1),
        Finished(candidate=0),
        Finished("stop_sequence", "x", candidate=1),
    ]
    out = through(deltas)
    assembler = Assembler()
    for delta in out:
        assembler.add(delta)
    first = assembler.output
    (second,) = first.others
    assert (summary(first.parts), first.stop_reason) == ([WEATHER], "tool_calls")
    assert (summary(second.parts), second.stop_reason) == (["No. <tool_cal!"], "stop_sequence")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, [("weather", None), ("", "s")]),
        ("Hi.\n" + CALL, [("Hi.", None), ("weather", None), ("", "s")]),
        (CALL + "\nHi.", [("weather", None), ("Hi.", "s")]),
        ("", [("", "s")]),
    ],
)
def test_extras_of_a_text_stay_with_a_text(text: str, expected: list[tuple[str, str | None]]) -> None:
    extras = {"gemini": {"thoughtSignature": "s"}}
    deltas = stream([text])
    deltas.insert(-2, PartExtended(0, extras))
    found: list[tuple[str, str | None]] = []
    for part in assembled(through(deltas)).output.parts:
        assert isinstance(part, Text | ToolCallRequest)
        signature = (part.native or {}).get("gemini", {}).get("thoughtSignature")
        found.append((part.text if isinstance(part, Text) else part.tool_name, signature))
    assert found == expected


@pytest.mark.parametrize("end", [None, Failed(ProviderError("cut", "stream_cut"))])
@pytest.mark.parametrize("length", range(0, len(CALL) + 1, 7))
def test_a_stream_that_is_cut_gives_what_it_held_as_text(end: Failed | None, length: int) -> None:
    reader = EmbeddedCalls(TOOLS)
    given = [out for delta in stream(["Hm.\n", CALL[:length]])[:-2] for out in reader.feed(delta)]
    if end is not None:
        given += reader.feed(end)
        assert given[-1] is end
    given += reader.close()
    assert summary(assembled(given).output.parts) == ["Hm.\n" + CALL[:length]]


def test_ids_follow_from_the_stream_and_differ() -> None:
    def ids(answer: str, seed: str = "") -> list[str]:
        reader = EmbeddedCalls(TOOLS, id_seed=seed)
        deltas = [Started(answer), *stream([f"{CALL}\n{CALL}"])[1:]]
        parts = assembled(out for delta in deltas for out in reader.feed(delta)).output.parts
        return [part.tool_call_id for part in parts if isinstance(part, ToolCallRequest)]

    assert ids("a") == ids("a")
    assert len({*ids("a"), *ids("b"), *ids("a", "1"), *ids("a", "2")}) == 8


@pytest.mark.slow
def test_a_stream_is_read_in_linear_time() -> None:
    def seconds(text: str) -> float:
        begin = time.process_time()
        through(stream(text[at : at + 4] for at in range(0, len(text), 4)))
        find_calls(text, TOOLS)
        return time.process_time() - begin

    size = 300
    for unit in (
        '{"tool": "weather", "a":\n',
        "<tool_call>",
        "<tool_call>{",
        'x. <tool_call>{"name": "weather", "a": ["',
        "`",
        "```json\n",
        "[TOOL_CALLS]",
        " ",
        "<function=weather><parameter=a>",
        "~",
        "1 < 2 [3] ",
        "<tool_call>{'tool': ",
        "<tool_call>```json\n{",
        "<tool_call>weather",
    ):
        small = min(seconds(unit * size) for _ in range(2))
        # Eight times the text; a quadratic reader takes 64 times as long. CPU time, and the best of three: load does not count.
        assert any(seconds(unit * size * 8) < 40 * small + 0.05 for _ in range(3)), unit
