"""`antiphon history`: list, show, search, export, import, fork, copy, verify and delete stored conversations.

`schema` prints the JSON Schema of the log format.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from antiphon.cli.exporting import configure_export, export_lines
from antiphon.cli.formats.bodies import open_inputs
from antiphon.cli.options import add_conversation, add_json, add_store
from antiphon.cli.terminal import format_time, joined, styled, table, write, write_error, write_json
from antiphon.conversation.interchange import MessagesRead, read_messages
from antiphon.errors import StoreDamaged, StoreError, UnknownConversation, WireError
from antiphon.extensions import EXTENSIONS, load_part
from antiphon.history import AgentHistory, ConversationInfo, HistoryEntry, HistoryStore, SearchHit, encode_entry
from antiphon.history.entries import TITLES
from antiphon.history.export import CopyResult, CopyStatus, copy_conversation, lines_of, log_schema
from antiphon.history.location import is_postgres_url, open_location, store_location
from antiphon.history.store import Verification
from antiphon.history.transcript import entry_lines
from antiphon.json_text import NOT_JSON, decode_json
from antiphon.text import one_line
from antiphon.wire import FORMATS

_SHOWN_LINES = 12


def configure(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list conversations, last changed first")
    listing.add_argument("--tag", help="only those with this tag")
    listing.add_argument(
        "--deleted", action="store_true", help="what is left of deleted conversations: id, time, digest"
    )
    listing.add_argument("--limit", type=int, metavar="N", default=50, help="page size (default 50)")
    listing.add_argument("--page", type=int, metavar="K", default=1, help="page number (default 1)")
    add_json(listing)

    show = actions.add_parser("show", help="show the entries of a conversation")
    add_conversation(show)
    show.add_argument("--effective", action="store_true", help="omit rolled back entries")
    show.add_argument("--full", action="store_true", help=f"print full entries (default: first {_SHOWN_LINES} lines)")
    show.add_argument("--no-pager", action="store_true", help="do not use a pager")
    add_json(show)

    search = actions.add_parser("search", help="full-text search over all entries")
    search.add_argument("query", nargs="+", metavar="WORD", help='words; "in quotes" for a phrase')
    search.add_argument("--limit", type=int, metavar="N", default=20, help="maximum number of hits (default 20)")
    add_json(search)

    export = actions.add_parser(
        "export", help="export a conversation as JSON Lines, or as messages of a provider format"
    )
    configure_export(export, FORMATS)

    bring = actions.add_parser("import", help="import exports or messages of a provider format; each file is atomic")
    bring.add_argument("files", nargs="+", metavar="FILE", help="an export or a request body; - is standard input")
    bring.add_argument("--as-new", action="store_true", help="import under a new id")
    bring.add_argument(
        "--from",
        dest="format",
        choices=(*FORMATS, "atif"),
        metavar="FORMAT",
        help=f"read messages of this format, one conversation per file or per line of a .jsonl: {', '.join(FORMATS)}, atif",
    )
    bring.add_argument("--title", default="", help="with --from: the title (default: the first question)")
    add_json(bring)

    fork = actions.add_parser("fork", help="copy a conversation up to an entry")
    add_conversation(fork)
    fork.add_argument("--at", type=int, metavar="N", help="copy the first N entries (default: all)")
    add_json(fork)

    delete = actions.add_parser("delete", help="delete a conversation")
    add_conversation(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    verify = actions.add_parser("verify", help="check that no entry was changed since it was written")
    verify.add_argument(
        "conversation",
        nargs="?",
        default="",
        metavar="ID",
        help="an id, the beginning or end of one, or `last` (default: all)",
    )
    verify.add_argument("--head", metavar="DIGEST", help="the digest the conversation must have, as noted down before")
    verify.add_argument("--at", type=int, metavar="N", help="with --head: the conversation had N entries then")
    add_json(verify)

    actions.add_parser("schema", help="print the JSON Schema of the lines of an export")

    _configure_copy(actions.add_parser("copy", help="copy conversations to another store"))

    for action in (listing, show, search, export, bring, fork, delete, verify):
        add_store(action, is_action=True)


def run(arguments: argparse.Namespace) -> int:
    """Open the store and run the action."""
    if arguments.action == "schema":
        write_json(log_schema())
        return 0
    place = store_location(arguments.store)
    if arguments.action == "copy":
        return _copy(place, arguments)
    with open_location(place, create=arguments.action == "import") as store:
        code: int = _ACTIONS[arguments.action](store, arguments)
    return code


def _list(store: HistoryStore, arguments: argparse.Namespace) -> int:
    if arguments.page < 1:
        raise StoreError(f"invalid --page {arguments.page}: pages start at 1")
    if arguments.deleted:
        return _list_deleted(store, arguments)
    offset = (arguments.page - 1) * arguments.limit
    found = store.list(limit=arguments.limit, offset=offset, tag=arguments.tag)
    if arguments.json:
        return _write_json(found)
    total = store.count(tag=arguments.tag)
    if not found:
        write([f"no conversations{f' on page {arguments.page} of {total}' if total else ''} in {store.path}"])
        return 0
    write(table(("ID", "UPDATED", "ENTRIES", "TITLE"), [_row(info) for info in found]))
    if total > len(found):
        write([styled(f"{offset + 1}-{offset + len(found)} of {total}; --page {arguments.page + 1} for more", "dim")])
    return 0


def _list_deleted(store: HistoryStore, arguments: argparse.Namespace) -> int:
    found = store.tombstones()
    if arguments.json:
        return _write_json(found)
    rows = [(one.id, format_time(one.deleted), str(one.entries), one.head) for one in found]
    write(
        table(("ID", "DELETED", "ENTRIES", "DIGEST"), rows) if rows else [f"no deleted conversations in {store.path}"]
    )
    return 0


def _verify(store: HistoryStore, arguments: argparse.Namespace) -> int:
    if arguments.head and not arguments.conversation:
        raise StoreError("--head needs a conversation: the digest is that of one")
    if arguments.at is not None and not arguments.head:
        raise StoreError("--at needs --head: the digest that the conversation had then")
    checked = [_verified(store, name, arguments) for name in _names_to_verify(store, arguments.conversation)]
    problems = [one for one in checked if one.problem]
    if arguments.json:
        _write_json(checked)
    elif checked:
        write(table(("ID", "ENTRIES", "DIGEST", "RESULT"), [_verified_row(one) for one in checked]))
        for one in problems:
            write_error(f"{one.conversation}: {one.problem}")
    else:
        write([f"no conversations in {store.path}"])
    return 1 if problems else 0


def _names_to_verify(store: HistoryStore, conversation: str) -> list[str]:
    if conversation:
        return [store.info(conversation).id]
    return [info.id for info in store.list(limit=max(1, store.count()))]


def _verified(store: HistoryStore, conversation: str, arguments: argparse.Namespace) -> Verification:
    try:
        found = store.verify(conversation)
        expected = arguments.head.lower() if arguments.head else ""
        if expected and not found.problem:
            head = found.head if arguments.at is None else store.digest_at(conversation, arguments.at)
            if head != expected:
                problem = (
                    f"its digest{f' at {arguments.at}' if arguments.at is not None else ''} is {head}, not {expected}"
                )
                return msgspec.structs.replace(found, problem=problem)
    except StoreDamaged as error:
        return Verification(
            conversation=conversation, entries=store.info(conversation).version, head="", problem=str(error)
        )
    return found


def _verified_row(one: Verification) -> tuple[str, str, str, str]:
    result = "FAILED" if one.problem else f"ok, {one.undigested} had no digest" if one.undigested else "ok"
    return one.conversation, str(one.entries), one.head, result


def _show(store: HistoryStore, arguments: argparse.Namespace) -> int:
    history = store.open(arguments.conversation)
    info = store.info(history.id)
    effective = {entry.sequence_number for entry in history.effective}
    entries = history.effective if arguments.effective else history.entries
    if arguments.json:
        rows = ({"effective": e.sequence_number in effective, "entry": msgspec.Raw(encode_entry(e))} for e in entries)
        return _write_json({"conversation": info, "entries": list(rows)})
    shown_lines = None if arguments.full else _SHOWN_LINES
    write(
        [
            styled(one_line(info.title) or "(no title)", "bold"),
            styled(f"{info.id} · {info.version} entries · {format_time(info.updated)}{_origin(info)}", "dim"),
            *(line for entry in entries for line in _entry(entry, entry.sequence_number in effective, shown_lines)),
        ],
        paged=not arguments.no_pager,
    )
    return 0


def _entry(entry: HistoryEntry, is_effective: bool, shown_lines: int | None) -> Iterator[str]:
    title = TITLES.get(entry.kind, entry.kind)
    time = f"{entry.timestamp.astimezone():%H:%M:%S}" if entry.timestamp else ""
    mark = "" if is_effective or entry.kind == "rollback" else "  (rolled back)"
    head = f"{entry.sequence_number:>5}  {title:<22} {time}{mark}"
    yield styled(head, _COLOURS.get(entry.kind, "dim") if is_effective else "dim")
    lines = [line for text in entry_lines(entry) for line in text.split("\n")]
    for line in lines[:shown_lines]:
        yield f"       {line}".rstrip() if is_effective else styled(f"       {line}".rstrip(), "dim")
    if shown_lines is not None and len(lines) > shown_lines:
        yield styled(f"       … {len(lines) - shown_lines} more lines (--full shows them)", "dim")


def _search(store: HistoryStore, arguments: argparse.Namespace) -> int:
    query = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in arguments.query)
    if not query.strip(' "'):
        raise StoreError("empty search; give a word")
    hits = store.search(query, limit=arguments.limit)
    if arguments.json:
        return _write_json(hits)
    if not hits:
        write([f"no match for {query} in {store.path}"])
        return 1
    write(table(("ID", "ENTRY", "KIND", "TEXT"), [_hit(hit) for hit in hits]))
    return 0


def _import(store: HistoryStore, arguments: argparse.Namespace) -> int:
    taken: list[ConversationInfo] = []
    for source, file in open_inputs(arguments.files):
        taken += _import_file(store, file, source, arguments)
    if arguments.json:
        return _write_json(taken)
    write(f"imported {info.id}  {info.version} entries  {info.title}" for info in taken)
    return 0


def _import_file(
    store: HistoryStore, file: BinaryIO, source: str, arguments: argparse.Namespace
) -> list[ConversationInfo]:
    if arguments.format is None:
        return [store.import_lines(file, source=source, as_new=arguments.as_new)]
    data = file.read()
    bodies = [(source, data)]
    if source.endswith(".jsonl") and data.strip():
        bodies = [(f"{source}, line {n}", line) for n, line in enumerate(data.splitlines(), 1) if line.strip()]
    read = [
        (where, _read_body(where, body, arguments.format)) for where, body in bodies
    ]  # all, before anything is stored
    taken = []
    for where, messages in read:
        for note in (*messages.repairs, *messages.losses):
            write_error(f"{where}: {note}")
        history = AgentHistory()
        for entry in messages.entries:
            history.append(entry)
        taken.append(store.import_lines(lines_of(history.entries, arguments.title), source=where))
    return taken


def _read_body(where: str, data: bytes, format_name: str) -> MessagesRead:
    try:
        value = decode_json(data)
    except NOT_JSON as error:
        raise StoreError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(value, dict | list):
        raise StoreError(f"{where}: expected a list of messages or a request body")
    try:
        if format_name == "atif":
            if not isinstance(value, dict):
                raise StoreError(f"{where}: expected an ATIF trajectory, a JSON object")
            messages: MessagesRead = load_part(EXTENSIONS, "trajectories", "--from atif").read_atif(value)
        else:
            messages = read_messages(value, format_name)
    except WireError as error:
        raise StoreError(f"{where}: {error}") from error
    if not messages.entries:
        raise StoreError(f"{where}: there are no messages in it")
    return messages


def _fork(store: HistoryStore, arguments: argparse.Namespace) -> int:
    info = store.info(store.fork(arguments.conversation, arguments.at).id)
    if arguments.json:
        return _write_json(info)
    write([f"{info.id}  {info.version} entries, forked from {info.parent}"])
    return 0


def _delete(store: HistoryStore, arguments: argparse.Namespace) -> int:
    info = store.info(arguments.conversation)
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise StoreError(f"deleting {info.id} cannot be undone; add --yes to confirm")
        title = one_line(info.title)
        sys.stdout.write(joined(f"Delete {info.id} ({title}, {info.version} entries)? It cannot be undone. [y/N] "))
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            write(["nothing was deleted"])
            return 1
    store.delete(info.id)
    write([f"deleted {info.id}"])
    return 0


_ACTIONS = {
    "list": _list,
    "show": _show,
    "search": _search,
    "export": export_lines,
    "import": _import,
    "fork": _fork,
    "delete": _delete,
    "verify": _verify,
}

_COLOURS = {"model_input": "green", "model_output": "blue", "tool_call_results": "yellow", "rollback": "red"}


def _row(info: ConversationInfo) -> tuple[str, str, str, str]:
    tags = f"  [{', '.join(info.tags)}]" if info.tags else ""
    return info.id, format_time(info.updated), str(info.version), f"{info.title}{_origin(info)}{tags}"


def _hit(hit: SearchHit) -> tuple[str, str, str, str]:
    return hit.conversation.id, str(hit.sequence_number), TITLES.get(hit.kind, hit.kind), hit.excerpt


def _origin(info: ConversationInfo) -> str:
    return f" · forked from {info.parent} at {info.forked_at}" if info.parent else ""


def _write_json(value: object) -> int:
    write_json(value)
    return 0


_STATUS_TEXT: dict[CopyStatus, str] = {
    "copied": "copied",
    "grown": "brought up to date",
    "same": "there already, the same",
    "ahead": "left alone: ahead there",
    "differs": "left alone: not the same there",
    "gone": "deleted meanwhile",
}


def _configure_copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("conversations", nargs="*", metavar="ID", help="an id, the beginning or end of one, or `last`")
    parser.add_argument("--all", action="store_true", help="every conversation")
    parser.add_argument("--from", dest="source", metavar="PLACE", help="a file or postgresql://… (default: the store)")
    parser.add_argument("--to", dest="target", metavar="PLACE", required=True, help="a file or postgresql://…")


def _copy(place: str | Path, arguments: argparse.Namespace) -> int:
    """Copy the conversations; returns 1 if the target has a different conversation with the same id."""
    if arguments.all == bool(arguments.conversations):
        raise StoreError("no conversations given; give their ids, or --all")
    source_place, target_place = arguments.source or place, arguments.target
    if _same(source_place, target_place):
        raise StoreError("--from and --to are the same store; there is nothing to copy")
    with open_location(source_place, create=False) as source, open_location(target_place) as target:
        wanted = _everything(source) if arguments.all else [source.info(each).id for each in arguments.conversations]
        came = [_copied(source, target, each, number, len(wanted)) for number, each in enumerate(wanted, 1)]
    _progress("")
    counts = {state: sum(1 for each in came if each.status == state) for state in _STATUS_TEXT}
    summary = ", ".join(f"{count} {_STATUS_TEXT[state]}" for state, count in counts.items() if count)
    write(
        [
            f"{len(came)} conversations, {sum(each.entries for each in came)} entries written: {summary or 'nothing to do'}"
        ]
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
    """Every id, the oldest first: a conversation comes before its forks, and an interrupted copy can be resumed."""
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
