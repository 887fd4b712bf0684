"""The `py` blocks of docs/library/postgres.md, which need a server, are run with one."""

from __future__ import annotations

import re

from antiphon.history import HistoryStore
from support.repository import ROOT

PAGE = ROOT / "docs" / "library" / "postgres.md"


def test_the_examples_run(postgres: str) -> None:
    text = PAGE.read_text()
    names: dict[str, object] = {"__name__": PAGE.stem}
    blocks = list(re.finditer(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    for block in blocks:
        line = text[: block.start()].count("\n") + 1
        code = block[1].replace("postgresql://localhost/chats", postgres)
        exec(compile("\n" * line + code, PAGE.name, "exec"), names)
    assert len(blocks) >= 3
    store = names["store"]
    assert isinstance(store, HistoryStore)
    store.close()
