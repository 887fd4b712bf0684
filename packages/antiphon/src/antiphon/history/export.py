"""Export, import and copy a conversation as JSON Lines, a form to keep, mail, diff and grep.

The first line has the format and the number of entries, then come the attachments by hash, then the entries, each as the
exact bytes it is stored in. Because nothing is encoded again, an export that is imported and exported again is the same file,
including entries this version does not understand. Reading checks everything before anything is stored, and errors name the line.

`copy_conversation` copies a conversation between stores in this form, under its own id, and appends what is new if the copy
exists. An interrupted copy is finished by repeating it. A conversation that differs is never touched.

What people decided elsewhere permits nothing here (law L11). So a store notes beside a conversation how many of its entries were
imported: they stay as they are, and decisions and permissions among them do not count.

`log_schema` is the JSON Schema of the lines (`antiphon history schema`), made from the classes of the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from inspect import cleandoc
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from antiphon.errors import ConversationExists, ImportFormatError, SequenceError, StoreDamaged, UnknownConversation
from antiphon.history.attachments import digest, extract_media, references
from antiphon.history.codec import FIRST_DIGEST, SCHEMA, chain, decode_entry
from antiphon.history.entries import HistoryEntry, KnownEntry, OpaqueEntry
from antiphon.history.store import ConversationInfo, check_tags, check_text
from antiphon.ids import is_id, new_id
from antiphon.json_text import NOT_JSON

if TYPE_CHECKING:
    from antiphon.history.sql.store import HistoryStore


class ExportHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of an export."""

    antiphon: Literal["conversation"] = "conversation"
    schema: int
    id: str
    title: str
    created: datetime
    entries: int
    parent: str | None = None
    forked_at: int | None = None
    tags: tuple[str, ...] = ()
    head: str = ""
    """The digest of the last entry (see `codec.py`), in hexadecimal; empty in exports of earlier versions."""

    @classmethod
    def new(cls, title: str, tags: Iterable[str] = ()) -> ExportHead:
        """The head of a conversation that begins now. Raises `StoreError` for a title or tag that is not text."""
        check_text("title", title)
        return cls(schema=SCHEMA, id=new_id(), title=title, created=datetime.now(UTC), entries=0, tags=check_tags(tags))

    @classmethod
    def of(cls, info: ConversationInfo) -> ExportHead:
        """The head of a stored conversation."""
        return cls(
            schema=SCHEMA,
            id=info.id,
            title=info.title,
            created=info.created,
            entries=info.version,
            parent=info.parent,
            forked_at=info.forked_at,
            tags=info.tags,
        )

    def for_fork(self, at: int | None) -> ExportHead:
        """That of a fork, made now, with the first `at` entries, or all of them. Raises `SequenceError`."""
        at = self.entries if at is None else at
        if not 0 <= at <= self.entries:
            raise SequenceError(f"cannot fork conversation {self.id} at {at}: it has the versions 0 to {self.entries}")
        return msgspec.structs.replace(
            self, id=new_id(), created=datetime.now(UTC), entries=at, parent=self.id, forked_at=at, head=""
        )


class AttachmentLine(Struct, frozen=True):
    """An attachment, under the name entries use for it."""

    attachment: str
    data: str


class EntryLine(Struct, frozen=True):
    """An entry, decoded, and the bytes it came in."""

    entry: HistoryEntry
    stored: bytes


class Export(Struct, frozen=True):
    """All of an export, checked."""

    head: ExportHead
    attachments: dict[str, str]
    entries: list[EntryLine]
    digests: list[bytes]

    @classmethod
    def read(cls, lines: Iterable[bytes], source: str, *, as_new: bool = False) -> Export:
        """Read an export; `as_new` gives its conversation another id. Raises `ImportFormatError`."""
        head, *rest = read_export(lines, source)
        assert isinstance(head, ExportHead)
        entries = [line for line in rest if isinstance(line, EntryLine)]
        digests = list(chain(line.stored for line in entries))
        if head.head and head.head != (digests[-1] if digests else FIRST_DIGEST).hex():
            raise ImportFormatError(
                f"{source} was changed after it was exported: its first line has the digest {head.head[:12]}… of its "
                "entries, and they have another. Export it again; or, if the change is intended, remove `head` from that line"
            )
        return cls(
            msgspec.structs.replace(head, id=new_id()) if as_new else head,
            {line.attachment: line.data for line in rest if isinstance(line, AttachmentLine)},
            entries,
            digests,
        )


ExportLine: TypeAlias = ExportHead | AttachmentLine | EntryLine


def head_line(head: ExportHead) -> bytes:
    """The first line of an export."""
    # The two constants that identify the file come first and are always there, whatever omit_defaults would do.
    return b'{"antiphon":"conversation",' + msgspec.json.encode(head)[1:] + b"\n"


def attachment_line(name: str, data: str) -> bytes:
    return msgspec.json.encode(AttachmentLine(name, data)) + b"\n"


def lines_of(entries: Sequence[HistoryEntry], title: str = "", head: ExportHead | None = None) -> Iterator[bytes]:
    """The export of a new conversation with these entries, for `HistoryStore.import_lines`; `head` has its id and title."""
    yield head_line(msgspec.structs.replace(head or ExportHead.new(title), entries=len(entries)))
    stored, attachments = [], {}
    for entry in entries:
        line, media = extract_media(entry)
        stored.append(line)
        attachments.update(media)
    yield from (attachment_line(name, data) for name, data in attachments.items())
    yield from (line + b"\n" for line in stored)


def read_export(lines: Iterable[bytes], source: str) -> Iterator[ExportLine]:
    """The lines of an export, checked. Raises `ImportFormatError` naming `source` and the line."""
    numbered = ((number, _without_line_end(line, source)) for number, line in enumerate(lines, 1))
    head = _read_head(next(numbered, (1, b""))[1], source)
    yield head
    attached: set[str] = set()
    version = 0
    for number, line in numbered:
        if not line:
            continue
        where = f"{source}, line {number}"
        if line.startswith(b'{"attachment":'):
            attachment = _read_attachment(line, where)
            attached.add(attachment.attachment)
            yield attachment
        else:
            version += 1
            yield _read_entry(line, where, version, attached)
    if version != head.entries:
        raise ImportFormatError(
            f"{source} is cut short: its first line promises {head.entries} entries, and it has {version}"
        )


def _without_line_end(line: bytes, source: str) -> bytes:
    if not isinstance(line, bytes):
        raise ImportFormatError(
            f"{source}: its lines are {type(line).__name__}, not bytes; open the file with mode 'rb'"
        )
    return line.strip(b"\r\n")


def _read_head(line: bytes, source: str) -> ExportHead:
    try:
        head = msgspec.json.decode(line, type=ExportHead)
    except NOT_JSON as error:
        raise ImportFormatError(
            f"{source}, line 1: not an export of a conversation ({error}); make one with `antiphon history export`"
        ) from error
    if head.schema > SCHEMA:
        raise ImportFormatError(
            f"{source} was written by a newer Antiphon (schema {head.schema}, this one reads {SCHEMA}); upgrade"
        )
    if not is_id(head.id):
        raise ImportFormatError(f"{source}, line 1: {head.id!r} is not the id of a conversation")
    return head


def _read_attachment(line: bytes, where: str) -> AttachmentLine:
    try:
        attachment = msgspec.json.decode(line, type=AttachmentLine)
    except NOT_JSON as error:
        raise ImportFormatError(f"{where}: not an attachment: {error}") from error
    if digest(attachment.data) != attachment.attachment:
        raise ImportFormatError(
            f"{where}: the attachment is damaged: its content is not what {attachment.attachment[:19]}… names"
        )
    return attachment


def _read_entry(line: bytes, where: str, version: int, attached: set[str]) -> EntryLine:
    try:
        entry = decode_entry(line)
    except StoreDamaged as error:
        raise ImportFormatError(f"{where}: {error}") from error
    if entry.sequence_number != version:
        raise ImportFormatError(
            f"{where}: entry {entry.sequence_number} is out of sequence; entry {version} belongs here"
        )
    if not isinstance(entry, OpaqueEntry) and (missing := references(entry) - attached):
        raise ImportFormatError(
            f"{where}: the entry refers to {sorted(missing)[0][:19]}…, and no such attachment came before it"
        )
    return EntryLine(entry, line)


_NO_ENTRY = (b'{"antiphon":', b'{"attachment":')

CopyStatus: TypeAlias = Literal["copied", "grown", "same", "ahead", "differs", "gone"]


class CopyResult(Struct, frozen=True):
    """The outcome of a copy: `entries` were written."""

    conversation: str
    status: CopyStatus
    entries: int = 0
    detail: str = ""


def copy_conversation(source: HistoryStore, target: HistoryStore, conversation: str) -> CopyResult:
    """Bring a conversation from `source` to `target`."""
    info = source.info(conversation)
    return copy_export(
        info.id, lambda: source.export_lines(info.id), target, entries=lambda: source.open(info.id).entries
    )


def copy_export(
    conversation: str,
    export: Callable[[], Iterable[bytes]],
    target: HistoryStore,
    entries: Callable[[], Sequence[HistoryEntry]],
) -> CopyResult:
    """Bring the conversation of an export to `target`: all of it, or what is new if it is there already.

    `export` gives its lines and `entries` its entries, with their media; each is called only if it is needed.
    """
    there = _find_existing(target, conversation)
    if there is None:
        try:
            taken = target.import_lines(export(), source=f"conversation {conversation}")
            return CopyResult(conversation, "copied", taken.version)
        except ConversationExists:  # another process copies it at the same time
            there = target.info(conversation)
    return _append_missing(export, target, conversation, there.version, entries)


def _find_existing(target: HistoryStore, conversation: str) -> ConversationInfo | None:
    try:
        return target.info(conversation)
    except UnknownConversation:
        return None


def _append_missing(
    export: Callable[[], Iterable[bytes]],
    target: HistoryStore,
    conversation: str,
    known: int,
    entries: Callable[[], Sequence[HistoryEntry]],
) -> CopyResult:
    pairs = zip_longest(_entry_lines(export()), _entry_lines(target.export_lines(conversation)))
    version = 0
    for version, (ours, theirs) in enumerate(pairs, 1):
        if ours is None:
            return CopyResult(conversation, "ahead", detail=f"there it has {known} entries, here {version - 1}")
        if theirs is None:
            break
        if ours != theirs:
            return CopyResult(conversation, "differs", detail=f"from entry {version} on it says something else there")
    else:
        return CopyResult(conversation, "same")
    return CopyResult(conversation, "grown", target.append_imported(conversation, entries()))


def _entry_lines(lines: Iterable[bytes]) -> list[bytes]:
    """The entries as they are stored; attachments need no comparing, for entries name them by their hash."""
    return [line for line in lines if not line.startswith(_NO_ENTRY)]


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ENTRY_NAMES = {kind.__name__ for kind in get_args(KnownEntry)}


def log_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one line of an export: its head, an attachment, or an entry."""
    (head, attachment, entry), definitions = msgspec.json.schema_components(
        [ExportHead, AttachmentLine, KnownEntry], ref_template="#/$defs/{name}"
    )
    for name, definition in definitions.items():
        definition["description"] = cleandoc(definition.get("description", "")).split("\n\n")[0].replace("\n", " ")
        if name in _ENTRY_NAMES:  # what the history gives every entry when it is appended
            definition["properties"]["sequence_number"] = {"type": "integer", "minimum": 1}
            definition["required"] += ["sequence_number"]
    definitions["ExportHead"]["required"] = ["antiphon", *definitions["ExportHead"]["required"]]
    definitions["Entry"] = {"description": "One thing that happened.", **entry}
    return {
        "$schema": _DIALECT,
        "title": f"Antiphon log format {SCHEMA}",
        "description": "A line of an exported conversation: first the head, then attachments, then the entries in order.",
        "anyOf": [head, attachment, {"$ref": "#/$defs/Entry"}],
        "$defs": dict(sorted(definitions.items())),
    }
