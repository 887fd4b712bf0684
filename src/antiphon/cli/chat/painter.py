"""`Painter`: Markdown, code, tables and lines as text for this terminal, at the width it has now.

rich draws the Markdown, and is loaded when there is some: a prompt should be there at once.

What a model or a tool wrote is escaped: it may be bold, it may not move the cursor. Markdown is escaped before it is parsed and
again in the parsed tokens, where an entity (`&#27;`) has become the character it stands for. Links and images are shown with
their address, because nobody can see where a clickable word leads. HTML is shown as it is written. Without colours (NO_COLOR, a
dumb terminal) no escape sequence is written at all.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from antiphon.cli.terminal import cut, escape_control_chars, is_coloured, styled, table, width_of
from antiphon.tools.builtin import Plan

logger = logging.getLogger(__name__)

NARROWEST = 20
_LONGEST_DRAWN = 100_000
_BAR = 20
_WORD = re.compile(r"\s+|[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")


class Painter:
    """Draws. `is_coloured` is asked once; the width each time, for windows are resized."""

    def __init__(self) -> None:
        self.is_coloured = is_coloured()

    @property
    def columns(self) -> int:
        return max(NARROWEST, shutil.get_terminal_size((80, 24)).columns)

    @property
    def rows(self) -> int:
        return max(6, shutil.get_terminal_size((80, 24)).lines)

    def markdown(self, text: str) -> str:
        """Markdown, drawn; without the empty lines around it. What is far too long, or cannot be drawn, comes as it is."""
        if len(text) <= _LONGEST_DRAWN:
            try:
                return self._drawn(escape_control_chars(text))
            except Exception:  # whatever a model writes, it is shown
                logger.warning("a text of %d characters could not be drawn as Markdown", len(text), exc_info=True)
        return self.line(text.strip("\n"))

    def line(self, text: str, style: str = "") -> str:
        """Words in a style, wrapped to the width."""
        return "\n".join(self.styled(line, style) for line in wrapped(escape_control_chars(text), self.columns))

    def one_line(self, text: str, style: str = "", *, indent: str = "") -> str:
        """Words in a style, cut to one line."""
        return self.styled(indent + cut(escape_control_chars(text), self.columns - len(indent) - 1), style)

    def styled(self, text: str, style: str) -> str:
        """Text in a style; escaped."""
        return styled(text, style) if style else escape_control_chars(text)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """A table; where its last column would have no room, each row in two lines, the last column below the others."""
        shown = [[escape_control_chars(cell) for cell in row] for row in rows]
        taken = sum(max(map(width_of, column)) + 2 for column in list(zip(heads, *shown, strict=True))[:-1])
        if self.columns - taken >= NARROWEST:
            return "\n".join(table(heads, shown))
        lines: list[str] = []
        for *cells, last in shown:
            lines.append(self.one_line("  ".join(filter(None, cells)), "bold"))
            lines += [self.one_line(last, indent="  ")] if last else []
        return "\n".join(lines)

    def plan(self, plan: Plan) -> str:
        """A plan as a card: its title, how far it is, its tasks."""
        done, count = plan.tasks_done, len(plan.tasks)
        filled = round(_BAR * done / count) if count else 0
        bar = f"{'━' * filled}{'─' * (_BAR - filled)} {done}/{count}"
        state = "" if plan.status == "active" else f", {plan.status}"
        lines = [
            self.one_line(f"{plan.title} ({plan.id}{state})", "bold", indent="  "),
            *([self.one_line(plan.goal, "dim", indent="  ")] if plan.goal else []),
            self.styled(f"  {bar}", "green" if count and done == count else "cyan"),
        ]
        for task in plan.tasks:
            due = f" (due {task.due})" if task.due else ""
            mark = "✓" if task.done else "○"
            lines.append(self.one_line(f"{mark} {task.id} {task.title}{due}", "dim" if task.done else "", indent="  "))
        return "\n".join(lines)

    def _drawn(self, text: str) -> str:
        from rich.console import Console

        console = Console(
            width=self.columns,
            force_terminal=self.is_coloured,
            color_system="auto" if self.is_coloured else None,
            legacy_windows=False,
            highlight=False,
            emoji=False,
            markup=False,
        )
        theme = "ansi_dark" if self.is_coloured else "default"
        with console.capture() as captured:
            console.print(_calm_markdown()(text, code_theme=theme, hyperlinks=False))
        return "\n".join(line.rstrip() for line in captured.get().split("\n")).strip("\n")


def wrapped(text: str, columns: int) -> Iterator[str]:
    """The lines of a text, none wider than `columns`, broken between words; Chinese is broken anywhere."""
    for paragraph in text.split("\n"):
        line, used = "", 0
        for piece in _pieces(paragraph, columns):
            width = width_of(piece)
            if used + width > columns:
                yield line.rstrip()
                line, used = "", 0
                if piece.isspace():
                    continue
            line += piece
            used += width
        yield line.rstrip()


def _pieces(text: str, columns: int) -> Iterator[str]:
    for word in _WORD.findall(text):
        if width_of(word) <= columns:
            yield word
        else:
            yield from word


@cache
def _calm_markdown() -> Any:
    from markdown_it import MarkdownIt
    from rich.markdown import Heading, Markdown

    class CalmHeading(Heading):
        """Left, like everything else: what is centred jumps when the window does."""

        LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")

    class CalmMarkdown(Markdown):
        elements = {**Markdown.elements, "heading_open": CalmHeading}  # noqa: RUF012 - it is a constant there too

        def __init__(self, markup: str, **options: Any) -> None:
            super().__init__("", **options)
            self.markup = markup
            parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
            self.parsed = parser.parse(markup)
            _make_visible(self.parsed)

    return CalmMarkdown


def _make_visible(tokens: Sequence[Any]) -> None:
    """Escape what the tokens hold, and turn images into text with their address, in place."""
    for token in tokens:
        token.content = escape_control_chars(token.content)
        for name, value in token.attrs.items():
            if isinstance(value, str):
                token.attrs[name] = escape_control_chars(value)
        _make_visible(token.children or ())
        if token.type == "image":
            address = str(token.attrs.get("src", ""))
            if address.startswith("data:"):
                address = f"{address.partition(',')[0]},…"
            token.type, token.tag, token.content = "text", "", f"🌆 {token.content} ({address})".replace("  ", " ")
            token.children = None
