"""Generated tables in pages of the documentation, between the marks `<!-- NAME: begin -->` and `<!-- NAME: end -->`.

Every bench makes its tables from what it stored in `bench/results`; `python -m bench report` writes all of them, and a test
compares the pages with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class PageTable(NamedTuple):
    """A table, and the place on a page where it belongs."""

    page: Path
    name: str
    text: str

    def put_into(self, page: str) -> str:
        """The page with this table between its marks; ValueError if it does not have them."""
        begin, end = f"<!-- {self.name}: begin -->\n", f"<!-- {self.name}: end -->\n"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{self.page.name} has no place for a table: {begin.strip()} … {end.strip()}")
        return f"{before}{begin}\n{self.text.strip()}\n\n{end}{after}"


def write_tables(tables: Iterable[PageTable]) -> None:
    """Put the tables into their pages."""
    for table in tables:
        table.page.write_text(table.put_into(table.page.read_text(encoding="utf-8")), encoding="utf-8")
