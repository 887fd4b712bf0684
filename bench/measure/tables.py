"""A generated table in a page of the documentation, between the marks `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from __future__ import annotations

from pathlib import Path


def put_table(page: Path, name: str, table: str) -> None:
    """Replace the lines between the marks; ValueError if the page does not have them."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page.name} has no place for a table: {begin.strip()} … {end.strip()}")
    page.write_text(f"{before}{begin}\n{table.strip()}\n\n{end}{after}", encoding="utf-8")
