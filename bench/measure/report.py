"""The report: tables and plots made from `bench/results/*.json` alone.

`docs/reference/measurements.md` has every figure of the groups and is made here as a whole; `docs/performance.md` is written by
hand, with the promises filled in. Plots are SVG files in `docs/pictures`. Making the report twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.measure.figures import Figure, Growth
from bench.measure.plots import Curve, Dot, DotPlot, dot_plots, lines, readable
from bench.measure.results import ROOT, Results
from bench.measure.tables import PageTable, write_tables

PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "pictures"
TABLES = ROOT / "docs" / "reference" / "measurements.md"
_PROMISE = "the promise"
_RETIRED = ("TensorZero", "Portkey")
"""Archived and acquired products: in the tables, not in the plots."""
_HEAD = """# Measurements

Every figure of `make bench` with its peer, as stored in `bench/results`. [What they mean](../performance.md): *ours* and *theirs*
are the fastest runs, with the median in brackets; *at most* is a promise about their ratio.

<!-- made by python -m bench report -->

"""
_FLOORS = ("by hand", "proxy", "python itself", "msgspec", "splitting", "row for each", "alone", "bytes of the text")


def write(kept: Sequence[Results]) -> Iterator[Path]:
    """Write the tables, the page and the plots; the files that were written."""
    TABLES.write_text(measurements(kept))
    yield TABLES
    write_tables(page_tables(kept))
    yield PAGE
    for name, draw in PLOTS.items():
        if (drawn := draw({results.group: results for results in kept})) is not None:
            file = PICTURES / f"performance-{name}.svg"
            file.write_text(drawn + "\n")
            yield file


def measurements(kept: Sequence[Results]) -> str:
    """All tables on one page."""
    blocks = [f"## {results.group}\n\n{circumstances(results)}\n{tables(results)}" for results in kept]
    return _HEAD + "\n".join(blocks)


def page_tables(kept: Sequence[Results]) -> list[PageTable]:
    """What is filled into the page."""
    return [PageTable(PAGE, "promises", promises(kept))]


def circumstances(results: Results) -> str:
    """The machine, the time and the load."""
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return (
        f"{results.taken:%Y-%m-%d %H:%M} UTC, in {results.seconds} s, load {results.load[0]:g} before and {results.load[1]:g} "
        f"after, from `{results.source}`. Python {machine.python}, {machine.system}, {machine.cores} cores "
        f"({machine.processor}); {versions}.\n"
    )


def promises(kept: Sequence[Results]) -> str:
    """How many promises hold, and which do not."""
    made = sum(len(results.promised) for results in kept)
    rows = [f"- {results.group}: {_short(line)}" for results in kept for line in results.not_held]
    head = f"{made - len(rows)} of {made} promises hold" + (". Not held:\n" if rows else ".")
    return "\n".join([head, *rows]) + "\n"


def _short(line: Figure | Growth) -> str:
    if isinstance(line, Growth):
        return f"{line.name}: slope {line.slope:.2f}, at most {line.at_most:g} was promised"
    return (
        f"{line.name}: {_cell(line.ours, None, line.unit)} against {readable(line.theirs)} ({line.against}), "
        f"{readable(line.ratio)}x; "
        f"at most {readable(line.at_most or 0)}x was promised"
    )


def tables(results: Results) -> str:
    """A group as Markdown."""
    blocks = []
    if results.figures:
        blocks.append(_table(("what", "ours", "theirs", "ratio", "at most", "against"), map(_figure, results.figures)))
    if results.growths:
        blocks.append(_table(("what grows", "cost by size", "slope", "at most"), map(_growth, results.growths)))
    if results.not_measured:
        blocks.append("\n".join(f"- {line}" for line in results.not_measured) + "\n")
    return "\n".join(blocks)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _figure(figure: Figure) -> Sequence[str]:
    return (
        figure.name,
        _cell(figure.ours, figure.our_median, figure.unit),
        _cell(figure.theirs, figure.their_median, figure.unit),
        f"{readable(figure.ratio)}x",
        "" if figure.at_most is None else f"{readable(figure.at_most)}x{'' if figure.holds else ' **not held**'}",
        figure.against,
    )


def _cell(least: float, median: float | None, unit: str) -> str:
    """The least, and the median if it differs."""
    unit = {"us": "µs"}.get(unit, unit)
    is_same = median is None or readable(median) == readable(least)
    return f"{readable(least)} {unit}" if is_same else f"{readable(least)} ({readable(median or 0)}) {unit}"


def _growth(growth: Growth) -> Sequence[str]:
    costs = ", ".join(f"{point.size:,}: {readable(point.least)}" for point in growth.points)
    mark = "" if growth.holds else " **not held**"
    limit = "" if growth.at_most is None else f"{growth.at_most:g}{mark}"
    return growth.name, f"{costs} {growth.unit} by {growth.sized}", f"{growth.slope:.2f}", limit


def dot_plot(kept: Mapping[str, Results], group: str, names: str, title: str) -> DotPlot | None:
    """The figures whose names match, ours included. Promises and retired products are only in the tables."""
    found = [figure for figure in _figures(kept, group) if re.fullmatch(names, figure.name)]
    dots: dict[str, Dot] = {}
    for figure in found:
        if figure.against.startswith((_PROMISE, *_RETIRED)):
            continue
        name = figure.against.removeprefix("import ")
        dots[name] = Dot(name, figure.theirs, "floor" if _is_floor(name) else "theirs")
    if not dots:
        return None
    dots["antiphon"] = Dot("antiphon", min(figure.ours for figure in found), "ours")
    unit = {"us": "µs", "bytes": "B"}.get(found[0].unit, found[0].unit)
    return DotPlot(title, unit, tuple(sorted(dots.values(), key=lambda dot: dot.value)))


def _is_floor(name: str) -> bool:
    """Whether it does less than we do, and so shows the lower bound."""
    return any(word in name for word in _FLOORS)


def _figures(kept: Mapping[str, Results], group: str) -> Sequence[Figure]:
    return kept[group].figures if group in kept else ()


def _dot_plots(title: str, *panels: tuple[str, str, str]) -> Callable[[Mapping[str, Results]], str | None]:
    def draw(kept: Mapping[str, Results]) -> str | None:
        found = [dot_plot(kept, group, names, heading) for group, names, heading in panels]
        known = [panel for panel in found if panel is not None]
        return dot_plots("performance", title, known) if known else None

    return draw


def _lines(group: str, names: str, title: str) -> Callable[[Mapping[str, Results]], str | None]:
    def draw(kept: Mapping[str, Results]) -> str | None:
        growths = (
            [growth for growth in kept[group].growths if re.fullmatch(names, growth.name)] if group in kept else []
        )
        if not growths:
            return None
        has_others = any(growth.at_most is None and not _is_floor(growth.name) for growth in growths)
        curves = [_curve(growth, ours="antiphon" if has_others else growth.name) for growth in growths]
        return lines("performance", title, growths[0].sized, growths[0].unit, curves)

    return draw


def _curve(growth: Growth, *, ours: str) -> Curve:
    kind = "floor" if _is_floor(growth.name) else "theirs" if growth.at_most is None else "ours"
    name = growth.name.rpartition(": ")[2] if kind == "theirs" else ours if kind == "ours" else growth.name
    points = tuple((float(point.size), point.least) for point in growth.points)
    return Curve(name, points, growth.slope, kind)


PLOTS: Mapping[str, Callable[[Mapping[str, Results]], str | None]] = {
    "overview": _dot_plots(
        "Antiphon beside others, CPU time",
        ("gateway", r"gateway, small request", "A small request through the gateway, CPU"),
        ("loop", r"a round of the loop.*", "A round of the tool loop, CPU"),
    ),
    "imports": _dot_plots("Import, CPU time", ("imports", r"import antiphon, .*", "Import, CPU")),
    "gateway": _dot_plots(
        "The gateway beside others, CPU time a request",
        ("gateway", r"gateway, stream of \d+ events", "A stream of 107 events, CPU"),
        ("gateway", r"gateway, 320 KB agent request", "An agent's request of 320 KB, CPU"),
        ("gateway", r"gateway, translated", "Anthropic's client, OpenAI's upstream, CPU"),
    ),
    "formats": _dot_plots(
        "Translating and assembling beside others, CPU time",
        ("peers", r"openai-chat to anthropic, decoded", "201 messages, Chat to Anthropic, CPU"),
        ("peers", r"assembling \d+ events, openai-chat", "A stream of 2,000 events, CPU"),
        ("peers", r"assembling \d+ events, anthropic", "The same, Anthropic's, CPU"),
    ),
    "disk": _dot_plots(
        "400 turns on the disk",
        ("disk", r"bytes on disk per byte of text", "Bytes on disk per byte of text"),
        ("disk", r"storing a turn, the last 50", "Storing a turn after 350 others, CPU"),
    ),
    "rounds": _lines("rounds", r"the loop, 1 call a round.*", "A whole turn of the loop, CPU over rounds"),
    "growth": _lines("growth", r".* to .*|msgspec alone, openai-chat", "A translation, CPU over messages"),
}
"""The plots by name. Each returns None where nothing was measured."""
