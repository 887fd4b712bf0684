"""Storing an imported session: each branch is a conversation whose id depends on the session and the branch only.

So a session that is imported again is found again: what is new is appended, and a conversation that was continued here in the
meantime is left alone (see `history/export.py`, which copies conversations between stores by the same rules).
"""

from __future__ import annotations

from antiphon.history import HistoryStore
from antiphon.history.codec import SCHEMA
from antiphon.history.export import CopyResult, ExportHead, copy_export, lines_of
from antiphon.ids import derived_id, new_id
from antiphon.text import replace_lone_surrogates
from antiphon_devtools.sessions.imported import Branch, ImportedSession


def store_session(store: HistoryStore, imported: ImportedSession, *, as_new: bool = False) -> list[CopyResult]:
    """Store every branch that has entries, and return what was done with each; `as_new` stores them under new ids."""
    results: list[CopyResult] = []
    ids: dict[str, str] = {}
    for branch in imported.branches:
        if not branch.entries:
            continue
        head = _head(imported, branch, ids, as_new=as_new)
        ids[branch.name] = head.id
        results.append(_store(store, branch, head))
    return results


def _store(store: HistoryStore, branch: Branch, head: ExportHead) -> CopyResult:
    return copy_export(head.id, lambda: lines_of(branch.entries, head=head), store, lambda: branch.entries)


def _head(imported: ImportedSession, branch: Branch, ids: dict[str, str], *, as_new: bool) -> ExportHead:
    session = imported.session
    name = "\0".join((session.program, session.id, branch.name))
    parent = ids.get(branch.parent) if branch.parent is not None else None
    return ExportHead(
        schema=SCHEMA,
        id=new_id() if as_new else derived_id(name, imported.created),
        title=replace_lone_surrogates(branch.title or session.title),
        created=imported.created,
        entries=len(branch.entries),
        parent=parent,
        forked_at=branch.shared if parent is not None else None,
        tags=(session.program,),
    )
