"""Addresses of stores: what is not one is refused before anything is created, and no password is shown (law L10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import Conversation
from antiphon.errors import ConversationError, StoreError
from antiphon.history.location import display_location, open_location, open_store
from antiphon.history.sql.postgres_connections import Address
from antiphon.providers import ScriptedModel
from antiphon_chat.shared.session import ChatSettings

SECRET = "hunter2"
ADDRESS = f"postgresql://me:{SECRET}@db.example/chats?sslpassword={SECRET}"
BROKEN = f"postgres://me:{SECRET}@:x/@"


@pytest.mark.parametrize("address", [5, b"chats.db", "", None])
def test_an_invalid_store_address_is_named(address: Any) -> None:
    with pytest.raises(StoreError, match=r"invalid store .*expected the path of an SQLite file, or postgresql://"):
        open_store(address)


@pytest.mark.parametrize("open_it", [open_store, open_location])
def test_an_address_of_another_database_creates_nothing_and_is_not_repeated(
    open_it: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="unknown kind of store mysql://…;") as raised:
        open_it("mysql://ann:sesame@host/chats")
    assert "sesame" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_options_of_a_server_are_refused_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"schema: only a store in PostgreSQL has that, and .*chats\.db is a file"):
        open_store(tmp_path / "chats.db", schema="mine")
    with open_store(tmp_path / "chats.db", timeout=1.0) as store:
        assert store.count() == 0


def test_a_conversation_is_resumed_by_the_text_of_its_id(tmp_path: Path) -> None:
    resume: Any = 5
    with pytest.raises(ConversationError, match="resume=5: expected the id of a conversation, or 'last'"):
        Conversation(ScriptedModel(), store=tmp_path / "chats.db", resume=resume)


@pytest.mark.parametrize("given", [ADDRESS, BROKEN])
def test_the_settings_of_a_chat_show_no_password(given: str) -> None:
    settings = ChatSettings(store=given, model="offline/plain")
    for shown in (repr(settings), str(settings), f"{settings}", str(settings.__rich_repr__()), display_location(given)):
        assert SECRET not in shown
    assert "store='postgresql://…', model='offline/plain'" in repr(settings)


def test_a_file_is_shown() -> None:
    assert display_location(Path("chats.db")) == display_location("chats.db") == "chats.db"
    assert "store='chats.db'" in repr(ChatSettings(store=Path("chats.db")))


def test_an_address_shows_its_place_alone() -> None:
    pytest.importorskip("psycopg")
    address = Address.of(ADDRESS)
    for shown in (repr(address), str(address), str(address.__rich_repr__())):
        assert SECRET not in shown
        assert "db.example" in shown
