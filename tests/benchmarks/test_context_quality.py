"""The bench of answers after a compaction: what it asks, and how it counts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.context import quality
from bench.measure.tables import PageTable, write_tables

from antiphon.history import ContextEntry
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call


def reader(*, recalls: bool) -> FunctionModel:
    """Answers with the code that it sees; asks `recall` for the town if it may and sees none."""

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        seen = "\n".join(str(entry) for entry in context)
        towns = re.findall(r"depot in (\w+)\?", seen)
        if not towns:
            return "Depots were visited."
        found = re.search(rf"depot in {towns[-1]} is (\w+)", seen)
        if found:
            return found[1]
        asked = any(one.tool_name == "recall" for entry in context for one in entry.tool_calls)
        may_ask = recalls and any(tool.name == "recall" for tool in options.tools)
        return call("recall", search=f"code {towns[-1]}") if may_ask and not asked else "I do not know."

    return FunctionModel(answer)


@pytest.mark.parametrize("recalls", [True, False])
def test_answers_are_counted_by_stage(recalls: bool) -> None:
    found = asyncio.run(quality.ask("reader", 2, reader(recalls=recalls)))
    assert found.facts == 2 * quality.ASKED
    assert found.tokens_after < quality.LIMIT < found.tokens_before
    assert (found.before, found.after, found.shown) == (found.facts, 0, 0)
    assert found.with_recall == (found.facts if recalls else 0)
    assert found.recalled_for_it == found.facts


def test_a_table_replaces_the_one_before_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n")
    write_tables([PageTable(page, "x", "| new |")])
    assert page.read_text() == "a\n<!-- x: begin -->\n\n| new |\n\n<!-- x: end -->\nb\n"
    with pytest.raises(ValueError, match="has no place for a table"):
        write_tables([PageTable(page, "y", "| new |")])
