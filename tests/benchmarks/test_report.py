"""The bench's own parts: slopes, tables, plots, and a page that says what the results say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bench.__main__ import GROUPS, main, page_tables
from bench.measure import report, results
from bench.measure.figures import Figure, Growth, Timing, compare, run_alternately
from bench.measure.plots import WIDTH
from bench.measure.results import ROOT, Machine, Results, build_results

MACHINE = Machine(python="3.11.7", system="Linux", cores=2, processor="a small one", versions={"msgspec": "0.22.0"})
SVG = "{http://www.w3.org/2000/svg}"


def growth(*costs: float, at_most: float | None = 1.1, name: str = "work") -> Growth:
    taken = {10 ** (place + 1): Timing(cost, cost) for place, cost in enumerate(costs)}
    return Growth.of(name, "messages", taken, "ms", at_most=at_most)


def group(name: str, *lines: Figure | Growth | str) -> Results:
    return Results(
        group=name,
        taken=datetime(2026, 1, 2, tzinfo=UTC),
        source="0123456789ab",
        seconds=60,
        load=(0.1, 0.2),
        machine=MACHINE,
        figures=tuple(line for line in lines if isinstance(line, Figure)),
        growths=tuple(line for line in lines if isinstance(line, Growth)),
        not_measured=tuple(line for line in lines if isinstance(line, str)),
    )


SMALL = [
    Figure("gateway, small request", 0.6, 27.0, "ms", 1 / 40, "LiteLLM 1.2"),
    Figure("gateway, small request", 0.6, 0.46, "ms", None, "aiohttp proxy"),
    Figure("gateway, small request", 0.6, 0.64, "ms", 1.0, "the promise: 9 ms"),
]


@pytest.mark.parametrize(
    ("costs", "slope", "holds"),
    [
        ((1, 10, 100), 1.0, True),
        ((1, 1, 1), 0.0, True),
        ((5, 10, 55), 0.52, True),
        ((1, 12, 155), 1.10, True),
        ((1, 100, 10_000), 2.0, False),
        ((1, 14, 196), 1.15, False),
    ],
)
def test_the_slope_is_the_exponent_and_more_than_linear_is_not_kept(
    costs: tuple[float, ...], slope: float, holds: bool
) -> None:
    grown = growth(*costs)
    assert round(grown.slope, 2) == slope
    assert grown.holds is holds
    assert growth(*costs, at_most=None).holds


def test_work_is_run_in_turns_and_the_least_and_the_median_are_kept() -> None:
    order: list[str] = []
    ticks = iter([0.0, 3.0, 0.0, 9.0, 0.0, 1.0, 0.0, 9.0, 0.0, 2.0, 0.0, 30.0])
    taken = run_alternately(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, runs=3, clock=lambda: next(ticks)
    )
    assert order == ["a", "b"] * 3
    assert taken == {"a": Timing(1.0, 2.0), "b": Timing(9.0, 9.0)}


def test_a_comparison_is_a_figure_with_medians() -> None:
    ticks = iter([0.0, 2.0, 0.0, 4.0, 0.0, 3.0, 0.0, 4.0])
    figure = compare(
        "work", int, int, runs=2, scale=10, unit="ms", at_most=0.4, against="them", clock=lambda: next(ticks)
    )
    assert (figure.ours, figure.theirs, figure.our_median, figure.ratio) == (20.0, 40.0, 25.0, 0.5)
    assert not figure.holds


def test_tables_show_minimum_median_promise_and_what_was_not_measured() -> None:
    table = report.tables(
        group(
            "loop",
            Figure("a round", 165.0, 20.0, "us", 5.0, "a | b", 180.0, 20.01),
            growth(1, 100, 10_000),
            "agno not measured: it is not there",
        )
    )
    assert "| a round | 165 (180) µs | 20 µs | 8.25x | 5x **not held** | a / b |" in table
    assert "| work | 10: 1, 100: 100, 1,000: 10,000 ms by messages | 2.00 | 1.1 **not held** |" in table
    assert "- agno not measured: it is not there" in table


def test_every_figure_of_a_page_is_in_the_stored_results() -> None:
    """Pages and pictures are what `python -m bench report` makes of `bench/results`: no figure is typed."""
    kept = results.read_all(list(GROUPS))
    assert report.TABLES.read_text() == report.measurements(kept)
    for table in (*report.page_tables(kept), *page_tables()):
        page = table.page.read_text()
        assert table.put_into(page) == page, f"{table.page.name}: {table.name} is out of date; python -m bench report"
    for name, draw in report.PLOTS.items():
        assert (
            report.PICTURES / f"performance-{name}.svg"
        ).read_text() == f"{draw({one.group: one for one in kept})}\n"


def test_guides_name_no_measured_time() -> None:
    """What was measured is on the pages that a script writes. The planning tables of the deployment guide say that they are
    copied, and name their commands."""
    constants = {("providers.md", "50 ms"), ("monitoring.md", "20 ms"), ("architecture.md", "250 ms")}
    made = {report.TABLES, report.PAGE, ROOT / "docs" / "gateway" / "deploy.md"}
    pages = {*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")} - made
    times = re.compile(r"\b\d[\d.,]* ?(?:ms|µs|milliseconds?|microseconds?|毫秒|微秒)(?!\w)")
    found = {(page.name, time) for page in pages for time in times.findall(page.read_text())}
    assert found == constants


def test_the_promises_that_do_not_hold_are_named() -> None:
    late = Figure("gateway, translated", 1.5, 1.0, "ms", 1.0, "the promise: 1 ms")
    text = report.promises([group("gateway", *SMALL, late), group("growth", growth(1, 100, 10_000))])
    assert "2 of 4 promises hold. Not held:" in text
    assert "- gateway: gateway, translated: 1.5 ms against 1 (the promise: 1 ms), 1.5x; at most 1x was promised" in text
    assert "- growth: work: slope 2.00, at most 1.1 was promised" in text


def test_a_plot_shows_all_but_promises_and_has_a_text_description() -> None:
    drawn = report.PLOTS["overview"]({"gateway": group("gateway", *SMALL)})
    assert drawn is not None
    root = ElementTree.fromstring(drawn)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"antiphon", "LiteLLM 1.2", "aiohttp proxy", "0.6 ms", "27 ms"} <= set(texts)
    assert "the promise: 9 ms" not in texts
    words = root.findtext(f"{SVG}desc") or ""
    assert "aiohttp proxy 0.46 ms; antiphon 0.6 ms; LiteLLM 1.2 27 ms" in words
    assert "prefers-color-scheme: dark" in drawn
    assert_inside(root)


def test_a_plot_of_growth_has_a_line_for_each_and_its_slope() -> None:
    ours, theirs = (
        growth(1, 10, 100, name="the loop, 1 call a round"),
        growth(1, 100, 10_000, at_most=None, name="the loop, 1 call a round: <other> & co"),
    )
    drawn = report.PLOTS["rounds"]({"rounds": group("rounds", ours, theirs)})
    assert drawn is not None
    root = ElementTree.fromstring(drawn)
    assert len(list(root.iter(f"{SVG}path"))) == 2
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"<other> & co", "10,000 ms at 1,000, slope 2.00"} <= set(texts)
    assert_inside(root)


def assert_inside(root: ElementTree.Element) -> None:
    """Nothing is drawn past the edges of the picture, which is as wide as a phone."""
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    assert width == WIDTH <= 480
    for circle in root.iter(f"{SVG}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height


def test_without_results_no_plot_is_drawn() -> None:
    assert [name for name, draw in report.PLOTS.items() if draw({}) is not None] == []


def test_stored_results_are_read_back_with_a_line_for_each_figure(tmp_path: Path) -> None:
    why = f"not measured: {results.ROOT}/agno is not there"
    lines: list[results.Line] = [*SMALL, growth(1, 10, 100), f"{'agno':<46} {why}"]
    kept = build_results("gateway", lines, began=datetime.now(UTC), load=0.5, source="0123456789ab")
    file = results.write(kept, tmp_path)
    assert results.read("gateway", tmp_path) == kept
    assert results.read("loop", tmp_path) is None
    assert sum(line.startswith('{"name"') for line in file.read_text().splitlines()) == 4
    assert kept.not_measured == ("agno not measured: ./agno is not there",)
    assert len(kept.promised) == 3


def test_results_name_no_path_of_the_machine_they_were_taken_on() -> None:
    description = results.machine()
    assert str(results.ROOT) not in repr(description)
    for kept in results.read_all(list(GROUPS)):
        assert str(results.ROOT) not in repr(kept)


def test_an_unknown_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lop"]) == 2
    assert "unknown group lop; use one of imports, log" in capsys.readouterr().err
