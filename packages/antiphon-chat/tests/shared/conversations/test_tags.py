"""Pins and tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import ConversationError
from antiphon.history import SqliteStore
from antiphon_chat.shared.conversations.tags import is_pinned, organize, pin_tag, store_tag, tags_of


def test_pins_and_tags_belong_to_their_owner(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        info = store.info(store.create("Talk", tags=["owner:ada"]).id)
        info = organize(store, info, "ada", pinned=True, tags=["birds ", "birds", "long  words", ""])
        assert is_pinned(info, "ada")
        assert not is_pinned(info, "ben")
        assert tags_of(info, "ada") == ["birds", "long words"]
        assert tags_of(info, "ben") == []
        assert [found.id for found in store.list(tag=store_tag("ada", "birds"))] == [info.id]
        assert store.list(tag=pin_tag("ben")) == []
        info = organize(store, info, "ada", pinned=False, tags=[])
        assert info.tags == ("owner:ada",)
        assert organize(store, info, "ada") is info


@pytest.mark.parametrize("tags", [["x" * 41], ["a\x00b"], [str(number) for number in range(21)]])
def test_invalid_tags_are_refused(tags: list[str], tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        info = store.info(store.create("Talk").id)
        with pytest.raises(ConversationError, match="tag"):
            organize(store, info, "", tags=tags)
