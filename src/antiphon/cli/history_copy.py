"""`antiphon history copy`: whole conversations from one store to another, a file or a server each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from antiphon.cli.terminal import write
from antiphon.errors import StoreError, UnknownConversation
from antiphon.history import HistoryStore
from antiphon.history.export import CopyResult, CopyStatus, copy_conversation
from antiphon.history.location import is_postgres_url, open_location

_STATUS_TEXT: dict[CopyStatus, str] = {
    "copied": "copied",
    "grown": "brought up to date",
    "same": "there already, the same",
    "ahead": "left alone: ahead there",
    "differs": "left alone: not the same there",
    "gone": "deleted meanwhile",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("conversations", nargs="*", metavar="ID", help="an id, the beginning or end of one, or `last`")
    parser.add_argument("--all", action="store_true", help="every conversation")
    parser.add_argument("--from", dest="source", metavar="PLACE", help="a file or postgresql://… (default: the store)")
    parser.add_argument("--to", dest="target", metavar="PLACE", required=True, help="a file or postgresql://…")


def run(place: str | Path, arguments: argparse.Namespace) -> int:
    """Copy what was asked for; 1 if something could not be copied because it is another there."""
    if arguments.all == bool(arguments.conversations):
        raise StoreError("say which conversations to copy: their ids, or --all")
    source_place, target_place = arguments.source or place, arguments.target
    if _same(source_place, target_place):
        raise StoreError("--from and --to are the same store; there is nothing to copy")
    with open_location(source_place, create=False) as source, open_location(target_place) as target:
        asked = _everything(source) if arguments.all else [source.info(each).id for each in arguments.conversations]
        came = [_copied(source, target, each, number, len(asked)) for number, each in enumerate(asked, 1)]
    _progress("")
    counts = {state: sum(1 for each in came if each.status == state) for state in _STATUS_TEXT}
    told = ", ".join(f"{count} {_STATUS_TEXT[state]}" for state, count in counts.items() if count)
    write(
        [f"{len(came)} conversations, {sum(each.entries for each in came)} entries written: {told or 'nothing to do'}"]
    )
    return 1 if counts["differs"] else 0


def _copied(source: HistoryStore, target: HistoryStore, conversation: str, number: int, total: int) -> CopyResult:
    _progress(f"{number} of {total}: {conversation}")
    try:
        came = copy_conversation(source, target, conversation)
    except UnknownConversation:
        came = CopyResult(conversation, "gone")
    if came.status != "copied":
        _progress("")
        more = f", {came.entries} new entries" if came.entries else ""
        write([f"{conversation}  {_STATUS_TEXT[came.status]}{more}{f' ({came.detail})' if came.detail else ''}"])
    return came


def _everything(source: HistoryStore) -> Sequence[str]:
    """Every id, the oldest first: what was forked comes before its forks, and an interrupted copy goes on where it was."""
    return sorted(info.id for info in source.list(limit=source.count() + 1000))


def _same(source: str | Path, target: str | Path) -> bool:
    if is_postgres_url(source) or is_postgres_url(target):
        return source == target
    return Path(source).absolute() == Path(target).absolute()


def _progress(line: str) -> None:
    """One line on a terminal that the next one replaces."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
