"""`status_page`: the status of the gateway as an HTML page.

No script, nothing fetched, one style sheet that the content security policy allows by its hash. Model names, errors and ids
come from outside; each goes through `_text`, which escapes it and isolates its writing direction. All other functions take and
return HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape

from antiphon.gateway.cluster.redis_store import SharedStatus
from antiphon.gateway.http.messages import Response
from antiphon.gateway.observe.charts import PERCENTILES, format_duration, latency_plot, requests_plot
from antiphon.gateway.observe.recent import AttemptRecord, Minute, RequestRecord, percentile
from antiphon.gateway.observe.status import (
    CircuitRow,
    CredentialRow,
    MinuteRow,
    ModelRow,
    ReloadResult,
    ServerStatus,
    Status,
    status_json,
)
from antiphon.gateway.observe.status_style import STYLE, STYLE_HASH

PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_JSON_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_MOST_SHOWN = 100
_STATE_CLASSES = {
    "healthy": "good",
    "half_open": "warn",
    "cooling": "warn",
    "exhausted": "bad",
    "invalid": "bad",
    "disabled": "quiet",
}
_STATE_LABELS = {"half_open": "half-open (next call probes)", "invalid": "rejected"}
_NONE = '<span class="quiet">none</span>'
_UNPRINTABLE = dict.fromkeys((*range(9), 11, *range(14, 32), 127), "\N{REPLACEMENT CHARACTER}")


def status_answer(status: Status, headers: Mapping[str, str], query: Mapping[str, str]) -> Response:
    """The page for a browser, JSON for other clients and for `?format=json`. Names of headers are in lower case."""
    wanted = query.get("format", "")
    if wanted == "html" or (wanted != "json" and "text/html" in headers.get("accept", "")):
        return Response(headers=dict(PAGE_HEADERS), body=status_page(status))
    return Response.json(status_json(status), headers=_JSON_HEADERS)


def status_page(status: Status) -> bytes:
    """The page. Send it with `PAGE_HEADERS`."""
    sections = [
        _header(status),
        _summary(status.seen.minutes),
        _plots(status.seen.minutes),
        _credentials(status.credentials, status.server),
        _circuits(status.circuits),
        _models(status.models),
        _requests(status.seen.records, status.server),
    ]
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="robots" content="noindex">\n'
        f"<title>Antiphon gateway</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + '\n<footer>All times are UTC. <a href="?format=json">This page as JSON</a></footer>\n</main>\n</body>\n</html>\n'
    )
    return page.encode("utf-8", "replace")


def _header(status: Status) -> str:
    server = status.server
    about = [
        f"Version {_text(server.version)}, serving for {format_duration(server.uptime)}, since {_date(server.started)}.",
        f"Configured by <code>{_text(server.config_file)}</code>." if server.config_file else "No configuration file.",
    ]
    if server.workers > 1:
        about.append(f"{server.workers} workers.")
    if server.reload is not None and server.reload.is_applied:
        about.append(f"Reloaded {_date(server.reload.time)}.")
    if server.shared is not None and not server.shared.is_unavailable:
        about.append(f"Shared through <code>{_text(server.shared.address)}</code>, since {_date(server.shared.since)}.")
    alarms = _refused_reload(server.reload) if server.reload is not None and not server.reload.is_applied else ""
    if server.shared is not None and server.shared.is_unavailable:
        alarms += _store_alarm(server.shared)
    return f'<header><h1>Antiphon gateway</h1><p class="quiet">{" ".join(about)}</p>{alarms}</header>'


def _refused_reload(reload: ReloadResult) -> str:
    return (
        '<div class="alarm" role="alert">'
        f'<b class="bad">Configuration change at {_date(reload.time)} rejected</b>; the previous one is still active.'
        f"{_list(reload.problems)}</div>"
    )


def _store_alarm(shared: SharedStatus) -> str:
    return (
        '<div class="alarm" role="alert">'
        f'<b class="bad">Shared store <code>{_text(shared.address)}</code> unavailable</b> since {_date(shared.since)}: '
        f"{_text(shared.reason)}. Until it is reachable, each worker tracks limits and key health on its own.</div>"
    )


def _summary(minutes: Sequence[Minute]) -> str:
    hour = Minute(0)
    for minute in minutes:
        hour.merge(minute)
    failed = f'<span class="bad">{hour.failed:,}</span>' if hour.failed else "0"
    figures = [
        ("Requests, last hour", f"{hour.requests:,}"),
        ("Failed", failed),
        ("Refused", f"{hour.refused:,}"),
        *((f"{label} latency", _seconds(percentile(hour.seconds, share))) for label, share in PERCENTILES),
        ("p50 time to first token", _seconds(percentile(hour.first_token, 0.5))),
    ]
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{items}</dl>'


def _plots(minutes: Sequence[Minute]) -> str:
    bars = (
        '<span class="answered">answered</span><span class="refused">refused</span><span class="failed">failed</span>'
    )
    lines = "".join(f'<span class="{label}">{label}</span>' for label, _ in PERCENTILES)
    rows = [
        [
            (_time(row.time), ""),
            (f"{row.requests:,}", "number"),
            (f"{row.refused:,}", "number"),
            (f"{row.failed:,}", "number"),
            (_seconds(row.p50_seconds), "number"),
            (_seconds(row.p95_seconds), "number"),
            (_seconds(row.first_token_p50_seconds), "number"),
        ]
        for row in map(MinuteRow.of, reversed(minutes))
        if row.requests
    ]
    names = ("Minute", "Requests", "Refused", "Failed", "p50 latency", "p95 latency", "p50 first token")
    numbers = _table("The last hour by minute", names, rows) if rows else '<p class="note">No requests yet.</p>'
    return (
        '<section aria-labelledby="hour"><h2 id="hour">The last hour</h2><div class="plots">'
        f'<figure><figcaption><b>Requests per minute</b><span class="key">{bars}</span></figcaption>'
        f"{requests_plot(minutes)}</figure>"
        f'<figure><figcaption><b>Latency</b><span class="key">{lines}</span></figcaption>'
        f"{latency_plot(minutes)}</figure></div>"
        f'<details class="figures-table"><summary>The same in numbers</summary>{numbers}</details></section>'
    )


def _credentials(credentials: Sequence[CredentialRow], server: ServerStatus) -> str:
    names = ("Provider", "Credential", "State", "Calls", "Failed", "Last error")
    rows = [
        [
            (_text(row.provider), ""),
            (_named(row), ""),
            (_state(row, server.now), ""),
            (f"{row.calls:,}", "number"),
            (f"{row.failures:,}", "number"),
            (_text(row.last_error), "" if row.last_error else "nothing"),
        ]
        for row in credentials
    ]
    note = '<p class="note">As seen by the worker that wrote this page.</p>' if rows and server.workers > 1 else ""
    table = _table("Credentials", names, rows) if rows else '<p class="note">No provider needs a key.</p>'
    return f'<section aria-labelledby="credentials"><h2 id="credentials">Credentials</h2>{note}{table}</section>'


def _circuits(circuits: Sequence[CircuitRow]) -> str:
    if not circuits:
        return ""
    names = ("Target", "State", "Next probe", "Last error")
    rows = [
        [
            (_text(row.target), ""),
            (_text(row.state.replace("_", "-")), ""),
            (f"{row.until:%H:%M:%S}" if row.until is not None else "now", ""),
            (_text(row.last_error), "" if row.last_error else "nothing"),
        ]
        for row in circuits
    ]
    table = _table("Circuits", names, rows)
    return f'<section aria-labelledby="circuits"><h2 id="circuits">Circuits</h2>{table}</section>'


def _named(row: CredentialRow) -> str:
    shown = "" if row.name == row.masked else f' <span class="quiet">{_text(row.masked)}</span>'
    return f"{_text(row.name)}{shown}"


def _state(row: CredentialRow, now: datetime) -> str:
    states = [_word(row.state, row.until, now)]
    states += [f"{_word(held.state, held.until, now)} for {_text(held.model)}" for held in row.resting]
    return "<br>".join(states)


def _word(state: str, until: datetime | None, now: datetime) -> str:
    word = f'<span class="state {_STATE_CLASSES.get(state, "quiet")}">{escape(_STATE_LABELS.get(state, state))}</span>'
    if until is None:
        return word
    left = format_duration((until - now).total_seconds())
    return f'{word} until {_time(until)} <span class="quiet left">({left})</span>'


def _models(models: Sequence[ModelRow]) -> str:
    rows = [[(_text(row.name), ""), (", then ".join(map(_text, row.targets)), "")] for row in models]
    table = _table("Models", ("Model", "Targets"), rows) if rows else '<p class="note">No routes configured.</p>'
    return f'<section aria-labelledby="models"><h2 id="models">Models</h2>{table}</section>'


def _requests(records: Sequence[RequestRecord], server: ServerStatus) -> str:
    shown = records[:_MOST_SHOWN]
    if not shown:
        listed = '<p class="note">No requests yet.</p>'
    else:
        more = f" of {len(records):,}; all are in the JSON" if len(records) > len(shown) else ""
        repaired = sum(bool(record.repairs) for record in records)
        lossy = sum(bool(record.losses) for record in records)
        listed = (
            f'<p class="note">The newest {len(shown):,}{more}. Of all of them, {repaired:,} were repaired and {lossy:,} '
            "were lossy; open one for details.</p>"
            f'<ol class="requests">{"".join(_request(record, server.now) for record in shown)}</ol>'
        )
    return f'<section aria-labelledby="requests"><h2 id="requests">Recent requests</h2>{listed}</section>'


def _request(record: RequestRecord, now: datetime) -> str:
    tone = "bad" if record.is_failed else "warn" if record.is_refused else "good"
    when = _time(record.time) if record.time.date() == now.date() else _date(record.time)
    provider = record.target.removesuffix(f"/{record.model}")
    way = "to" if provider == record.target else "at"
    target = f' <span class="quiet">{way}</span> {_text(provider)}' if provider else ""
    tags = [
        f'<span class="{colour}">{text}</span>'
        for is_so, colour, text in (
            (record.repairs, "warn", "repaired"),
            (record.losses, "warn", "lossy"),
            (len(record.attempts) > 1, "quiet", f"{len(record.attempts)} attempts"),
        )
        if is_so
    ]
    return (
        "<li><details><summary>"
        f'<span class="quiet">{when}</span>'
        f'<span class="code {tone}"><span class="hidden">status </span>{record.status}</span>'
        f"<span>{_text(record.model) or _NONE}{target}</span>"
        f'<span class="tags">{"".join(tags)}</span>'
        f'<span class="took">{_seconds(record.seconds)}</span>'
        f'</summary><div class="more">{_request_details(record)}</div></details></li>'
    )


def _request_details(record: RequestRecord) -> str:
    """The details of an expanded request."""
    facts = [
        ("Request id", f'<span class="id">{_text(record.id)}</span>'),
        ("Client key", _text(record.key) or _NONE),
        ("Format", _formats(record)),
        ("First token", _seconds(record.first_token_seconds)),
        ("Gateway overhead", _seconds(record.overhead_seconds)),
        ("Prompt", _tokens(record.prompt_tokens, record.cached_tokens, "cached")),
        ("Completion", _tokens(record.completion_tokens, record.reasoning_tokens, "reasoning")),
    ]
    html = "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts) + "</dl>"
    if record.error:
        html += f'<h3>Error</h3><p class="bad">{_text(record.error)}</p>'
    if record.repairs:
        html += f"<h3>Repaired</h3>{_list(record.repairs)}"
    if record.losses:
        html += f"<h3>Not translated</h3>{_list(record.losses)}"
    if record.attempts:
        names = ("Target", "Credential", "Status", "Duration", "Error")
        html += f"<h3>Attempts</h3>{_table('Attempts', names, map(_attempt, record.attempts))}"
    return html


def _attempt(attempt: AttemptRecord) -> list[tuple[str, str]]:
    target = "/".join(filter(None, (attempt.provider, attempt.model)))
    return [
        (_text(target), ""),
        (_text(attempt.credential) or _NONE, "" if attempt.credential else "nothing"),
        (str(attempt.status or "none"), ""),
        (_seconds(attempt.seconds), "number"),
        (_text(attempt.error), "" if attempt.error else "nothing"),
    ]


def _formats(record: RequestRecord) -> str:
    ways = [record.client_format, record.upstream_format]
    named = " to ".join(_text(way) for way in dict.fromkeys(filter(None, ways)))
    return (named or _NONE) + (", streamed" if record.streamed else "")


def _tokens(count: int, part: int, word: str) -> str:
    return f"{count:,} tokens" + (f', <span class="quiet">{part:,} {word}</span>' if part else "")


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
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


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>"


def _text(text: str) -> str:
    """Escape text from outside."""
    return f"<bdi>{escape(text.translate(_UNPRINTABLE))}</bdi>" if text else ""


def _seconds(seconds: float | None) -> str:
    return _NONE if seconds is None else format_duration(seconds)


def _time(when: datetime) -> str:
    return f'<time datetime="{when.isoformat()}">{when:%H:%M:%S}</time>'


def _date(when: datetime) -> str:
    return f'<time datetime="{when.isoformat()}">{when.day} {when:%B, %H:%M}</time>'
