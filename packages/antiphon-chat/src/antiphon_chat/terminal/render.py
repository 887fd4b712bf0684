"""`Renderer`: Markdown, code, tables and lines as text for this terminal, at the width it has now.

rich draws the Markdown, and is loaded on first use so that the prompt appears at once.

Text from a model or a tool is escaped: it may be bold, but may not move the cursor. Markdown is escaped before it is parsed and
again in the parsed tokens, where an entity (`&#27;`) has become its character. Links and images are shown with
their address, because a terminal does not show the target of a link. HTML is shown as it is written. Without colours (NO_COLOR, a
dumb terminal) no escape sequence is written at all.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from antiphon.cli.terminal import ellipsize, escape_control_chars, styled, table, use_color, width_of, wrapped
from antiphon.conversation import Round, rounds_of
from antiphon.history import AgentHistorySnapshot, HistoryEntry, RollbackEntry
from antiphon.history.entries import TITLES
from antiphon.history.transcript import entry_lines
from antiphon.parts import TokenUsage
from antiphon.tools.builtin import Plan
from antiphon_chat.language import translate
from antiphon_chat.shared.markdown import markdown_parser
from antiphon_chat.shared.spending import Spending, format_money
from antiphon_chat.terminal.formula import formula_text

logger = logging.getLogger("antiphon.chat")

MIN_COLUMNS = 20
_MAX_RENDERED_CHARS = 100_000
_BAR = 20


class Renderer:
    """Draws text. `use_color` is read once; the width each time, because windows are resized."""

    def __init__(self) -> None:
        self.use_color = use_color()

    @property
    def columns(self) -> int:
        return max(MIN_COLUMNS, shutil.get_terminal_size((80, 24)).columns)

    @property
    def rows(self) -> int:
        return max(6, shutil.get_terminal_size((80, 24)).lines)

    def markdown(self, text: str) -> str:
        """Rendered Markdown without empty lines around it. Text that is too long, or cannot be drawn, is returned unchanged."""
        if len(text) <= _MAX_RENDERED_CHARS:
            try:
                return self._drawn(_NOTE.sub(r"\\[\1\\] ", escape_control_chars(text)))
            except Exception:  # any text of a model must be shown
                logger.warning("a text of %d characters could not be drawn as Markdown", len(text), exc_info=True)
        return self.line(text.strip("\n"))

    def line(self, text: str, style: str = "") -> str:
        """Text in a style, wrapped to the width."""
        return "\n".join(self.styled(line, style) for line in wrapped(escape_control_chars(text), self.columns))

    def one_line(self, text: str, style: str = "", *, indent: str = "") -> str:
        """Text in a style, cut to one line."""
        return self.styled(indent + ellipsize(escape_control_chars(text), self.columns - len(indent) - 1), style)

    def styled(self, text: str, style: str) -> str:
        """Text in a style; escaped."""
        return styled(text, style) if style else escape_control_chars(text)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: bool = False) -> str:
        """A table; where its last column would have no room, each row in two lines, the last column below the others.

        What does not fit into the last column is cut, or continued below it if it `wraps`.
        """
        shown = [[escape_control_chars(cell) for cell in row] for row in rows]
        taken = sum(max(map(width_of, column)) + 2 for column in list(zip(heads, *shown, strict=True))[:-1])
        has_room = self.columns - taken >= MIN_COLUMNS
        if wraps:
            room = self.columns - taken if has_room else self.columns - 3
            shown = [
                [*(cells if not number else [""] * len(cells)), line]
                for *cells, last in shown
                for number, line in enumerate(wrapped(last, room))
            ]
        if has_room:
            return "\n".join(table(heads, shown))
        lines: list[str] = []
        for *cells, last in shown:
            lines += [self.one_line("  ".join(filter(None, cells)), "bold")] if any(cells) else []
            lines += [self.one_line(last, indent="  ")] if last else []
        return "\n".join(lines)

    def plan(self, plan: Plan, *, is_proposed: bool = False) -> str:
        """A plan as a card: its title, how far it is, its tasks. One that is proposed has neither name nor progress yet."""
        done, count = plan.tasks_done, len(plan.tasks)
        state = "" if plan.status == "active" else f", {translate(plan.status)}"
        title = plan.title if is_proposed else f"{plan.title} ({plan.id}{state})"
        lines = [
            self.one_line(title, "bold", indent="  "),
            *([self.one_line(plan.goal, "dim", indent="  ")] if plan.goal else []),
        ]
        if not is_proposed:
            filled = round(_BAR * done / count) if count else 0
            bar = f"{'━' * filled}{'─' * (_BAR - filled)} {done}/{count}"
            lines.append(self.styled(f"  {bar}", "green" if count and done == count else ""))
        for task in plan.tasks:
            name = task.title if is_proposed else f"{task.id} {task.title}"
            lines.append(self._task(f"{'✓' if task.done else '☐'} {name}", task.due, "dim" if task.done else ""))
        return "\n".join(lines)

    def _task(self, text: str, due: str, style: str) -> str:
        """A task with the day it is due at the right edge; only its own words are cut."""
        if not due:
            return self.one_line(text, style, indent="  ")
        room = self.columns - width_of(due) - 6
        shown = ellipsize(escape_control_chars(text), room)
        gap = " " * (room - width_of(shown) + 2)
        return self.styled(f"  {shown}{gap}", style) + self.styled(due, "dim")

    def _drawn(self, text: str) -> str:
        from rich.console import Console

        console = Console(
            width=self.columns,
            force_terminal=self.use_color,
            color_system="auto" if self.use_color else None,
            legacy_windows=False,
            highlight=False,
            emoji=False,
            markup=False,
        )
        theme = "ansi_dark" if self.use_color else "default"
        with console.capture() as captured:
            console.print(_plain_markdown()(text, code_theme=theme, hyperlinks=False))
        lines = captured.get().replace(_BREAK, "").split("\n")
        return "\n".join(line.rstrip() for line in lines).strip("\n")


@cache
def _plain_markdown() -> Any:
    from rich.markdown import Heading, Markdown

    class LeftHeading(Heading):
        """Left-aligned like everything else: centred text moves when the window is resized."""

        LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")

    class PlainMarkdown(Markdown):
        elements = {**Markdown.elements, "heading_open": LeftHeading}  # noqa: RUF012 - it is a constant there too

        def __init__(self, markup: str, **options: Any) -> None:
            super().__init__("", **options)
            self.markup = markup
            self.parsed = list(_with_formulas(markdown_parser(for_terminal=True).parse(markup)))
            _make_visible(self.parsed)
            _make_breakable(self.parsed)

    return PlainMarkdown


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


_BREAK = "\x1f"
"""White space without width, for rich: a line may be broken here. Texts have none, because control characters are escaped."""
_WIDE_CHAR = re.compile(
    r"((?![（［｛])[\u2e80-\u2fff\u3040-\u9fff\uf900-\ufaff\uff00-\uffef])(?![，。、；：？！）》」』】…”’,.;:?!)])"
)
_NOTE = re.compile(r"\A {0,3}\[\^([^\]\s]{1,40})\]:[ \t]+")
_NOTE_MARK = re.compile(r"\[\^([^\]\s]{1,40})\]")
_TASK = re.compile(r"\A\[([ xX])\]\s")


def _with_formulas(tokens: Sequence[Any]) -> Iterator[Any]:
    """The tokens with a formula of its own line as a paragraph."""
    from markdown_it.token import Token

    for token in tokens:
        if token.type != "math_block":
            yield token
            continue
        words = Token("text", "", 0, content=formula_text(token.content))
        yield Token("paragraph_open", "p", 1, block=True)
        yield Token("inline", "", 0, content=words.content, children=[words], block=True)
        yield Token("paragraph_close", "p", -1, block=True)


def _make_breakable(tokens: Sequence[Any]) -> None:
    """Let lines break after any Chinese character that may end one; show boxes of tasks, marks of footnotes and formulas."""
    for token in tokens:
        children = token.children or ()
        if token.type == "inline" and children and children[0].type == "text":
            children[0].content = _TASK.sub(lambda found: "☐ " if found[1] == " " else "☑ ", children[0].content)
        _make_breakable(children)
        if token.type.startswith("math_inline"):
            token.type, token.tag, token.content = "text", "", formula_text(token.content)
        if token.type == "text":
            token.content = _WIDE_CHAR.sub(rf"\1{_BREAK}", _NOTE_MARK.sub(r"[\1]", token.content))


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)\n")


def tail(block: str, lines: int) -> str:
    """The end of an open block, for a screen that has no room for all of it; code stays code."""
    shown = block.split("\n")
    if len(shown) <= lines:
        return block
    fence = _FENCE.match(block)
    return (fence[0] if fence else "") + "\n".join(shown[-lines:])


_WIDE = 70


def history_table(renderer: Renderer, snapshot: AgentHistorySnapshot, last: int | None = None) -> str:
    """The last entries (all with None), those that were rolled back marked."""
    effective = {entry.sequence_number for entry in snapshot.effective}
    places = {number: each for each in rounds_of(snapshot) for number in each.entries}
    entries = list(snapshot.entries)[-last:] if last else list(snapshot.entries)
    rows = [_row(entry, places.get(entry.sequence_number), entry.sequence_number in effective) for entry in entries]
    if renderer.columns < _WIDE:  # what a narrow terminal has room for
        return renderer.table(("V", translate("KIND"), translate("TEXT")), [(row[0], row[1], row[5]) for row in rows])
    heads = (
        translate("VERSION"),
        translate("KIND"),
        translate("ROUND"),
        translate("TIME"),
        "TOKENS",
        translate("TEXT"),
    )
    return renderer.table(heads, rows)


def rounds_table(renderer: Renderer, snapshot: AgentHistorySnapshot) -> str:
    """The rounds, with who answered, what it called, how long it took and what it cost."""
    rows = [
        (
            f"{each.turn}.{each.number}",
            each.model or "-",
            f"{each.seconds:.1f} s",
            _usage_cell(each.usage),
            " ".join(
                [
                    ", ".join(each.calls),
                    *([translate("({count} failed)", count=each.failed_calls)] if each.failed_calls else []),
                ]
            ),
        )
        for each in rounds_of(snapshot)
        if each.number
    ]
    heads = (translate("ROUND"), translate("MODEL"), translate("TIME"), "TOKENS", translate("CALLS"))
    return renderer.table(heads, rows) if rows else translate("no rounds yet")


def usage_line(usage: TokenUsage) -> str:
    """The token usage as text."""
    parts = [
        translate("{count:,} in", count=usage.prompt_tokens),
        translate("{count:,} out", count=usage.completion_tokens),
    ]
    if usage.cached_tokens:
        parts.append(translate("{count:,} of those in from a cache", count=usage.cached_tokens))
    if usage.reasoning_tokens:
        parts.append(translate("{count:,} of those out for reasoning", count=usage.reasoning_tokens))
    return translate(", ").join(parts)


def spending_note(spending: Spending | None) -> str:
    """What a turn took from a cache and what it cost, as the end of a line; empty if neither is known."""
    if spending is None:
        return ""
    cached, prompt = spending.usage.cached_tokens, spending.usage.prompt_tokens
    parts = [translate("{percent} % from cache", percent=round(100 * cached / prompt))] if cached and prompt else []
    if spending.is_priced:
        parts.append(format_money(spending.cost) + ("+" if spending.unpriced_calls else ""))
    return "".join(f" · {part}" for part in parts)


def cost_lines(spending: Spending) -> list[str]:
    """What a conversation cost, by model if there are several."""
    if not spending.calls:
        return []
    lines = [translate("Cost: {money}.", money=format_money(spending.cost))] if spending.is_priced else []
    if len(spending.by_model) > 1:
        lines += [f"  {model}: {format_money(cost)}" for model, cost in spending.by_model.items()]
    if spending.unpriced_calls:
        lines.append(
            translate(
                "Price unknown for {count} of {calls} model calls.", count=spending.unpriced_calls, calls=spending.calls
            )
        )
    return lines


def _row(entry: HistoryEntry, place: Round | None, is_effective: bool) -> tuple[str, ...]:
    usage = entry.metadata.usage if entry.metadata else None
    mark = "" if is_effective or isinstance(entry, RollbackEntry) else translate("(rolled back) ")
    return (
        str(entry.sequence_number),
        TITLES.get(entry.kind, entry.kind),
        f"{place.turn}.{place.number}" if place else "",
        f"{entry.timestamp.astimezone():%H:%M:%S}" if entry.timestamp else "",
        _usage_cell(usage) if usage else "",
        mark + " ".join(_preview(list(entry_lines(entry)))),
    )


def _preview(lines: Sequence[str]) -> Sequence[str]:
    return [line[:400] for line in lines[:4]]


def _usage_cell(usage: TokenUsage) -> str:
    return f"{usage.prompt_tokens:,}+{usage.completion_tokens:,}"
