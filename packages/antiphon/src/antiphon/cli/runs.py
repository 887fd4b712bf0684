"""`antiphon runs`: submit turns for workers, show them, decide on calls, cancel, retry."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.cli.options import add_json, add_store
from antiphon.cli.program import runnable
from antiphon.cli.terminal import data_writer, ellipsize, format_time, styled, table, write, write_error, write_json
from antiphon.errors import ConversationError, RunStateError, UnknownConversation
from antiphon.history import HistoryEntry, Run, encode_entry
from antiphon.history.entries import TITLES
from antiphon.history.location import open_location, store_location
from antiphon.history.transcript import entry_lines
from antiphon.json_text import read_json
from antiphon.runs import Runs

_STATES = ("waiting", "running", "suspended", "done", "failed", "cancelled")
_COLOURS = {"running": "cyan", "suspended": "yellow", "done": "green", "failed": "red"}
_SHOWN_LINES = 12


def configure(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    submit = actions.add_parser("submit", help="submit a turn for a worker to execute")
    submit.add_argument("text", metavar="TEXT", help="the message; - is standard input")
    submit.add_argument("--kind", default="chat", help="kind of run (default: chat)")
    submit.add_argument("--conversation", metavar="ID", help="continue this conversation (default: a new one)")
    submit.add_argument("--title", default="", help="title of the new conversation")
    submit.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="K=V",
        help="for the code of the kind; V may be JSON",
    )
    submit.add_argument("--code", type=int, default=0, help="the least version of the kind's code (default 0)")
    submit.add_argument("--provider", default="", help="whose limit it counts against")
    submit.add_argument("--max-waiting", type=int, metavar="N", help="fail if N runs are already queued")
    submit.add_argument("--wait", action="store_true", help="wait for the run and print its answer")

    listing = actions.add_parser("list", help="list runs, newest first")
    listing.add_argument("--state", choices=_STATES, help="only these")
    listing.add_argument("--limit", type=int, metavar="N", default=50, help="how many (default 50)")

    show = actions.add_parser("show", help="show a run and its pending approvals")
    follow = actions.add_parser("follow", help="print the events of a run until it ends; Ctrl-C leaves it running")
    cancel = actions.add_parser("cancel", help="cancel a run")
    cancel.add_argument("--reason", default="", help="reason, stored with the run")

    approve = actions.add_parser("approve", help="approve, deny or edit pending calls")
    retry = actions.add_parser("retry", help="retry a failed run")
    steer = actions.add_parser("steer", help="send a message to a run; if it is over, another one begins with it")
    settle = actions.add_parser("settle", help="bring the result of a call that comes from outside")
    for action in (show, follow, cancel, approve, retry, steer, settle):
        action.add_argument("run", metavar="RUN", help="an id, the beginning or end of one, or `last`")
    approve.add_argument("calls", nargs="*", metavar="CALL", help="call ids (default: the pending call)")
    how = approve.add_mutually_exclusive_group()
    how.add_argument("--deny", action="store_true", help="deny the call; the model gets the reason")
    how.add_argument("--edit", metavar="JSON", help="approve with these arguments")
    approve.add_argument("--reason", default="", help="reason; the model gets it if the call is denied")

    steer.add_argument("text", metavar="TEXT", help="the message; - is standard input")
    steer.add_argument("--key", default="", help="a name for the message: the same again changes nothing")
    settle.add_argument("call", metavar="CALL", help="the id of the call")
    settle.add_argument("text", metavar="TEXT", help="the result; - is standard input")

    for action in (submit, listing, show, follow, cancel, approve, retry, steer, settle):
        add_json(action)
        add_store(action, is_action=True)


def run(arguments: argparse.Namespace) -> int:
    """Open the store and run the action."""
    with open_location(store_location(arguments.store), create=arguments.action == "submit") as store:
        code: int = _ACTIONS[arguments.action](Runs(store), arguments)
    return code


def _text(arguments: argparse.Namespace) -> str:
    text: str = sys.stdin.read() if arguments.text == "-" else arguments.text
    if not text.strip():
        raise ConversationError("empty message; give a text, or - to read standard input")
    return text


def _steer(runs: Runs, arguments: argparse.Namespace) -> int:
    known = runs.steer(arguments.run, _text(arguments), key=arguments.key)
    return _changed(known, arguments, "reads it in its next round")


def _settle(runs: Runs, arguments: argparse.Namespace) -> int:
    return _changed(runs.settle(arguments.run, arguments.call, _text(arguments)), arguments, "continues")


def _submit(runs: Runs, arguments: argparse.Namespace) -> int:
    text = _text(arguments)
    run = runs.submit(
        text,
        kind=arguments.kind,
        conversation=arguments.conversation,
        title=arguments.title,
        code=arguments.code,
        provider=arguments.provider,
        options=dict(arguments.option),
        max_waiting=arguments.max_waiting,
    )
    if arguments.wait:
        return _waited(runs, run, as_json=arguments.json)
    if arguments.json:
        return _write_json(_facts(run))
    write([run.id])
    return 0


def _waited(runs: Runs, run: Run, *, as_json: bool) -> int:
    if sys.stderr.isatty():
        write_error(f"antiphon: run {run.id} is queued for a worker")
    try:
        known = asyncio.run(runs.wait(run.id, until_suspended=True))
    except KeyboardInterrupt:
        return _left(run)
    answer = runs.answer(known.id)
    if as_json:
        _write_json({**_facts(known), "answer": answer})
    elif known.state == "done":
        write([answer])
    return _ended(known)


def _left(known: Run) -> int:
    write_error("", f"antiphon: run {known.id} continues; `antiphon runs follow {known.id}` shows it")
    return 130


def _ended(known: Run) -> int:
    if known.state == "done":
        return 0
    hint = f"; `antiphon runs approve {known.id}` decides" if known.state == "suspended" else ""
    write_error(f"antiphon: run {known.id} is {known.display_state}: {known.reason}{hint}")
    return 1


def _list(runs: Runs, arguments: argparse.Namespace) -> int:
    found = runs.table.list(state=arguments.state, limit=arguments.limit)
    if arguments.json:
        return _write_json([_facts(each) for each in found])
    if not found:
        write([f"no runs{f' are {arguments.state}' if arguments.state else ''}"])
        return 0
    rows = [
        (each.id, each.display_state, each.kind, format_time(each.updated), _describe(runs, each)) for each in found
    ]
    write(table(("ID", "STATE", "KIND", "UPDATED", "ABOUT"), rows))
    counts = runs.table.counts()
    write([styled(", ".join(f"{counts[state]} {state}" for state in _STATES if counts.get(state)), "dim")])
    return 0


def _describe(runs: Runs, each: Run) -> str:
    try:
        title = runs.store.info(each.conversation).title
    except UnknownConversation:  # deleted while we looked
        title = ""
    return f"{title} · {each.reason}" if each.reason else title


def _show(runs: Runs, arguments: argparse.Namespace) -> int:
    known = runs.table.get(arguments.run)
    pending = runs.pending(known.id)
    if arguments.json:
        return _write_json({**_facts(known), "pending": pending})
    write(_lines(known))
    if pending:
        write(["", *_pending(runs, known.id)])
    return 0


def _lines(known: Run) -> Iterator[str]:
    yield styled(f"{known.id}  {known.display_state}", _COLOURS.get(known.display_state, "bold"))
    if known.reason:
        yield f"  why           {known.reason}"
    yield f"  kind          {known.kind}, code {known.code}"
    yield f"  conversation  {known.conversation}"
    if known.provider:
        yield f"  provider      {known.provider}"
    if known.options:
        yield f"  options       {msgspec.json.encode(known.options).decode()}"
    yield f"  submitted     {known.created.astimezone():%Y-%m-%d %H:%M:%S}, claimed {_times(known.attempts)}"
    if known.lease is not None:
        yield f"  executed by   {known.lease.holder} (epoch {known.lease.epoch})"
    elif known.state == "waiting":
        yield f"  due           {known.due.astimezone():%Y-%m-%d %H:%M:%S}"
    if known.is_cancelled and not known.is_over:
        yield "  cancellation requested"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _pending(runs: Runs, run_id: str) -> Iterator[str]:
    rows = [(call.tool_call_id, call.tool_name, call.arguments) for call in runs.pending(run_id)]
    yield from table(("CALL", "TOOL", "ARGUMENTS"), rows)


def _follow(runs: Runs, arguments: argparse.Namespace) -> int:
    known = runs.table.get(arguments.run)
    try:
        asyncio.run(_print_entries(runs, known.id, as_json=arguments.json))
    except KeyboardInterrupt:
        return _left(known)
    known = runs.table.get(known.id)
    if known.state == "done" and not arguments.json:
        write([styled(f"done: {known.reason}", "dim")])
    return _ended(known)


async def _print_entries(runs: Runs, run_id: str, *, as_json: bool) -> None:
    async for entry in runs.follow(run_id):
        if as_json:
            data_writer()(encode_entry(entry) + b"\n")
        else:
            write(_entry(entry))
        sys.stdout.flush()


def _entry(entry: HistoryEntry) -> Iterator[str]:
    time = f"{entry.timestamp.astimezone():%H:%M:%S}" if entry.timestamp else ""
    yield styled(f"{time}  {TITLES.get(entry.kind, entry.kind)}", "bold")
    lines = [line for text in entry_lines(entry) for line in text.split("\n")]
    for line in lines[:_SHOWN_LINES]:
        yield f"          {line}".rstrip()
    if len(lines) > _SHOWN_LINES:
        more = runnable("(`antiphon history show` has them)")
        yield styled(f"          … {len(lines) - _SHOWN_LINES} more lines {more}", "dim")


def _cancel(runs: Runs, arguments: argparse.Namespace) -> int:
    before = runs.table.get(arguments.run)
    known = runs.cancel(before.id, arguments.reason)
    if before.is_over:
        raise RunStateError(f"run {known.id} is {known.state} already")
    return _changed(known, arguments, "is being cancelled" if not known.is_over else "is cancelled")


def _approve(runs: Runs, arguments: argparse.Namespace) -> int:
    known = runs.table.get(arguments.run)
    if not arguments.calls and len(runs.pending(known.id)) > 1:
        write(_pending(runs, known.id))
        raise RunStateError(f"run {known.id} has several pending calls; give their ids")
    for call in arguments.calls or [None]:
        if arguments.deny:
            known = runs.deny(known.id, call, arguments.reason)
        elif arguments.edit is not None:
            known = runs.edit(known.id, arguments.edit, call, arguments.reason)
        else:
            known = runs.approve(known.id, call, arguments.reason)
    waiting = len(runs.pending(known.id))
    return _changed(known, arguments, f"still waits for {waiting} decisions" if waiting else "continues")


def _retry(runs: Runs, arguments: argparse.Namespace) -> int:
    return _changed(runs.retry(arguments.run), arguments, "is queued again")


def _changed(known: Run, arguments: argparse.Namespace, change: str) -> int:
    if arguments.json:
        return _write_json(_facts(known))
    write([f"run {known.id} {change}"])
    return 0


_ACTIONS = {
    "submit": _submit,
    "list": _list,
    "show": _show,
    "follow": _follow,
    "cancel": _cancel,
    "approve": _approve,
    "retry": _retry,
    "steer": _steer,
    "settle": _settle,
}


def _facts(known: Run) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(known)
    return {**facts, "standing": known.display_state}


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{ellipsize(text, 40)!r} is not an option; expected name=value")
    return name, read_json(value, value)


def _write_json(value: object) -> int:
    write_json(value)
    return 0
