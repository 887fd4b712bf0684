"""Stored entries: they come back as they were, old ones too, and those of a newer version unharmed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from antiphon.errors import InvalidEntry, StoreDamaged
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    DebugLogEntry,
    HistoryEntry,
    HistoryEntryKind,
    ModelInputEntry,
    OpaqueEntry,
    RollbackEntry,
    SqliteStore,
    decode_entry,
    encode_entry,
)
from antiphon.history.entries import TITLES
from antiphon.history.export import log_schema
from antiphon.parts import Text
from support.history_strategies import entries

STORED = Path(__file__).parent / "stored"
SCHEMA_OF_LINES = Draft202012Validator(log_schema())


@given(entries)
def test_entries_round_trip(entry: HistoryEntry) -> None:
    stamped = msgspec.structs.replace(entry, sequence_number=7, timestamp=datetime.now(UTC))
    stored = encode_entry(stamped)
    assert decode_entry(stored) == stamped
    assert b"\n" not in stored
    assert encode_entry(decode_entry(stored)) == stored


def test_every_form_ever_stored_still_loads_and_is_written_back_the_same() -> None:
    """Exports of every schema there has been, with every kind of entry and part that it knew. Add files, change none."""
    files = sorted(STORED.glob("schema-*.jsonl"))
    assert [file.name for file in files] == [
        "schema-1-approval-requests.jsonl",
        "schema-1-finished-calls.jsonl",
        "schema-1-segments.jsonl",
        "schema-1.jsonl",
    ]
    kinds: set[str] = set()
    for file in files:
        lines = file.read_bytes().splitlines(keepends=True)
        with SqliteStore(":memory:") as store:
            info = store.import_lines(lines, source=file.name)
            history = store.open(info.id)
            assert not [entry for entry in history.entries if isinstance(entry, OpaqueEntry)]
            head, *rest = store.export_lines(info.id)
            assert rest == lines[1:]
            digest = b',"head":"' + store.verify(info.id).head.encode() + b'"}'
            assert head.replace(digest, b"}") == lines[0], "the digest of the entries is new in 0.2"
        kinds |= {entry.kind for entry in history.entries}
        assert [encode_entry(entry) + b"\n" for entry in history.entries] == lines[1:]
    assert kinds == {kind.value for kind in HistoryEntryKind}


def test_the_schema_of_the_log_accepts_every_form_ever_stored() -> None:
    lines = [line for file in STORED.glob("schema-*.jsonl") for line in file.read_bytes().splitlines()]
    for line in lines:
        SCHEMA_OF_LINES.validate(msgspec.json.decode(line))
    shipped = Path(__file__).parents[4] / "docs" / "log-format.schema.json"
    written = json.loads(msgspec.json.encode(log_schema()))
    assert json.loads(shipped.read_text()) == written, "antiphon history schema > docs/log-format.schema.json"


@given(entries)
def test_the_schema_of_the_log_accepts_what_is_written_and_nothing_else(entry: HistoryEntry) -> None:
    stored = msgspec.json.decode(encode_entry(msgspec.structs.replace(entry, sequence_number=1)))
    assert SCHEMA_OF_LINES.is_valid(stored)
    assert not SCHEMA_OF_LINES.is_valid({**stored, "mood": "good"})
    assert not SCHEMA_OF_LINES.is_valid({name: value for name, value in stored.items() if name != "sequence_number"})


@pytest.mark.parametrize(
    "stored",
    [
        b'{"kind":"dream","sequence_number":1,"timestamp":"2027-01-01T00:00:00Z","of":{"sheep":[1,2.50,1e3]}}',
        b'{"kind":"model_input","content":[{"type":"text","text":"hi"}],"mood":"good","sequence_number":1}',
        b'{"kind":"model_input","content":[{"type":"hologram","text":"hi"}],"sequence_number":1}',
        b'{"kind":"model_input","content":[{"type":"text","text":"hi","bold":true}],"sequence_number":1}',
        b'{ "kind" : "debug_log", "category":1, "message":"x", "sequence_number":1 }',
    ],
)
def test_entries_of_a_newer_version_are_opaque_and_unchanged(stored: bytes, store: SqliteStore) -> None:
    entry = decode_entry(stored)
    assert isinstance(entry, OpaqueEntry)
    assert entry.kind == msgspec.json.decode(stored)["kind"]
    assert entry.sequence_number == 1
    assert entry.why
    assert encode_entry(entry) == stored
    history = store.create()
    history.append(entry)
    history.append(ModelInputEntry.of("and on we go"))
    lines = list(store.export_lines(history.id))
    assert lines[1] == stored + b"\n"
    assert store.open(history.id).entries == history.entries
    with SqliteStore(":memory:") as other:
        other.import_lines(lines)
        assert list(other.export_lines(history.id)) == lines


@pytest.mark.parametrize(
    "stored",
    [b"", b"null", b"[]", b'{"kind":1}', b'{"kind":"x"}', b'{"kind":"x","sequence_nu', b"\xff", b'{"kind":"\xa2"}'],
)
def test_an_invalid_entry_is_damage(stored: bytes) -> None:
    with pytest.raises(StoreDamaged, match="not an entry"):
        decode_entry(stored)


def test_invalid_unicode_is_refused_before_anything_is_written(store: SqliteStore) -> None:
    history = store.create()
    with pytest.raises(InvalidEntry, match="lone surrogate"):
        history.append(ModelInputEntry((Text("a\ud800b"),)))
    with pytest.raises(InvalidEntry, match="JSON cannot"):
        history.append(ModelInputEntry((Text("a", native={"x": {"y": object()}}),)))
    assert history.version == 0
    assert store.open(history.id).version == 0


def test_kinds_have_the_names_readers_know() -> None:
    assert TITLES["model_input"] == "ModelInput"
    assert TITLES["tool_call_results"] == "ToolCallResults"
    assert set(TITLES) == {kind.value for kind in HistoryEntryKind}
    assert DebugLogEntry("a", "b").kind == HistoryEntryKind.DEBUG_LOG


def test_equal_entries_compare_equal_across_histories() -> None:
    left, right = AgentHistory(), AgentHistory()
    entry = RollbackEntry(0, "mistake", timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert left.append(entry) == right.append(entry)
    assert left.append(CompactionEntry("s", 1)) != right.append(CompactionEntry("t", 1))
