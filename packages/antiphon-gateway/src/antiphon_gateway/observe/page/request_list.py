"""The recent requests on the status page: a search form, and a list whose entries open to all facts of a request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlencode

from antiphon_gateway.access.page_session import PAGE
from antiphon_gateway.ledger.search import FoundAttempt
from antiphon_gateway.observe.cache_record import CacheRecord
from antiphon_gateway.observe.ledger_search import LedgerSearch
from antiphon_gateway.observe.page.html import attribute, clock, date, figures, items, nothing, seconds, table, text
from antiphon_gateway.observe.page.texts import TEXTS, Language, Texts
from antiphon_gateway.observe.recent import AttemptRecord, RequestRecord
from antiphon_gateway.observe.request_search import RequestFilter

_MOST_SHOWN = 100
_OUTCOMES = (
    ("", "any"),
    ("answered", "answered"),
    ("refused", "refused_word"),
    ("failed", "failed_word"),
    ("cancelled", "cancelled"),
)
_TONES = {"failed": "bad", "refused": "warn", "cancelled": "warn"}


def requests_section(
    records: Sequence[RequestRecord],
    now: datetime,
    search: RequestFilter,
    language: Language,
    ledger: LedgerSearch | None = None,
) -> str:
    """The section with the form and the requests that match it, in memory and in the ledger."""
    say = TEXTS[language]
    found = records if search.is_empty else [record for record in records if search.matches(record)]
    shown = found[:_MOST_SHOWN]
    if not records:
        listed = f'<p class="note">{say["no_requests"]}</p>'
    elif not found:
        listed = f'<p class="note">{say["none_found"]}</p>'
    else:
        entries = "".join(_request(record, now, language) for record in shown)
        listed = f'<p class="note">{_note(records, found, shown, say)}</p><ol class="requests">{entries}</ol>'
    return (
        f'<section aria-labelledby="requests"><h2 id="requests">{say["recent"]}</h2>{_search_form(search, say)}'
        f"{listed}{'' if ledger is None else _ledger(ledger, search, language)}</section>"
    )


def _ledger(found: LedgerSearch, search: RequestFilter, language: Language) -> str:
    """What the ledger has: every attempt, newest first, and a link to older ones."""
    say, page = TEXTS[language], found.page
    title = f'<h3 id="ledger">{say["in_ledger"]}</h3>'
    if found.problem:
        return f'{title}<p class="note bad">{text(found.problem)}</p>'
    listed = f'<p class="note">{say["none_in_ledger"]}</p>'
    if page.rows:
        names = ("time", "status_code", "client_key", "model", "target", "tokens", "duration", "request_id")
        listed = table(say["in_ledger"], [say[name] for name in names], [_found(row, language) for row in page.rows])
    older = ""
    if page.next is not None:
        names_of = {"text": "q"}
        given = {names_of.get(name, name): getattr(search, name) for name in search.__struct_fields__}
        query = urlencode({name: value for name, value in given.items() if value} | {"before": page.next})
        note = say["searched_to"].format(time=date(page.searched_to, language)) if page.searched_to else ""
        older = (
            f'<p class="note">{note} <a rel="next" href="{attribute(f"{PAGE}?{query}#ledger")}">{say["older"]}</a></p>'
        )
    return title + listed + older


def _found(row: FoundAttempt, language: Language) -> list[tuple[str, str]]:
    say = TEXTS[language]
    outcome = "" if row.outcome == "ok" else f' <span class="quiet">{text(row.outcome)}</span>'
    counted = f"{row.prompt_tokens:,} + {row.completion_tokens:,}"
    estimated = f' <span class="quiet">{say["estimate"]}</span>' if row.metering == "estimated" else ""
    return [
        (f"{date(row.time, language)}", ""),
        (f"{row.status or say['none']}{outcome}", ""),
        (text(row.key) or nothing(say), "" if row.key else "nothing"),
        (text(row.model), ""),
        (text("/".join(filter(None, (row.provider, row.target_model)))), ""),
        (counted + estimated, "number"),
        (seconds(row.seconds, say), "number"),
        (f'<span class="id">{text(row.request_id)}</span>', ""),
    ]


def _note(
    records: Sequence[RequestRecord], found: Sequence[RequestRecord], shown: Sequence[RequestRecord], say: Texts
) -> str:
    if len(found) < len(records):
        return say["found"].format(shown=f"{len(shown):,}", count=f"{len(found):,}", total=f"{len(records):,}")
    more = say["newest_more"].format(count=f"{len(records):,}") if len(records) > len(shown) else ""
    repaired = sum(bool(record.repairs) for record in records)
    lossy = sum(bool(record.losses) for record in records)
    return say["newest"].format(shown=f"{len(shown):,}", more=more, repaired=f"{repaired:,}", lossy=f"{lossy:,}")


def _search_form(search: RequestFilter, say: Texts) -> str:
    fields = "".join(
        f'<div><label for="search-{name}">{say[label]}</label>'
        f'<input id="search-{name}" name="{name}" type="{kind}" value="{attribute(value)}" maxlength="200"></div>'
        for name, label, value, kind in (
            ("q", "text", search.text, "text"),
            ("key", "client_key", search.key, "text"),
            ("model", "model", search.model, "text"),
            ("status", "status_code", search.status, "text"),
            ("day", "day", search.day, "date"),
        )
    )
    options = "".join(
        f'<option value="{value}"{" selected" if value == search.outcome else ""}>{say[label]}</option>'
        for value, label in _OUTCOMES
    )
    clear = "" if search.is_empty else f'<a href="{PAGE}#requests">{say["clear"]}</a>'
    return (
        f'<form class="search" method="get" action="{PAGE}#requests" role="search">{fields}'
        f'<div><label for="search-outcome">{say["outcome"]}</label>'
        f'<select id="search-outcome" name="outcome">{options}</select></div>'
        f'<div class="go"><button type="submit">{say["search"]}</button>{clear}</div></form>'
    )


def _request(record: RequestRecord, now: datetime, language: Language) -> str:
    say = TEXTS[language]
    when = clock(record.time) if record.time.date() == now.date() else date(record.time, language)
    provider = record.target.removesuffix(f"/{record.model}")
    way = say["to"] if provider == record.target else say["at"]
    target = f' <span class="quiet">{way}</span> {text(provider)}' if provider else ""
    is_hidden_failure = record.status < 400 and record.outcome != "answered"
    tags = [
        f'<span class="{tone}">{label}</span>'
        for is_so, tone, label in (
            (is_hidden_failure, "bad", say["failed_word" if record.is_failed else "refused_word"]),
            (record.fallbacks, "warn", say["fallback"]),
            (record.repairs, "warn", say["repaired"]),
            (record.losses, "warn", say["lossy"]),
            (record.cache is not None and record.cache.lost_tokens, "warn", say["cache_miss"]),
            (len(record.attempts) > 1, "quiet", say["attempts_count"].format(count=len(record.attempts))),
        )
        if is_so
    ]
    return (
        "<li><details><summary>"
        f'<span class="quiet">{when}</span>'
        f'<span class="code {_TONES.get(record.outcome, "good")}">'
        f'<span class="hidden">{say["status_prefix"]} </span>{record.status}</span>'
        f"<span>{text(record.model) or nothing(say)}{target}</span>"
        f'<span class="tags">{"".join(tags)}</span>'
        f'<span class="took">{seconds(record.seconds, say)}</span>'
        f'</summary><div class="more">{_details(record, say)}</div></details></li>'
    )


def _details(record: RequestRecord, say: Texts) -> str:
    """The details of an expanded request."""
    facts = [
        (say["request_id"], f'<span class="id">{text(record.id)}</span>'),
        (say["client_key"], text(record.key) or nothing(say)),
        (say["format"], _formats(record, say)),
        (say["outcome"], say.get(f"{record.outcome}_word", say.get(record.outcome, ""))),
        (say["first_token"], seconds(record.first_token_seconds, say)),
        (say["overhead"], seconds(record.overhead_seconds, say)),
        (say["prompt"], _tokens(record.prompt_tokens, record.cached_tokens, "cached", say)),
        (say["completion"], _tokens(record.completion_tokens, record.reasoning_tokens, "reasoning", say)),
    ]
    html = f"<dl>{figures(facts)}</dl>"
    if record.error:
        html += f'<h3>{say["error"]}</h3><p class="bad">{text(record.error)}</p>'
    for title, lines in (("fallbacks", record.fallbacks), ("repairs", record.repairs), ("losses", record.losses)):
        if lines:
            html += f"<h3>{say[title]}</h3>{items(lines)}"
    if record.cache is not None:
        html += _cache(record.cache, record, say)
    if record.attempts:
        names = [say[name] for name in ("target", "credential", "status_code", "duration", "error")]
        rows = [_attempt(attempt, say) for attempt in record.attempts]
        html += f"<h3>{say['attempts']}</h3>{table(say['attempts'], names, rows)}"
    return html


def _cache(found: CacheRecord, record: RequestRecord, say: Texts) -> str:
    """What the cache doctor found."""
    reason = say[f"cache_{found.verdict}"].format(
        field=f"<code>{text(found.field)}</code>",
        change=say[f"change_{found.change}"] if found.change else "",
        minimum=f"{found.minimum:,}",
    )
    facts = [
        (say["cache_predicted"], say["tokens_count"].format(count=f"{found.predicted_tokens:,}")),
        (say["cache_read"], say["tokens_count"].format(count=f"{record.cached_tokens:,}")),
    ]
    if found.byte is not None:
        facts.append((say["cache_field"], say["cache_byte"].format(field=text(found.field), byte=f"{found.byte:,}")))
    if found.lost_tokens:
        cost = say["cache_price_unknown"] if found.lost_usd is None else f"${float(found.lost_usd):,.4f}"
        facts.append((say["cache_lost"], f"{say['tokens_count'].format(count=f'{found.lost_tokens:,}')}, {cost}"))
    return f"<h3>{say['cache_title']}</h3><p>{reason}</p><dl>{figures(facts)}</dl>"


def _attempt(attempt: AttemptRecord, say: Texts) -> list[tuple[str, str]]:
    target = "/".join(filter(None, (attempt.provider, attempt.model)))
    return [
        (text(target), ""),
        (text(attempt.credential) or nothing(say), "" if attempt.credential else "nothing"),
        (str(attempt.status or say["none"]), ""),
        (seconds(attempt.seconds, say), "number"),
        (text(attempt.error), "" if attempt.error else "nothing"),
    ]


def _formats(record: RequestRecord, say: Texts) -> str:
    ways = [record.client_format, record.upstream_format]
    named = f" {say['to']} ".join(text(way) for way in dict.fromkeys(filter(None, ways)))
    flags = [say[name] for name, is_so in (("streamed", record.streamed), ("began_early", record.began_early)) if is_so]
    return ", ".join([named or nothing(say), *flags])


def _tokens(count: int, part: int, word: str, say: Texts) -> str:
    more = f', <span class="quiet">{say[word].format(count=f"{part:,}")}</span>' if part else ""
    return say["tokens_count"].format(count=f"{count:,}") + more
