"""The parts of the terminal chat, each by itself: blocks, files, completion, tables, the live region, advice, summaries."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.terminal import width_of, wrapped
from antiphon.parts import Document, Image, Text, ToolCallRequest
from antiphon.providers.call import RetryScheduled
from antiphon.tools import tool
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_chat.shared.in_a_line import ADVICE, format_error
from antiphon_chat.shared.markdown import MarkdownBlocks
from antiphon_chat.shared.uploads import MAX_FILE_BYTES, UploadError, file_part, mentioned_files, parse_message
from antiphon_chat.terminal.app import readable_arguments
from antiphon_chat.terminal.formula import formula_text
from antiphon_chat.terminal.input import completions, is_long_paste
from antiphon_chat.terminal.render import Renderer, tail
from antiphon_chat.terminal.turn_view import PlainView, TerminalScreen
from support.terminal import is_control

PROSE = ["", "words", "- item", "  more of it", "1. one", "2. two", "# head", "===", "> quoted", "***", "\\"]
OTHER = ["```", "~~~py", "    code", "| a | b |", "|---|---|", "| 1 | 二 |", "<div>", "[a]: http://b"]
ODD = ["a\rb", "x\x0by", "\u2028"]
LINES = st.sampled_from([*PROSE, *OTHER, *ODD])
TEXTS = st.lists(LINES, max_size=14).map("\n".join)


@given(TEXTS, st.data())
def test_blocks_do_not_depend_on_chunking_and_join_to_the_text(text: str, data: st.DataObject) -> None:
    whole = MarkdownBlocks()
    whole.feed(text)
    expected = [*whole.finished(), whole.rest()]
    assert "".join(expected) == text
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    blocks = MarkdownBlocks()
    seen: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        blocks.feed(text[start:end])
        seen += blocks.finished()
    assert [*seen, blocks.rest()] == expected


def test_a_block_is_finished_when_another_follows() -> None:
    blocks = MarkdownBlocks()
    blocks.feed("# Head\nWords\nand more\n\n- one\n\n- tw")
    assert blocks.finished() == ["# Head\n", "Words\nand more\n\n"]
    assert blocks.open == "- one\n\n- tw"
    blocks.feed("o\n\nEnd")
    assert blocks.finished() == []  # the line is not whole yet
    blocks.feed("\n")
    assert blocks.finished() == ["- one\n\n- two\n\n"]
    assert tail("```py\na\nb\nc\n", 2) == "```py\nc\n"
    assert tail("a\nb", 5) == "a\nb"


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200) | TEXTS)
def test_any_model_text_is_drawn_without_moving_the_cursor(text: str) -> None:
    drawn = Renderer().markdown(text)
    assert not any(is_control(char) for char in drawn)  # not coloured here: no escape at all


def test_entities_of_control_characters_are_escaped() -> None:
    for name in ("&#27;", "&#x9b;", "&#x202e;", "&#x2066;", "&#8207;"):
        drawn = Renderer().markdown(f"a {name}b [{name}](https://example.org/{name}) ![{name}](https://example.org)")
        assert not any(is_control(char) for char in drawn), (name, drawn)


def test_image_addresses_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = "See ![a map](https://example.org/map.png), ![](https://example.org/2.png) and <img src='https://example.org/3'>."
    drawn = " ".join(Renderer().markdown(text).split())
    assert drawn == (
        "See 🌆 a map (https://example.org/map.png), 🌆 (https://example.org/2.png) and <img src='https://example.org/3'>."
    )
    linked = Renderer().markdown("[![badge](https://example.org/badge.svg)](https://example.org/build)")
    assert linked == "🌆 badge (https://example.org/badge.svg) (https://example.org/build)"
    assert Renderer().markdown(f"![dot](data:image/png;base64,{'A' * 5_000})") == "🌆 dot (data:image/png;base64,…)"


@given(st.text(alphabet="ab 二字\n", max_size=80), st.integers(4, 30))
def test_wrapped_lines_fit_and_lose_no_letter(text: str, columns: int) -> None:
    lines = list(wrapped(text, columns))
    assert all(width_of(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_table_without_room_is_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("one", "a word", "what it is about"), ("two", "", "二")]
    monkeypatch.setenv("COLUMNS", "80")
    assert Renderer().table(("A", "B", "C"), rows).split("\n") == [
        "A    B       C",
        "one  a word  what it is about",
        "two          二",
    ]
    monkeypatch.setenv("COLUMNS", "30")
    assert Renderer().table(("A", "B", "C"), rows).split("\n") == ["one a word", "  what it is about", "two", "  二"]


def test_files_are_what_they_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\ufeff字")
    (tmp_path / "b c.pdf").write_bytes(b"%PDF-1.7 \xff")
    text = 'see @a.txt, @"b c.pdf" and @a.txt; mail me@a.txt or @missing'
    assert [path.name for path in mentioned_files(text)] == ["a.txt", "b c.pdf"]
    first_text, first, second = parse_message(text)
    assert first_text == Text(text)
    assert first == Document("text/plain", text="字", name="a.txt")
    assert isinstance(second, Document)
    assert (second.media_type, second.name) == ("application/pdf", "b c.pdf")
    assert isinstance(file_part(b"\xff\xd8\xff\xe0", "x"), Image)
    for data, why in [(b"", "empty"), (b"\0\1", "not an image"), (b"a" * (MAX_FILE_BYTES + 1), "larger than 20 MiB")]:
        with pytest.raises(UploadError, match=why):
            file_part(data, "x")


@pytest.mark.parametrize("mention", ["@notes.txt", '@"my notes"', "@folder/", "@../x", "@~/nothing-here", "@a.txt,"])
def test_a_file_that_does_not_exist_is_an_error(mention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UploadError, match="no such file; correct the name, or write @@"):
        parse_message(f"see {mention} please")


@pytest.mark.parametrize(
    ("message", "text"),
    [("ask @anna", "ask @anna"), ("use @@ap.tool here", "use @ap.tool here"), ("me@a.txt", "me@a.txt")],
)
def test_an_at_sign_without_a_file_is_text(message: str, text: str) -> None:
    assert parse_message(message) == [Text(text)]


def test_arguments_are_readable() -> None:
    arguments = '{"path": "a.py", "code": "x = 1\\ny = 2", "lines": [1, 2]}'
    assert (
        readable_arguments(ToolCallRequest("write", "c", arguments))
        == "path: a.py\ncode: \n  x = 1\n  y = 2\nlines: [1,2]"
    )
    nested = '{"tasks": [{"title": "Read the first chapter", "due": "2026-11-23"}]}'
    assert readable_arguments(ToolCallRequest("plan", "c", nested)).splitlines() == [
        "tasks: ",
        "  [",
        "    {",
        '      "title": "Read the first chapter",',
        '      "due": "2026-11-23"',
        "    }",
        "  ]",
    ]
    for odd in ("[1]", "{broken", '"x"'):
        assert readable_arguments(ToolCallRequest("write", "c", odd)) == odd
    assert readable_arguments(ToolCallRequest("write", "c", '{"a": 1}', freeform=True)) == '{"a": 1}'


def test_long_pastes_are_folded() -> None:
    assert [is_long_paste(text) for text in ("a", "a\n" * 11, "a\n" * 12, "a" * 2_000, "a" * 2_001)] == [
        False,
        False,
        True,
        False,
        True,
    ]


def test_completions_of_typed_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "my notes.md").touch()
    (tmp_path / ".hidden").touch()
    commands = {"/model": "switch", "/memory": "notes", "/new": "begin"}

    def after(typed: str) -> list[tuple[str, int]]:
        words = {"/model": ["openai/gpt-5.5", "offline/plain"]}
        return [(each.text, each.length) for each in completions(typed, commands, words)]

    assert after("/m") == [("/model", 2), ("/memory", 2)]
    assert after("/model GPT") == [("openai/gpt-5.5", 3)]
    assert after("not /m") == []
    assert after("see @") == [("inner/", 0)]
    assert after("see @inner/") == [('"inner/my notes.md"', 6)]
    assert after('see @"inner/my') == [('my notes.md"', 2)]
    assert after("see @nowhere/") == []


def test_the_live_region_is_drawn_over_and_never_leaves_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "6")
    emulator = pyte.Screen(10, 6)
    stream = pyte.Stream(emulator)
    written = io.StringIO()
    screen = TerminalScreen(written)

    def shown() -> list[str]:
        stream.feed(written.getvalue().replace("\n", "\r\n"))
        written.seek(0)
        written.truncate()
        return [line.rstrip() for line in emulator.display if line.strip()]

    screen.live = lambda: "ab字字字字字字\ntwo"  # its first line takes two rows
    asyncio.run(screen.flush())
    assert shown() == ["ab字字字字", "字字", "two"]
    screen.commit("done")
    screen.live = lambda: "three"
    asyncio.run(screen.flush())
    assert shown() == ["done", "three"]
    asyncio.run(screen.flush())
    assert written.getvalue() == ""  # nothing new, nothing drawn
    screen.live = str
    asyncio.run(screen.flush())
    assert shown() == ["done"]


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_every_error_comes_with_advice(kind: ErrorKind) -> None:
    assert set(ADVICE) == set(get_args(ErrorKind))
    error = ProviderError("It went\nwrong. " + "x" * 1000, kind, status=500)
    for is_at_prompt in (True, False):
        line = format_error(error, "openai/gpt-x", is_interactive=is_at_prompt)
        assert "\n" not in line
        assert "{" not in line
        assert len(line) < 420
        assert ("/" in line.rpartition("…")[2]) is is_at_prompt


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"Rain in {city}"


def test_a_plain_terminal_reports_a_long_wait_for_the_provider_and_no_short_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view, error = PlainView(), ProviderError("Rate limit reached", "rate_limit", retry_after=40.0)
    at = datetime.now(UTC)
    view.handle(RetryScheduled("acme/one", 0.4, at, error))
    view.handle(RetryScheduled("acme/one", 40.2, at, error))
    view.handle(RetryScheduled("acme/one", 3.0, at, ProviderError("try\nlater.", "overloaded")))
    clock = at.astimezone().strftime("%H:%M:%S")
    assert capsys.readouterr().err.splitlines() == [
        f"antiphon: acme/one: the provider asks to wait 40 s; trying again at {clock}",
        f"antiphon: acme/one: try later; trying again at {clock}",
    ]


def test_functions_in_formulas_become_words() -> None:
    assert formula_text(r"h(t) = \sum_i a_i \cos(\omega_i t)") == "h(t) = ∑ᵢ aᵢ cos(ωᵢ t)"
    assert formula_text(r"\unknown x") == r"\unknown x"


def test_no_chinese_line_ends_with_an_opening_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "先看标题和每段第一句，再看题目，不要一开始就逐字读（2026-12-08）"
    for shift in range(12):
        lines = Renderer().markdown("的" * shift + text).split("\n")
        assert not any(line.endswith("（") for line in lines), lines
