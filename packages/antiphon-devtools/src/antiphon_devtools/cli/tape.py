"""`antiphon tape`: list, show and delete the exchanges of a recording (`antiphon serve --record`)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from antiphon.cli.options import whole_number
from antiphon.cli.terminal import as_sentence, format_time, joined, styled, table, write, write_json_lines
from antiphon.json_text import NOT_JSON, read_json
from antiphon_devtools.cassettes.tape import Exchange, Tape

_LONGEST_BODY = 4000
"""Characters of a body that are shown without `--full`."""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = _action(actions, "list", "list the exchanges: request, answer and time")
    listed.add_argument("--json", action="store_true", help="print JSON, one object per line")
    shown = _action(actions, "show", "show exchanges in full: headers, bodies and the times of a stream")
    shown.add_argument(
        "number", type=whole_number(1), nargs="*", metavar="NUMBER", help="numbers of exchanges (default: all)"
    )
    shown.add_argument("--json", action="store_true", help="print JSON, one object per line")
    shown.add_argument("--full", action="store_true", help="do not shorten long bodies")
    deleted = _action(actions, "delete", "delete exchanges")
    deleted.add_argument("number", type=whole_number(1), nargs="+", metavar="NUMBER", help="numbers of exchanges")


def run(arguments: argparse.Namespace) -> int:
    tape = Tape(arguments.tape, edits=arguments.action == "delete")
    try:
        if arguments.action == "delete":
            numbers: list[int] = list(dict.fromkeys(arguments.number))
            tape.delete(numbers)
            write(f"deleted exchange {number}" for number in numbers)
        elif arguments.json:
            _write_json(tape, getattr(arguments, "number", None), has_bodies=arguments.action == "show")
        elif arguments.action == "list":
            _list(tape)
        else:
            _show(tape, arguments.number, is_full=arguments.full)
    finally:
        tape.close()
    return 0


def _action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=as_sentence(summary))
    parser.add_argument("tape", metavar="TAPE", help="the file of the recording")
    return parser


def _list(tape: Tape) -> None:
    rows = [
        [
            str(exchange.request.id),
            _time(exchange),
            f"{exchange.request.method} {exchange.request.path}",
            model_of(exchange),
            f"{exchange.answer.status}{' cut' if exchange.answer.is_cut else ''}",
            f"{len(exchange.answer.pieces)} pieces" if exchange.answer.is_stream else "whole",
            f"{exchange.answer.duration:.3f} s",
        ]
        for exchange in tape.exchanges()
    ]
    if rows:
        write(table(("NUMBER", "RECORDED", "REQUEST", "MODEL", "STATUS", "ANSWER", "TOOK"), rows))
    else:
        write([f"{tape.path} has no exchanges"])


def _show(tape: Tape, numbers: Sequence[int], *, is_full: bool) -> None:
    for exchange in tape.exchanges(numbers or None):
        write(_lines(exchange, is_full=is_full))


def _lines(exchange: Exchange, *, is_full: bool) -> Iterator[str]:
    request, answer = exchange.request, exchange.answer
    query = "".join(
        f"{'&' if place else '?'}{name}={value}" for place, (name, value) in enumerate(request.query.items())
    )
    yield styled(f"exchange {request.id}, recorded {_time(exchange)}", "bold")
    yield f"{request.method} {request.path}{query}"
    yield from (f"  {name}: {value}" for name, value in request.headers.items())
    yield from _body_lines(request.body, is_full=is_full)
    kind = f"stream of {len(answer.pieces)} pieces" if answer.is_stream else "whole answer"
    yield styled(f"{answer.status}, {kind}, {answer.duration:.3f} s{', cut' if answer.is_cut else ''}", "cyan")
    yield from (f"  {name}: {value}" for name, value in answer.headers.items())
    if not answer.is_stream:
        yield from _body_lines(answer.body, is_full=is_full)
    else:
        shown, room = [], _LONGEST_BODY if not is_full else len(answer.body) + 1
        for at, data in answer.pieces:
            text = data.decode("utf-8", "replace").strip("\n")
            if room <= 0:
                shown.append("  … (--full shows the rest)")
                break
            time = styled(f"{at / 1_000_000:8.3f}", "dim")
            shown += [joined("  ", time, "  ", line) for line in text.splitlines() if line]
            room -= len(text)
        yield from shown
    yield ""


def _body_lines(body: bytes, *, is_full: bool) -> Iterator[str]:
    if not body:
        return
    try:
        text = msgspec.json.format(body, indent=2).decode()
    except NOT_JSON:
        text = body.decode("utf-8", "replace")
    cut = text if is_full or len(text) <= _LONGEST_BODY else f"{text[:_LONGEST_BODY]}\n… (--full shows the rest)"
    yield from (f"  {line}" for line in cut.splitlines())


def _write_json(tape: Tape, numbers: Sequence[int] | None, *, has_bodies: bool) -> None:
    write_json_lines(_fields(exchange, has_bodies=has_bodies) for exchange in tape.exchanges(numbers or None))


def _fields(exchange: Exchange, *, has_bodies: bool) -> dict[str, Any]:
    request, answer = exchange.request, exchange.answer
    fields: dict[str, Any] = {
        "number": request.id,
        "recorded": datetime.fromtimestamp(request.at / 1_000_000, UTC),
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "model": model_of(exchange),
        "status": answer.status,
        "is_stream": answer.is_stream,
        "is_cut": answer.is_cut,
        "pieces": len(answer.pieces),
        "seconds": round(answer.duration, 6),
    }
    if has_bodies:
        fields["request_headers"] = request.headers
        fields["request_body"] = msgspec.Raw(request.body) if request.body else None
        fields["headers"] = answer.headers
        fields["pieces"] = [[at / 1_000_000, data.decode("utf-8", "replace")] for at, data in answer.pieces]
    return fields


def model_of(exchange: Exchange) -> str:
    """The model that the request asks for; empty if it names none."""
    path = exchange.request.path
    if "/models/" in path:
        return path.partition("/models/")[2].partition(":")[0]
    body = read_json(exchange.request.body)
    return str(body.get("model") or "") if isinstance(body, dict) else ""


def _time(exchange: Exchange) -> str:
    return format_time(datetime.fromtimestamp(exchange.request.at / 1_000_000, UTC))
