"""The results as a table, as lines per failure, and as JSON, JUnit and an SVG badge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from antiphon_devtools.conform.case import CLIENT_GROUPS, GROUPS
from antiphon_devtools.conform.judge import Verdict
from antiphon_devtools.conform.run import Result

VERDICTS: tuple[Verdict, ...] = ("passed", "refused", "failed", "not applicable")
_INVALID_IN_XML = {code: "�" for code in range(32) if chr(code) not in "\t\n\r"}


def group_rows(results: Sequence[Result]) -> list[list[str]]:
    """One row per group, and the total: the counts of each verdict."""
    rows = []
    for group in (*GROUPS, *CLIENT_GROUPS):
        counts = Counter(each.verdict for each in results if each.group == group)
        if counts:
            rows.append([group, *(str(counts[verdict]) for verdict in VERDICTS)])
    counts = Counter(each.verdict for each in results)
    return [*rows, ["total", *(str(counts[verdict]) for verdict in VERDICTS)]]


def pair_rows(results: Sequence[Result]) -> list[list[str]]:
    """One row per client format: for each provider format, how many of the judged cases passed."""
    upstreams = list(dict.fromkeys(each.upstream for each in results))
    rows = []
    for client in dict.fromkeys(each.client for each in results):
        cells = []
        for upstream in upstreams:
            counts = Counter(each.verdict for each in results if (each.client, each.upstream) == (client, upstream))
            judged = counts["passed"] + counts["refused"] + counts["failed"]
            cells.append(f"{judged - counts['failed']}/{judged}" if judged else "–")
        rows.append([client, *cells])
    return rows


def reasons(results: Iterable[Result]) -> list[str]:
    """Why cases do not apply: one line per pair and reason that concerns the gateway, not the case."""
    return list(
        dict.fromkeys(each.reason for each in results if each.reason.startswith(("no route", "no endpoint", "no prov")))
    )


def failure_lines(result: Result) -> list[str]:
    """What is wrong with one case, as a difference."""
    how = " (streamed)" if result.streamed else ""
    lines = [f"FAILED {result.group}/{result.case} {result.client} -> {result.upstream or 'API'}{how}: {result.title}"]
    for finding in result.findings:
        lines += [f"    {finding.check}", f"      - expected: {finding.expected}", f"      + got:      {finding.got}"]
        if finding.rule:
            lines.append(f"      rule {finding.rule}, known from: {finding.source}")
    return lines


def as_json(results: Sequence[Result], about: dict[str, Any]) -> bytes:
    """Everything, for programs."""
    totals = Counter(each.verdict for each in results)
    value = {**about, "totals": {verdict: totals[verdict] for verdict in VERDICTS}, "results": results}
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def as_junit(results: Sequence[Result]) -> str:
    """JUnit XML: a suite per group. What does not apply is skipped."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for group in (*GROUPS, *CLIENT_GROUPS):
        of_group = [each for each in results if each.group == group]
        if not of_group:
            continue
        counts = Counter(each.verdict for each in of_group)
        lines.append(
            f'<testsuite name="conform.{group}" tests="{len(of_group)}" failures="{counts["failed"]}" '
            f'skipped="{counts["not applicable"]}" errors="0">'
        )
        for each in of_group:
            name = quoteattr(f"{each.case} {each.client} -> {each.upstream or 'API'}")
            head = f'<testcase classname="conform.{group}" name={name} time="{each.seconds}"'
            if each.verdict == "failed":
                text = escape("\n".join(failure_lines(each)).translate(_INVALID_IN_XML))
                message = quoteattr(each.findings[0].got.translate(_INVALID_IN_XML)[:200]) if each.findings else '""'
                lines.append(f"{head}><failure message={message}>{text}</failure></testcase>")
            elif each.verdict == "not applicable":
                lines.append(f"{head}><skipped message={quoteattr(each.reason)}/></testcase>")
            else:
                lines.append(f"{head}/>")
        lines.append("</testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def as_badge(results: Sequence[Result]) -> str:
    """An SVG badge: how many of the judged cases did not fail."""
    counts = Counter(each.verdict for each in results)
    judged = counts["passed"] + counts["refused"] + counts["failed"]
    right = judged - counts["failed"]
    left, text = "LLM gateway conformance", f"{right}/{judged}"
    share = right / judged if judged else 0.0
    colour = "#2e7d32" if share == 1 else "#9a6700" if share >= 0.9 else "#b3261e"
    widths = [int(len(each) * 6.6) + 12 for each in (left, text)]
    total = sum(widths)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{left}: {text}">'
        f"<title>{left}: {text}</title>"
        f'<rect width="{total}" height="20" rx="3" fill="#444"/>'
        f'<path d="M{widths[0]} 0h{widths[1] - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{widths[1] - 3}z" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{widths[0] / 2:g}" y="14">{left}</text>'
        f'<text x="{widths[0] + widths[1] / 2:g}" y="14">{text}</text></g></svg>\n'
    )
