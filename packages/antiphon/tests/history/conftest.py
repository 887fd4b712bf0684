"""Every store there is, for the tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.history import HistoryStore, SqliteStore
from antiphon.history.location import open_store


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryStore]:
    if request.param == "sqlite":
        with SqliteStore(tmp_path / "chats.db") as store:
            yield store
    else:
        with open_store(request.getfixturevalue("postgres")) as store:
            yield store
