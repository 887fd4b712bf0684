"""Every store there is, for the tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.history import HistoryStore, SqliteStore


@pytest.fixture(params=["sqlite"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryStore]:
    with SqliteStore(tmp_path / "chats.db") as store:
        yield store
