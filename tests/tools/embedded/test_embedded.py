"""Calls embedded in text: every dialect is found, quoted ones are not, and how the text is cut changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.history.entries import TokenUsage
from antiphon.parts import OutputPart, Text, Thinking, ToolCallRequest
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

WRITE = ToolDefinition(
    "write_file",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "count": {"type": "integer"}, "text": {"type": "string"}},
    },
)
TOOLS: Sequence[str | ToolDefinition] = ("weather", "search_web", "list_plans", WRITE)
OSLO = '{"city": "Oslo"}'
CALL = f'<tool_call>{{"name": "weather", "arguments": {OSLO}}}</tool_call>'

# Each is a text and what it says: strings are text, pairs are calls.
PartSummary = str | tuple[str, str]
WEATHER: PartSummary = ("weather", OSLO)

CALLS: list[tuple[str, list[PartSummary]]] = [
    # <tool_call>, as seed 002, Hermes and Qwen write it
    (CALL, [WEATHER]),
    ('<tool_call>\n{"tool": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>', [WEATHER]),
    ('<tool_call>{"tool": "weather", "parameters": {"city": "Oslo"}}</tool_call>', [WEATHER]),
    ('<tool_call>{"name": "weather", "args": {"city": "Oslo"}}</tool_call>', [WEATHER]),
    ('<tool_call>{"arguments": {"city": "Oslo"}, "name": "weather"}</tool_call>', [WEATHER]),
    (
        '<tool_call>{"tool": "weather", "city": "Oslo", "days": 2}</tool_call>',
        [("weather", '{"city":"Oslo","days":2}')],
    ),
    ('<tool_call>{"name": "list_plans"}</tool_call>', [("list_plans", "{}")]),
    ('<tool_call>{"name": "list_plans", "arguments": null}</tool_call>', [("list_plans", "{}")]),
    ('<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>', [WEATHER]),
    (
        '<tool_call>{"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}</tool_call>',
        [WEATHER],
    ),
    (f"<function_call>{CALL[11:-12]}</function_call>", [WEATHER]),
    (f"<tool_call>[{CALL[11:-12]}, {CALL[11:-12]}]</tool_call>", [WEATHER, WEATHER]),
    (f"<tool_call>\n{CALL[11:-12]}\n{CALL[11:-12]}\n</tool_call>", [WEATHER, WEATHER]),
    (f"{CALL}\n{CALL}", [WEATHER, WEATHER]),
    (f"{CALL}{CALL}", [WEATHER, WEATHER]),
    (
        '<tool_call>{"name": "search_web", "arguments": {"q": "</tool_call> <tool_call>"}}</tool_call>',
        [("search_web", '{"q": "</tool_call> <tool_call>"}')],
    ),
    # around it
    (f"Let me look.\n\n{CALL}\n\nOne moment.", ["Let me look.", WEATHER, "One moment."]),
    (f"Let me look. {CALL}", ["Let me look.", WEATHER]),
    (f"让我查一下。{CALL}", ["让我查一下。", WEATHER]),
    (f"Sure! 😊 {CALL}", ["Sure! 😊", WEATHER]),
    (f"<think>Hm: weather.</think>{CALL}", ["<think>Hm: weather.</think>", WEATHER]),
    (f"{CALL} Done.", [WEATHER, "Done."]),
    (f"It's `fine` now.\n{CALL}", ["It's `fine` now.", WEATHER]),
    (f"A stray ` mark.\n\n{CALL}", ["A stray ` mark.", WEATHER]),
    (f"```python\nprint(1)\n```\n{CALL}", ["```python\nprint(1)\n```", WEATHER]),
    (f"> quoted\n\n{CALL}", ["> quoted", WEATHER]),
    (f"<tool_call>hm\n{CALL}", ["<tool_call>hm", WEATHER]),
    (f'<tool_call>{{"name": "oops\n{CALL}', ['<tool_call>{"name": "oops', WEATHER]),
    (f"a < b [1] {{x}}\n{CALL}", ["a < b [1] {x}", WEATHER]),
    # in the middle of a sentence, outside code and quotations
    (f"我来帮你搜索{CALL}", ["我来帮你搜索", WEATHER]),
    (f"我来帮你搜索：{CALL}请稍等", ["我来帮你搜索：", WEATHER, "请稍等"]),
    (f"我先搜索，{CALL}\n\n然后制定计划。", ["我先搜索，", WEATHER, "然后制定计划。"]),
    (f"You would write {CALL} to call it.", ["You would write", WEATHER, "to call it."]),
    (f"{CALL} is how it is written.", [WEATHER, "is how it is written."]),
    (f"- {CALL}", ["-", WEATHER]),
    (f"1. {CALL}", ["1.", WEATHER]),
    (f'搜索“雅思”和 "7分" {CALL}', ['搜索“雅思”和 "7分"', WEATHER]),
    (f"First {CALL}, then {CALL}.", ["First", WEATHER, ", then", WEATHER, "."]),
    ('好的 {"tool": "weather", "city": "Oslo"} 请稍等', ["好的", ("weather", '{"city":"Oslo"}'), "请稍等"]),
    ('{"city": "Oslo", "tool": "weather"}', [("weather", '{"city":"Oslo"}')]),
    ('For example {"tool": "weather", "city": "Oslo"}', ["For example", ("weather", '{"city":"Oslo"}')]),
    (f'{{"name": "weather", "arguments": {OSLO}}}; {{"name": "weather", "arguments": {OSLO}}}', [WEATHER, WEATHER]),
    ('```\n{"tool": "weather", "city": "Oslo"}\n```', [("weather", '{"city":"Oslo"}')]),
    # closed, and not on offer: the model hears that there is no such tool
    (CALL.replace("weather", "delete_everything"), [("delete_everything", OSLO)]),
    (
        f"<tool_call>[{CALL[11:-12]}, {CALL[11:-12].replace('weather', 'unknown')}]</tool_call>",
        [WEATHER, ("unknown", OSLO)],
    ),
    # unclosed, and what is left of the JSON is whole
    (CALL.removesuffix("</tool_call>"), [WEATHER]),
    (f"{CALL.removesuffix('</tool_call>')}\n{CALL}", [WEATHER, WEATHER]),
    # closed, and not JSON: the model gets an error when its arguments are parsed
    (
        '<tool_call>{"name": "weather", "arguments": {"city": Oslo}}</tool_call>',
        [("weather", '{"city": Oslo}}')],
    ),
    ('<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}</tool_call>', [WEATHER]),
    # Qwen3-Coder
    (
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n<parameter=count>\n5\n</parameter>\n"
        "<parameter=text>\n1\n</parameter>\n</function>\n</tool_call>",
        [("write_file", '{"path":"a.txt","count":5,"text":"1"}')],
    ),
    (
        '<function=weather>\n<parameter=city>\nOslo "west"\n</parameter>\n</function>\n</tool_call>',
        [("weather", '{"city":"Oslo \\"west\\""}')],
    ),
    (
        "<tool_call><function=weather><parameter=days>[1, 2]</parameter></function></tool_call>",
        [("weather", '{"days":[1, 2]}')],
    ),
    ("<tool_call><function=list_plans></function></tool_call>", [("list_plans", "{}")]),
    # Llama
    (f'<|python_tag|>{{"name": "weather", "parameters": {OSLO}}}', [WEATHER]),
    (
        f'<|python_tag|>{{"name": "weather", "parameters": {OSLO}}}; {{"name": "weather", "parameters": {OSLO}}}',
        [WEATHER, WEATHER],
    ),
    (f'{{"name": "weather", "parameters": {OSLO}}}', [WEATHER]),
    (f'{{"type": "function", "name": "weather", "parameters": {OSLO}}}', [WEATHER]),
    (f"<function=weather>{OSLO}</function>", [WEATHER]),
    (f"<function=weather>{OSLO}", [WEATHER]),
    # Mistral
    (f'[TOOL_CALLS] [{{"name": "weather", "arguments": {OSLO}}}]', [WEATHER]),
    (f"[TOOL_CALLS]weather[ARGS]{OSLO}", [WEATHER]),
    (f"[TOOL_CALLS]weather{OSLO}", [WEATHER]),
    (f"[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{OSLO}", [WEATHER]),
    (f"Looking[TOOL_CALLS]weather[ARGS]{OSLO}[TOOL_CALLS]weather[ARGS]{OSLO}", ["Looking", WEATHER, WEATHER]),
    # Granite
    (f'<|tool_call|>[{{"name": "weather", "arguments": {OSLO}}}]', [WEATHER]),
    # DeepSeek V3.1 and V3
    (
        f"Hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{OSLO}<｜tool▁call▁end｜>"
        f"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{OSLO}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ["Hm", WEATHER, WEATHER],
    ),
    (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{OSLO}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        [WEATHER],
    ),
    # a line of its own
    ('{"tool": "weather", "city": "Oslo"}', [("weather", '{"city":"Oslo"}')]),
    ('Hm.\n{"tool": "weather", "arguments": {"city": "Oslo"}}\nWait.', ["Hm.", WEATHER, "Wait."]),
    ('{\n  "tool": "weather",\n  "arguments": {"city": "Oslo"}\n}', [WEATHER]),
    ('{"tool": "list_plans"}\r\n', [("list_plans", "{}")]),
    # a fenced block
    ('```json\n{"tool": "weather", "arguments": {"city": "Oslo"}}\n```', [WEATHER]),
    ('Hm:\n```tool_call\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```\nOk.', ["Hm:", WEATHER, "Ok."]),
    ('~~~~json\n{"tool": "list_plans"}\n{"tool": "list_plans"}\n~~~~', [("list_plans", "{}"), ("list_plans", "{}")]),
    ('```json\n{"tool": "list_plans"}', [("list_plans", "{}")]),
]

STAYS_TEXT = [
    "",
    " ",
    "\n\n",
    "Just words.\n\nAnd more, with `code` and\n```\na block\n```\n",
    # inline code
    f"Write `{CALL}` to call it.",
    f"`{CALL}`",
    f"``{CALL}``",
    f"A span `of two\n{CALL}\nlines` is code.",
    f"Like so. `{CALL}`",
    f"`Like so. {CALL} Done.`",
    # code blocks of another language, or of none
    f"```\n{CALL}\n```",
    f"```xml\n{CALL}\n```",
    f"```python\n{CALL}\n```\n",
    f"~~~\n```\n{CALL}\n```\n~~~",
    f"````md\n```json\n{CALL}\n```\n````",
    f"````md\n```\n{CALL}\n```\n````",
    f"    {CALL}",
    f"\t{CALL}",
    '```python\n{"tool": "weather", "city": "Oslo"}\n```',
    f"```json\n{CALL}\n```",
    # more than the call in the block
    '```json\n{"tool": "weather", "city": "Oslo"}\nand so on\n```',
    '```json\n// call it\n{"tool": "weather", "city": "Oslo"}\n```',
    '```json\n{"a": 1}\n```\n',
    # in quotation marks
    f"Like “{CALL}”.",
    f'He wrote "use {CALL} here".',
    f"例如「{CALL}」",
    'For example "{"tool": "weather"}"',
    # unclosed, with words after it
    f"{CALL.removesuffix('</tool_call>')} and so on",
    '    {"tool": "weather", "city": "Oslo"}',
    f"The mark [TOOL_CALLS]weather[ARGS]{OSLO} announces a call.",
    "The mark <|python_tag|> announces a call.",
    # a quoted line
    f"> {CALL}",
    f"> Then it said. {CALL}",
    f"  > Then it said.\n> {CALL}\n",
    '> {"tool": "weather", "city": "Oslo"}',
    # not on offer, or no call
    CALL.replace("weather", "delete_everything").removesuffix("</tool_call>"),
    CALL.replace("weather", "not a name"),
    '{"tool": "delete_everything"}',
    "<function=delete_everything></function>",
    f"[TOOL_CALLS]delete_everything[ARGS]{OSLO}",
    '{"name": "weather"}',
    '{"name": "weather", "city": "Oslo"}',
    '{"city": "Oslo", "tool": "unknown"}',
    '{"answer": {"tool": "weather"}}',
    '{"answer": 42}',
    "<tool_call></tool_call>",
    "<tool_call>[]</tool_call>",
    '<tool_call>{"arguments": {}}</tool_call>',
    '<tool_call>{"name": 5}</tool_call>',
    # cut short
    "<tool_call>",
    "<tool_",
    "<",
    CALL[:40],
    CALL[:-4],
    '{"tool": "weather", "city": "Os',
    '```json\n{"tool": "weather", "city"',
    "<function=weather><parameter=city>Oslo</parameter>",
    "[TOOL_CALLS]weather[ARGS]{",
    "[TOOL_",
    # what no JSON reader takes
    '<tool_call>{"name": "we\udc80ather", "x": "\udc80"}</tool_call>',
    "<tool_call>" + "[" * 3000,
]


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
    deltas: Iterable[ModelOutputDelta], tools: Iterable[str | ToolDefinition] = TOOLS
) -> list[ModelOutputDelta]:
    reader = EmbeddedCalls(tools)
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


@pytest.mark.parametrize(("text", "expected"), CALLS)
def test_every_dialect_is_found(text: str, expected: list[PartSummary]) -> None:
    assert summary(find_calls(text, TOOLS)) == expected
    whole = assembled(through(stream([text]))).output
    assert summary(whole.parts) == expected
    assert whole.stop_reason == "tool_calls"
    assert assembled(through(stream(text))).output == whole  # a character at a time


def test_every_dialect_of_the_table_is_tested() -> None:
    for dialect in DIALECTS:
        assert any(dialect.opener in text for text, _ in CALLS), dialect.name


@pytest.mark.parametrize("text", STAYS_TEXT)
def test_what_is_quoted_broken_or_not_on_offer_stays_text(text: str) -> None:
    assert find_calls(text, TOOLS) == ((Text(text),) if text else ())
    for pieces in ([text], text):
        output = assembled(through(stream(pieces))).output
        assert output.parts == (Text(text),)
        assert output.stop_reason == "end"


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
    whole, cut = assembled(through(stream([text]))).output, assembled(through(stream(pieces))).output
    assert cut == whole
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
    ):
        small = min(seconds(unit * size) for _ in range(2))
        # Eight times the text; a quadratic reader takes 64 times as long. CPU time, and the best of three: load does not count.
        assert any(seconds(unit * size * 8) < 40 * small + 0.05 for _ in range(3)), unit
