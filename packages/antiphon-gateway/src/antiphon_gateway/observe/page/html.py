"""Pieces of HTML that the status page and its login form are made of.

Model names, errors and ids come from outside; each goes through `text` or `attribute`, which escape it. All other functions
take and return HTML. No script, nothing fetched, one style sheet that the content security policy allows by its hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape

from antiphon_gateway.observe.page.charts import format_duration
from antiphon_gateway.observe.page.style import STYLE, STYLE_HASH
from antiphon_gateway.observe.page.texts import Language, Texts

PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer the browser would hide the origin of our own forms from us
    "cache-control": "no-store",
    "vary": "Accept, Accept-Language, Cookie",
}
_UNPRINTABLE = dict.fromkeys((*range(9), 11, *range(14, 32), 127), "\N{REPLACEMENT CHARACTER}")


def document(language: Language, title: str, body: str) -> bytes:
    """A whole page."""
    page = (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="robots" content="noindex">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
    return page.encode("utf-8", "replace")


def wants_page(headers: Mapping[str, str], query: Mapping[str, str]) -> bool:
    """Whether a browser asks, and not a program. Names of headers are in lower case."""
    wanted = query.get("format", "")
    return wanted == "html" or (wanted != "json" and "text/html" in headers.get("accept", ""))


def text(value: str) -> str:
    """Escape text from outside, and isolate its writing direction."""
    return f"<bdi>{escape(value.translate(_UNPRINTABLE))}</bdi>" if value else ""


def attribute(value: str) -> str:
    """Escape text from outside for an attribute in double quotes."""
    return escape(value.translate(_UNPRINTABLE))


def items(lines: Iterable[str]) -> str:
    """A list of texts from outside."""
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>"


def figures(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in rows)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """A table of cells (HTML and class). Roles are explicit: browsers do not treat cards on a narrow screen as a table."""
    cells = list(rows)
    classes = [kind if kind == "number" else "" for _, kind in cells[0]]
    head = "".join(
        f'<th role="columnheader" scope="col"{_class(kind)}>{name}</th>'
        for name, kind in zip(columns, classes, strict=True)
    )
    body = "".join(
        '<tr role="row">'
        + "".join(
            f'<td role="cell" data-column="{name}"{_class(kind)}><div>{cell}</div></td>'
            for name, (cell, kind) in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in cells
    )
    return (
        f'<table class="cards" role="table" aria-label="{title}"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def nothing(say: Texts) -> str:
    """In place of a value that there is not."""
    return f'<span class="quiet">{say["none"]}</span>'


def seconds(value: float | None, say: Texts) -> str:
    """A duration."""
    return nothing(say) if value is None else format_duration(value)


def share(part: float, whole: float, say: Texts) -> str:
    """A part of a whole in percent."""
    return f"{part / whole:.1%}" if whole else nothing(say)


def clock(when: datetime) -> str:
    """The time of a day."""
    return f'<time datetime="{when.isoformat()}">{when:%H:%M:%S}</time>'


def date(when: datetime, language: Language = "en") -> str:
    """A day and a time."""
    shown = f"{when.month} 月 {when.day} 日 {when:%H:%M}" if language == "zh" else f"{when.day} {when:%B, %H:%M}"
    return f'<time datetime="{when.isoformat()}">{shown}</time>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
