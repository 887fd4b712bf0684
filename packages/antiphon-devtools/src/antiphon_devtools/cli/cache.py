"""`antiphon cache`: which requests of a conversation can be read from the provider's prompt cache, and what broke the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.cli.options import add_store
from antiphon.cli.terminal import ellipsize, styled, table, write, write_error, write_json_lines
from antiphon.context.tokens import count_text
from antiphon.errors import AntiphonError, TapeError
from antiphon.history import HistoryEntry
from antiphon.history.export import Export
from antiphon.history.location import open_location, store_location
from antiphon.prices.table import PriceTable
from antiphon.wire import FORMATS
from antiphon_chat.shared.spending import format_money
from antiphon_devtools.cache_doctor.conversation import examine_conversation
from antiphon_devtools.cache_doctor.doctor import CacheDoctor
from antiphon_devtools.cache_doctor.outline import outline_prompt
from antiphon_devtools.cache_doctor.recordings import RecordedRequest, RecordingError, read_exchange, read_recording
from antiphon_devtools.cache_doctor.report import CacheReport
from antiphon_devtools.cassettes.tape import Tape
from antiphon_gateway.config.file import load_config

_HEADS = ("#", "MODEL", "PROMPT", "PREDICTED", "CACHED", "LOST", "COST", "WHY")
_EXPORT_MARK = b'{"antiphon":"conversation"'
_SQLITE_MARK = b"SQLite format 3\x00"
_INVALID_INPUT = 2


class Examined(Struct, frozen=True):
    """A request and its report."""

    where: str
    report: CacheReport
    at: datetime | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FILE",
        help="request bodies (JSON Lines, or one), a HAR, a tape of `antiphon serve --record`, an exported conversation, or the "
        "id of a stored one; - is standard input",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"the format of the bodies, or the one to write a conversation in: {', '.join(FORMATS)}",
    )
    add_store(parser)
    parser.add_argument("--config", metavar="FILE", help="an antiphon.toml with [[prices]] of your own")
    parser.add_argument("--json", action="store_true", help="print one JSON object per request")


def run(arguments: argparse.Namespace) -> int:
    try:
        prices = PriceTable(load_config(arguments.config).prices if arguments.config else ())
        examined = list(_examine(arguments, prices))
    except AntiphonError as error:
        write_error(f"antiphon: {error}")
        return _INVALID_INPUT
    if not examined:
        write_error(f"antiphon: {arguments.source}: no model has answered in this conversation yet")
        return _INVALID_INPUT
    if arguments.json:
        write_json_lines(map(as_json, examined))
        return 0
    write(_table(examined))
    return 0


def _examine(arguments: argparse.Namespace, prices: PriceTable) -> Iterator[Examined]:
    """The report of each request in the file or the conversation."""
    source = arguments.source
    data = _read(source)
    if data is None:
        with open_location(store_location(arguments.store), create=False) as store:
            yield from _examine_entries(store.open(source).entries, arguments.format or "", prices)
    elif data.startswith(_EXPORT_MARK):
        export = Export.read(data.splitlines(keepends=True), source)
        yield from _examine_entries([line.entry for line in export.entries], arguments.format or "", prices)
    elif data.startswith(_SQLITE_MARK):
        yield from _examine_recording(_read_tape(source, arguments.format or ""), prices)
    else:
        yield from _examine_recording(read_recording(data, _name(source), arguments.format or ""), prices)


def _read_tape(source: str, format_name: str) -> list[RecordedRequest]:
    """The requests on a tape of `antiphon serve --record`, in the order in which they came."""
    try:
        tape = Tape(source)
    except TapeError as error:
        raise RecordingError(
            f"{error}; if it is a store of conversations, use `antiphon cache ID --store {source}`"
        ) from None
    try:
        exchanges = sorted(tape.exchanges(), key=lambda exchange: exchange.request.at)
    finally:
        tape.close()
    requests = []
    for exchange in exchanges:
        request, answer = exchange.request, exchange.answer
        where, at = f"{source}, exchange {request.id}", request.at / 1_000_000
        body = answer.body if answer.status < 400 else b""
        found = read_exchange(where, request.path, request.body, body, at=at, format_name=format_name)
        if found is not None:
            requests.append(found)
    if not requests:
        raise RecordingError(f"{source}: no request to a model on this tape")
    return requests


def _read(source: str) -> bytes | None:
    """The content of the file; None if there is no such file, so that it must be the id of a conversation."""
    if source == "-":
        return sys.stdin.buffer.read()
    path = Path(source)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if path.suffix or len(path.parts) > 1:
            raise RecordingError(f"cannot read {source}: no such file") from None
        return None
    except OSError as error:
        raise RecordingError(f"cannot read {source}: {error.strerror or error}") from None


def _name(source: str) -> str:
    return "standard input" if source == "-" else source


def _examine_recording(requests: Sequence[RecordedRequest], prices: PriceTable) -> Iterator[Examined]:
    doctor = CacheDoctor()
    for request in requests:
        outline = outline_prompt(request.body, request.format, model=request.model, keeps_text=True, count=count_text)
        at = None if request.at is None else datetime.fromtimestamp(request.at, UTC)
        report = doctor.examine(outline, at=request.at).with_usage(request.usage, prices, at)
        yield Examined(request.where, report, at)


def _examine_entries(entries: Sequence[HistoryEntry], format_name: str, prices: PriceTable) -> Iterator[Examined]:
    for answer, report in examine_conversation(entries, format_name=format_name, prices=prices):
        yield Examined(f"entry {answer.sequence_number}", report, answer.timestamp)


def as_json(one: Examined) -> dict[str, Any]:
    """A report as JSON: the facts, and the sentences that explain them."""
    report = one.report
    return {
        "where": one.where,
        "time": one.at,
        "format": report.format,
        "model": report.model,
        "verdict": report.verdict,
        "prompt_tokens": report.prompt_tokens,
        "is_estimated": report.is_estimated,
        "predicted_tokens": report.predicted_tokens,
        "cached_tokens": report.cached_tokens,
        "expected_tokens": report.expected_tokens,
        "lost_tokens": report.lost_tokens,
        "lost_usd": None if report.lost_cost is None else f"{report.lost_cost.normalize():f}",
        "difference": report.difference,
        "gap_seconds": report.gap_seconds,
        "reason": report.reason,
        "advice": report.advice,
    }


def _table(examined: Sequence[Examined]) -> Iterator[str]:
    rows = [_row(number, one.report) for number, one in enumerate(examined, 1)]
    yield from table(_HEADS, rows)
    for number, one in enumerate(examined, 1):
        if one.report.is_miss or one.report.verdict == "no_breakpoints":
            yield ""
            yield styled(f"{number}  {one.where}: {one.report.reason}", "yellow")
            yield from _details(one.report)
    yield ""
    yield from _summary([one.report for one in examined])


def _row(number: int, report: CacheReport) -> tuple[str, ...]:
    mark = "~" if report.is_estimated else ""
    return (
        str(number),
        report.model or "?",
        f"{mark}{report.prompt_tokens:,}",
        f"{mark}{report.predicted_tokens:,}",
        "?" if report.cached_tokens is None else f"{report.cached_tokens:,}",
        f"{mark}{report.lost_tokens:,}" if report.lost_tokens else "",
        _money(report.lost_cost) if report.lost_tokens else "",
        report.reason,
    )


def _details(report: CacheReport) -> Iterator[str]:
    found = report.difference
    if found is not None and report.verdict in ("changed", "model_changed"):
        yield f"   first difference: byte {found.byte:,} of the prompt, in {found.path}"
        for label, text in (("before", found.before), ("after", found.after)):
            if text:
                yield f"   {label + ':':<8}{ellipsize(msgspec.json.encode(text).decode(), 90)}"
    if report.advice:
        yield f"   {report.advice}"


def _summary(reports: Sequence[CacheReport]) -> Iterator[str]:
    prompt = sum(report.prompt_tokens for report in reports)
    predicted = sum(report.predicted_tokens for report in reports)
    lost = sum(report.lost_tokens for report in reports)
    misses = [report for report in reports if report.is_miss]
    share = f" ({predicted * 100 // prompt} %)" if prompt else ""
    known = [report.cached_tokens for report in reports if report.cached_tokens is not None]
    actual = f", {sum(known):,} were" if known else ""
    requests = "1 request" if len(reports) == 1 else f"{len(reports)} requests"
    yield f"{requests}, {prompt:,} prompt tokens: {predicted:,} can be read from the cache{share}{actual}"
    if misses:
        costs = [report.lost_cost for report in misses if report.lost_cost is not None]
        unpriced = len(misses) - len(costs)
        more = f"{_money(sum(costs, Decimal(0)))}{'+?' if unpriced else ''}" if costs else "an unknown amount"
        yield f"{len(misses)} lost {lost:,} tokens, which cost {more} more than reading them"
    if any(report.is_estimated for report in reports):
        yield styled("~ is an estimate: the usage of the answer is not known", "dim")


def _money(amount: Decimal | None) -> str:
    return "?" if amount is None else format_money(amount)
