"""The address of a store may hold a password: nothing that people see repeats it (law L10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.chat.session import ChatSettings
from antiphon.history.location import display_location
from antiphon.history.sql.postgres_connections import Address

SECRET = "hunter2"
ADDRESS = f"postgresql://me:{SECRET}@db.example/chats?sslpassword={SECRET}"
BROKEN = f"postgres://me:{SECRET}@:x/@"


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
