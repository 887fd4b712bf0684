"""A `Comparison` as text: the models beside each other, step by step, in the width of the terminal.

`antiphon replay` and `/compare` print it. Where a column would be too narrow to read, the models are one below the other. What
is not known is a question mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from antiphon.cli.program import program
from antiphon.cli.terminal import Styled, ellipsize, escape_control_chars, joined, styled, width_of, wrapped
from antiphon.conversation.replay import Branch, ComparedStep, Comparison, Step, StepCall
from antiphon_chat.language import translate
from antiphon_chat.shared.spending import format_money

_LABEL = 6
_GAP = 2
_MIN_COLUMN = 18
_ANSWER_LINES = 8
_CALL_LINES = 3


def comparison_lines(comparison: Comparison, columns: int, *, is_full: bool = False) -> list[str]:
    """The comparison in lines of at most `columns`; with `is_full`, answers and arguments in full length."""
    count = len(comparison.branches)
    width = (columns - _LABEL - _GAP * (count - 1)) // count
    is_beside = width >= _MIN_COLUMN
    table = _Table(comparison, width if is_beside else max(_MIN_COLUMN, columns - _LABEL), is_beside, is_full)
    return [*table.lines(), "", *_stops(comparison)]


def model_names(comparison: Comparison) -> list[str]:
    """The models of each branch; the first is the original."""
    names = [", ".join(branch.models) or "?" for branch in comparison.branches]
    return [translate("{model} (original)", model=names[0]), *names[1:]]


class _Table:
    def __init__(self, comparison: Comparison, width: int, is_beside: bool, is_full: bool) -> None:
        self._comparison = comparison
        self._width = width
        self._is_beside = is_beside
        self._is_full = is_full
        self._names = model_names(comparison)

    def lines(self) -> Iterator[str]:
        """The steps, turn by turn, and the totals: one column for each branch, or one block for each."""
        if self._is_beside:
            yield from self._row("", [[styled(line, "bold") for line in self._wrap(name)] for name in self._names])
        turn = 0
        for row in self._comparison.steps:
            if row.turn != turn:
                turn = row.turn
                yield ""
                yield self._question(row)
            yield from self._cells(f"{row.turn}.{row.round}", map(self._step, row.steps))
        yield ""
        yield from self._cells(translate("all") if self._is_beside else "", map(self._total, self._comparison.branches))

    def _cells(self, label: str, cells: Iterable[Iterable[str]]) -> Iterator[str]:
        if self._is_beside:
            yield from self._row(label, [list(cell) for cell in cells])
            return
        for name, cell in zip(self._names, cells, strict=True):
            yield styled(f"{label} {ellipsize(name, self._width)}".lstrip(), "bold")
            yield from (joined("  ", line) for line in cell)

    def _question(self, row: ComparedStep) -> str:
        width = max(self._width, (self._width + _GAP) * len(self._names) - _GAP)
        text = escape_control_chars(row.question)
        return styled(ellipsize(translate("Turn {number}: {text}", number=row.turn, text=text), width), "cyan")

    def _row(self, label: str, cells: Sequence[Sequence[str]]) -> Iterator[str]:
        for number in range(max(map(len, cells), default=0)):
            line = label + " " * (_LABEL - width_of(label)) if number == 0 else " " * _LABEL
            for cell in cells:
                text = cell[number] if number < len(cell) else ""
                line = joined(line, text, " " * (self._width + _GAP - _shown_width(text)))
            yield Styled(line.rstrip())

    def _step(self, step: Step | None) -> Iterator[str]:
        if step is None:
            yield styled("–", "dim")
            return
        for call in step.calls:
            yield from self._wrap(f"→ {call.tool_name} {call.arguments}", _CALL_LINES)
            if mark := _call_mark(call):
                yield from (styled(line, "dim") for line in self._wrap(mark))
        if answer := "\n".join(line for line in step.answer.splitlines() if line.strip()):
            yield from self._wrap(answer, _ANSWER_LINES)
        if not step.is_same:
            yield from (styled(line, "yellow") for line in self._wrap(translate("other calls than the original")))
        yield from (styled(line, "dim") for line in self._wrap(_facts(step)))

    def _total(self, branch: Branch) -> Iterator[str]:
        text = translate("{rounds} rounds, {calls} calls", rounds=branch.rounds, calls=branch.calls)
        yield from self._wrap(text)
        yield from self._wrap(_facts(branch))

    def _wrap(self, text: str, most: int | None = None) -> list[str]:
        lines = list(wrapped(escape_control_chars(text), self._width))
        if most is None or self._is_full or len(lines) <= most:
            return lines
        return [*lines[: most - 1], ellipsize(f"{lines[most - 1]} …", self._width)]


def _shown_width(text: str) -> int:
    """The width without the escape sequences of a style."""
    if isinstance(text, Styled) and text.startswith("\x1b["):
        text = text.partition("m")[2].removesuffix("\x1b[0m")
    return width_of(text)


def _call_mark(call: StepCall) -> str:
    match call.status, call.source:
        case "waiting", _:
            return translate("(waiting: not in the log)")
        case "skipped", _:
            return translate("(not run)")
        case "failed", "log":
            return translate("(failed, from the log)")
        case "failed", _:
            return translate("(failed)")
        case _, "log":
            return translate("(from the log)")
        case _:
            return ""


def _facts(measured: Step | Branch) -> str:
    """Time, tokens and cost."""
    seconds = "?" if measured.seconds is None else f"{measured.seconds:.1f}"
    tokens = "?" if measured.usage is None else f"{measured.usage.total:,}"
    cost = "$?" if measured.cost is None else format_money(measured.cost)
    return f"{seconds} s · {translate('{tokens} tokens', tokens=tokens)} · {cost}"


def _stops(comparison: Comparison) -> Iterator[str]:
    """Where each new branch is, and why it stopped."""
    for name, branch in zip(model_names(comparison)[1:], comparison.branches[1:], strict=True):
        resume = f"{program()} chat --resume {branch.conversation}"
        if branch.stopped == "waiting":
            text = translate(
                "{model} stopped: {tools} needs your decision; decide with `{command}`.",
                model=name,
                tools=branch.detail,
                command=resume,
            )
            yield styled(text, "yellow")
        elif branch.stopped:
            reason = branch.detail or translate("the turn is unfinished")
            yield styled(translate("{model} stopped: {reason}.", model=name, reason=reason.rstrip(".")), "red")
        yield styled(translate("{model} answered in {id}.", model=name, id=branch.conversation), "dim")
