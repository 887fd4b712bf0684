"""A prop on the stage as text."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.wire.native_as_text import Block, Readers, label


def _prop(block: Block) -> Iterator[str]:
    yield label("prop", block.get("thing"))


READERS: Readers = {"prop": _prop}
