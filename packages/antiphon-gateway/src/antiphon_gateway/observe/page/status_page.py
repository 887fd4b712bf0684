"""`status_page`: the status of the gateway as an HTML page, in English or Chinese.

Plain HTML with forms: search is a GET, switching a key and logging out are POSTs with the token of the session. `html`
has the rules about text from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon_gateway.access.page_session import PAGE
from antiphon_gateway.ledger.spend import SpendRow
from antiphon_gateway.observe.page.charts import PERCENTILES, format_duration, latency_plot, requests_plot
from antiphon_gateway.observe.page.html import (
    PAGE_HEADERS,
    attribute,
    clock,
    date,
    document,
    figures,
    items,
    seconds,
    share,
    table,
    text,
    wants_page,
)
from antiphon_gateway.observe.page.request_list import requests_section
from antiphon_gateway.observe.page.texts import TEXTS, Language
from antiphon_gateway.observe.recent import Minute, percentile
from antiphon_gateway.observe.request_search import RequestFilter, TargetStats, target_stats
from antiphon_gateway.observe.spend_summary import SpendSummary
from antiphon_gateway.observe.status import (
    CircuitRow,
    CredentialRow,
    MinuteRow,
    ModelRow,
    ReloadResult,
    ServerStatus,
    Status,
    status_json,
)
from antiphon_gateway.share.redis_store import SharedStatus

_JSON_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_MOST_SPENDERS = 15
_STATE_CLASSES = {
    "healthy": "good",
    "half_open": "warn",
    "cooling": "warn",
    "exhausted": "bad",
    "invalid": "bad",
    "disabled": "quiet",
}


class PageView(Struct, frozen=True, kw_only=True):
    """How a reader wants the page. With a `token` it has buttons; a reader with a session can log out."""

    language: Language = "en"
    token: str = ""
    has_session: bool = False
    search: RequestFilter = RequestFilter()


def status_answer(
    status: Status, headers: Mapping[str, str], query: Mapping[str, str], view: PageView | None = None
) -> Response:
    """The page for a browser, JSON for other clients and for `?format=json`. Names of headers are in lower case."""
    if wants_page(headers, query):
        return Response(headers=dict(PAGE_HEADERS), body=status_page(status, view))
    return Response.json(status_json(status, RequestFilter.of(query)), headers=_JSON_HEADERS)


def status_page(status: Status, view: PageView | None = None) -> bytes:
    """The page. Send it with `PAGE_HEADERS`."""
    return _StatusPage(status, view or PageView()).render()


class _StatusPage:
    def __init__(self, status: Status, view: PageView) -> None:
        self._status = status
        self._view = view
        self._language = view.language
        self._say = TEXTS[view.language]

    def render(self) -> bytes:
        status, say = self._status, self._say
        sections = [
            self._header(),
            self._summary(status.seen.minutes, status.spend),
            self._plots(status.seen.minutes),
            self._spend(status.spend),
            self._targets(target_stats(status.seen.records), len(status.seen.records)),
            self._credentials(status.credentials, status.server),
            self._circuits(status.circuits),
            requests_section(status.seen.records, status.server.now, self._view.search, self._language, status.ledger),
            self._models(status.models),
            f'<footer>{say["footer"]} <a href="?format=json">{say["as_json"]}</a></footer>',
        ]
        return document(self._language, say["title"], "\n".join(sections))

    # The head.

    def _header(self) -> str:
        server, say = self._status.server, self._say
        uptime = format_duration(server.uptime)
        if self._language == "zh":
            uptime = uptime.replace("days", "天")
        about = [
            say["about"].format(version=text(server.version), uptime=uptime, since=self._date(server.started)),
            say["config_file"].format(file=f"<code>{text(server.config_file)}</code>")
            if server.config_file
            else say["no_config_file"],
        ]
        if server.workers > 1:
            about.append(say["workers"].format(count=server.workers))
        if server.reload is not None and server.reload.is_applied:
            about.append(say["reloaded"].format(time=self._date(server.reload.time)))
        if server.shared is not None and not server.shared.is_unavailable:
            address = f"<code>{text(server.shared.address)}</code>"
            about.append(say["shared"].format(address=address, time=self._date(server.shared.since)))
        alarms = ""
        if server.reload is not None and not server.reload.is_applied:
            alarms = self._refused_reload(server.reload)
        if server.shared is not None and server.shared.is_unavailable:
            alarms += self._store_alarm(server.shared)
        return (
            f'<header><div class="top"><h1>{say["title"]}</h1>{self._menu()}</div>'
            f'<p class="quiet">{" ".join(about)}</p>{alarms}</header>'
        )

    def _menu(self) -> str:
        say, other = self._say, "en" if self._language == "zh" else "zh"
        link = f'<a href="?lang={other}" lang="{other}" hreflang="{other}">{say["other_language"]}</a>'
        button = self._form("logout", {}, say["log_out"]) if self._view.has_session else ""
        return f'<nav class="menu" aria-label="{say["title"]}">{link}{button}</nav>'

    def _refused_reload(self, reload: ReloadResult) -> str:
        title = self._say["reload_refused"].format(time=self._date(reload.time))
        return (
            f'<div class="alarm" role="alert"><b class="bad">{title}</b>; {self._say["old_config"]}'
            f"{items(reload.problems)}</div>"
        )

    def _store_alarm(self, shared: SharedStatus) -> str:
        title = self._say["store_down"].format(address=f"<code>{text(shared.address)}</code>")
        note = self._say["store_note"].format(time=self._date(shared.since), reason=text(shared.reason))
        return f'<div class="alarm" role="alert"><b class="bad">{title}</b> {note}</div>'

    # The last hour.

    def _summary(self, minutes: Sequence[Minute], spend: SpendSummary | None) -> str:
        say, hour = self._say, Minute(0)
        for minute in minutes:
            hour.merge(minute)
        failed = share(hour.failed, hour.requests, say)
        shown = [
            (say["requests_hour"], f"{hour.requests:,}"),
            (say["error_rate"], f'<span class="bad">{failed}</span>' if hour.failed else failed),
            (say["failed"], f'<span class="bad">{hour.failed:,}</span>' if hour.failed else "0"),
            (say["refused"], f"{hour.refused:,}"),
            *((say[label], seconds(percentile(hour.seconds, part), say)) for label, part in PERCENTILES),
            *((say[f"ttft_{label}"], seconds(percentile(hour.first_token, part), say)) for label, part in PERCENTILES),
            (say["cache_hits"], share(hour.cached_tokens, hour.prompt_tokens, say)),
        ]
        if spend is not None and spend.today is not None:
            shown.append((say["spend_today"], self._cost(spend.today)))
        return f'<dl class="figures">{figures(shown)}</dl>'

    def _plots(self, minutes: Sequence[Minute]) -> str:
        say = self._say
        bars = "".join(
            f'<span class="{name}">{say[word]}</span>'
            for name, word in (("answered", "answered"), ("refused", "refused_word"), ("failed", "failed_word"))
        )
        lines = "".join(f'<span class="{label}">{label}</span>' for label, _ in PERCENTILES)
        rows = [
            [
                (clock(row.time), ""),
                (f"{row.requests:,}", "number"),
                (f"{row.refused:,}", "number"),
                (f"{row.failed:,}", "number"),
                (seconds(row.p50_seconds, say), "number"),
                (seconds(row.p95_seconds, say), "number"),
                (seconds(row.first_token_p50_seconds, say), "number"),
            ]
            for row in map(MinuteRow.of, reversed(minutes))
            if row.requests
        ]
        names = [say[name] for name in ("minute", "requests", "refused", "failed", "p50", "p95", "first_token_p50")]
        numbers = table(say["by_minute"], names, rows) if rows else f'<p class="note">{say["no_requests"]}</p>'
        return (
            f'<section aria-labelledby="hour"><h2 id="hour">{say["hour"]}</h2><div class="plots">'
            f'<figure><figcaption><b>{say["per_minute"]}</b><span class="key">{bars}</span></figcaption>'
            f"{requests_plot(minutes, say)}</figure>"
            f'<figure><figcaption><b>{say["latency"]}</b><span class="key">{lines}</span></figcaption>'
            f"{latency_plot(minutes, say)}</figure></div>"
            f'<details class="figures-table"><summary>{say["numbers"]}</summary>{numbers}</details></section>'
        )

    # Money.

    def _spend(self, spend: SpendSummary | None) -> str:
        say = self._say
        if spend is None:
            return ""
        title = f'<h2 id="spend">{say["spend"].format(days=spend.days)}</h2>'
        if not spend.is_on:
            inner = f'<p class="note">{say["spend_off"]}</p>'
        elif spend.problem:
            inner = f'<p class="note bad">{say["spend_problem"].format(problem=text(spend.problem))}</p>'
        elif not spend.by_day:
            inner = f'<p class="note">{say["spend_none"]}</p>'
        else:
            inner = f'<p class="note">{say["spend_note"]}</p><div class="spend">' + "".join(
                (
                    self._spend_table("by_key", "client_key", [(row.key or "", row) for row in spend.by_key]),
                    self._spend_table(
                        "by_model", "model", [(f"{row.provider}/{row.model}", row) for row in spend.by_model]
                    ),
                    self._spend_table("by_day", "day", [(str(row.day), row) for row in spend.by_day]),
                )
            )
            inner += "</div>"
        return f'<section aria-labelledby="spend">{title}{inner}</section>'

    def _spend_table(self, title: str, column: str, rows: Sequence[tuple[str, SpendRow]]) -> str:
        say = self._say
        cells = [
            [
                (text(name) or f'<span class="quiet">{say["none"]}</span>', ""),
                (self._cost(row), "number"),
                (self._calls(row), "number"),
                (f"{row.usage.total_tokens:,}", "number"),
            ]
            for name, row in rows[:_MOST_SPENDERS]
        ]
        more = len(rows) - len(cells)
        note = f'<p class="note">{say["more_rows"].format(count=f"{more:,}")}</p>' if more else ""
        names = [say[name] for name in (column, "cost", "calls", "tokens")]
        return f"<div><h3>{say[title]}</h3>{table(say[title], names, cells)}{note}</div>"

    def _cost(self, row: SpendRow) -> str:
        if not row.cost and (row.cost is None or row.unpriced_calls):  # the other calls, which failed, cost nothing
            return f'<span class="warn">{self._say["unknown"]}</span>'
        more = self._say["unpriced"].format(count=f"{row.unpriced_calls:,}") if row.unpriced_calls else ""
        digits = 2 if row.cost >= 1 else 4
        return f"${row.cost:,.{digits}f}" + (f' <span class="warn small">{more}</span>' if more else "")

    def _calls(self, row: SpendRow) -> str:
        estimated = self._say["estimated"].format(count=f"{row.estimated_calls:,}") if row.estimated_calls else ""
        return f"{row.calls:,}" + (f' <span class="quiet small">{estimated}</span>' if estimated else "")

    # Upstreams.

    def _targets(self, stats: Sequence[TargetStats], count: int) -> str:
        if not stats:
            return ""
        say = self._say
        rows = [
            [
                (text(row.target), ""),
                (f"{row.requests:,}", "number"),
                (share(row.failed, row.requests, say), "number"),
                (seconds(row.p50_seconds, say), "number"),
                (seconds(row.p95_seconds, say), "number"),
                (seconds(row.ttft_p50_seconds, say), "number"),
                (seconds(row.ttft_p95_seconds, say), "number"),
                (share(row.cached_tokens, row.prompt_tokens, say), "number"),
            ]
            for row in stats[:_MOST_SPENDERS]
        ]
        words = ("target", "requests", "error_rate", "p50", "p95", "ttft_p50", "ttft_p95", "cache_hits")
        shown = table(say["targets"], [say[word] for word in words], rows)
        note = say["targets_note"].format(count=f"{count:,}")
        return (
            f'<section aria-labelledby="targets"><h2 id="targets">{say["targets"]}</h2>'
            f'<p class="note">{note}</p>{shown}</section>'
        )

    def _credentials(self, credentials: Sequence[CredentialRow], server: ServerStatus) -> str:
        say = self._say
        names = [say[name] for name in ("provider", "credential", "state", "calls", "failed", "last_error")]
        names += [say["action"]] if self._view.token else []
        rows = [
            [
                (text(row.provider), ""),
                (_named(row), ""),
                (self._state(row, server.now), ""),
                (f"{row.calls:,}", "number"),
                (f"{row.failures:,}", "number"),
                (text(row.last_error), "" if row.last_error else "nothing"),
                *([(self._switch(row), "")] if self._view.token else []),
            ]
            for row in credentials
        ]
        note = f'<p class="note">{say["per_worker"]}</p>' if rows and server.workers > 1 else ""
        shown = table(say["credentials"], names, rows) if rows else f'<p class="note">{say["no_credentials"]}</p>'
        return (
            f'<section aria-labelledby="credentials"><h2 id="credentials">{say["credentials"]}</h2>'
            f"{note}{shown}</section>"
        )

    def _switch(self, row: CredentialRow) -> str:
        is_off = row.state == "disabled"
        fields = {"provider": row.provider, "credential": row.name, "enabled": "true" if is_off else "false"}
        return self._form("credentials", fields, self._say["enable" if is_off else "disable"], about=row.name)

    def _form(self, path: str, fields: Mapping[str, str], label: str, *, about: str = "") -> str:
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{attribute(value)}">'
            for name, value in {"token": self._view.token, **fields}.items()
        )
        spoken = f'<span class="hidden"> {text(about)}</span>' if about else ""
        button = f'<button type="submit">{label}{spoken}</button>'
        return f'<form method="post" action="{PAGE}/{path}">{hidden}{button}</form>'

    def _state(self, row: CredentialRow, now: datetime) -> str:
        for_model = self._say["for_model"]
        return "<br>".join(
            self._word(state, until, now) + (f" {for_model.format(model=text(model))}" if model else "")
            for model, state, until in row.states
        )

    def _word(self, state: str, until: datetime | None, now: datetime) -> str:
        label = self._say.get(state, escape(state))
        word = f'<span class="state {_STATE_CLASSES.get(state, "quiet")}">{label}</span>'
        if until is None:
            return word
        left = format_duration((until - now).total_seconds())
        return f'{word} {self._say["until"].format(time=clock(until))} <span class="quiet left">({left})</span>'

    def _circuits(self, circuits: Sequence[CircuitRow]) -> str:
        if not circuits:
            return ""
        say = self._say
        names = [say[name] for name in ("target", "state", "next_probe", "last_error")]
        rows = [
            [
                (text(row.target), ""),
                (say["half_open"] if row.state == "half_open" else say["circuit_open"], ""),
                (clock(row.until) if row.until is not None else say["now"], ""),
                (text(row.last_error), "" if row.last_error else "nothing"),
            ]
            for row in circuits
        ]
        shown = table(say["circuits"], names, rows)
        return f'<section aria-labelledby="circuits"><h2 id="circuits">{say["circuits"]}</h2>{shown}</section>'

    def _models(self, models: Sequence[ModelRow]) -> str:
        say = self._say
        rows = [[(text(row.name), ""), (say["then"].join(map(text, row.targets)), "")] for row in models]
        names = (say["model"], say["targets"])
        shown = table(say["models"], names, rows) if rows else f'<p class="note">{say["no_models"]}</p>'
        return f'<section aria-labelledby="models"><h2 id="models">{say["models"]}</h2>{shown}</section>'

    def _date(self, when: datetime) -> str:
        return date(when, self._language)


def _named(row: CredentialRow) -> str:
    shown = "" if row.name == row.masked else f' <span class="quiet">{text(row.masked)}</span>'
    return f"{text(row.name)}{shown}"
