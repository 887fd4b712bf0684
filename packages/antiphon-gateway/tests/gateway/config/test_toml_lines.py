"""The line of every key of a TOML file, and how places in it are spelled."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon_gateway.config.checks import format_path
from antiphon_gateway.config.settings import ConfigPath
from antiphon_gateway.config.toml_lines import line_numbers

BARE = st.sampled_from(["a", "b1", "c-d", "e_f", "1"])
KEYS = st.one_of(
    BARE.map(lambda name: (name, name)),
    st.text(st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=("Cc", "Cs")), max_size=3).map(
        lambda name: (f'"{name}"', name)
    ),
    st.sampled_from([('"x\\"]=\\u00e9"', 'x"]=é'), ("'lit]= \"'", 'lit]= "'), ('"#"', "#")]),
)
BLANKS = st.sampled_from(["", " ", "\t", "# [[x]]\n", "\n", "\n\n # a = '''\n"])
SCALARS = st.sampled_from(
    [
        *("1", "-1.5e3", "true", "1979-05-27 07:32:00Z", '"a # ] } , \\" b"', "'x \\'", '""', "''", "inf", "0xff"),
        *('"""\na\n"b\\\n  ""\\"" """', '"""x"""""', "'''\n[[no]]\nk = 'v' '''", "'''''a'''", '""""""', '"""\\\\"""'),
    ]
)


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "table"])) if depth else "scalar"
    if kind == "list":
        items = [draw(BLANKS) + draw(values(depth - 1)) + draw(BLANKS) for _ in range(draw(st.integers(0, 3)))]
        return f"[{','.join(items)}{draw(BLANKS)}]"
    if kind == "table":
        names = draw(st.lists(KEYS, max_size=3, unique_by=lambda one: one[1]))
        return "{" + ", ".join(f"{key} = {draw(values(depth - 1))}" for key, _ in names) + "}"
    return draw(SCALARS)


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["pair", "pair", "table", "tables", "blank"]))
        key = ".".join(f"{draw(st.sampled_from(['', ' ']))}{draw(KEYS)[0]}" for _ in range(draw(st.integers(1, 3))))
        if kind == "pair":
            lines.append(
                f"{draw(st.sampled_from(['', '  ']))}{key} = {draw(values())}{draw(st.sampled_from(['', ' # c']))}"
            )
        elif kind == "blank":
            lines.append(draw(st.sampled_from(["", "# x", "\t"])))
        else:
            lines.append(f"[{key}]" if kind == "table" else f"[[{key}]] # t")
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def places(value: Any, place: ConfigPath = ()) -> Iterator[ConfigPath]:
    steps: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    for step, inner in steps:
        yield (*place, step)
        yield from places(inner, (*place, step))


@given(st.lists(documents(), min_size=1, max_size=2).map("\n".join))
def test_the_scanner_finds_exactly_the_places_that_tomllib_reads(text: str) -> None:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a key twice, or a value opened again: refused before anybody scans
    assert set(line_numbers(text)) == set(places(tables))


@given(st.data())
def test_the_scanner_finds_the_line_of_a_key(data: st.DataObject) -> None:
    """Tables and lists of tables with unique names, each on a line that is known while it is written."""
    text, expected = "", {}
    counts: dict[str, int] = {}
    for number in range(data.draw(st.integers(1, 5))):
        text += data.draw(st.sampled_from(["", "\n", "# [x]\n", "\t\n\n"]))
        is_item = data.draw(st.booleans())
        place: ConfigPath = (f"t{number}",)
        text += f"[t{number}]\n"
        if is_item:
            text = text.removesuffix(f"[t{number}]\n") + "[[items]]\n"
            place = ("items", counts.get("items", 0))
            counts["items"] = counts.get("items", 0) + 1
        expected[place] = text.count("\n")
        for index in range(data.draw(st.integers(0, 3))):
            text += data.draw(st.sampled_from(["", "\n", "  # k = 1\n"]))
            expected[(*place, f"k{index}")] = text.count("\n") + 1
            before = f"k{index}.in = [ # first\n"
            first = data.draw(values(1))
            expected[(*place, f"k{index}", "in")] = text.count("\n") + 1
            expected[(*place, f"k{index}", "in", 0)] = (text + before).count("\n") + 1
            expected[(*place, f"k{index}", "in", 1)] = (text + before + first).count("\n") + 2
            text += f"{before}{first},\n  7]\n"
    tomllib.loads(text)
    lines = line_numbers(text)
    assert {place: lines[place] for place in expected} == expected


def test_places_are_spelled_as_people_write_them() -> None:
    assert format_path(("providers", 0, "headers", "X-A")) == "providers[0].headers.X-A"
    assert format_path(("a\x1b", "b c")) == "'a\\x1b'.'b c'"
