"""Markdown that is still being written, cut into blocks that will not change any more and the one that may.

The block structure of Markdown is decided line by line, and a block at the top level that another one follows is closed for good.
So of what has come in whole lines, all top-level blocks but the last are finished; the last, and the line that is still being
written, stay open. Whenever one looks, and however the text was cut on its way, the blocks are the same, and together with the
open rest they are the text.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)\n")


class MarkdownBlocks:
    """Takes text as it comes; `finished` gives the blocks that were closed since it was last asked."""

    def __init__(self) -> None:
        from markdown_it import MarkdownIt

        self._parser: Any = MarkdownIt().enable("table")
        self._pieces: list[str] = []

    def feed(self, text: str) -> None:
        self._pieces.append(text)

    @property
    def open(self) -> str:
        """What is not finished yet."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def finished(self) -> list[str]:
        """The blocks that cannot change any more; they are given once."""
        text = self.open
        whole = text.rfind("\n") + 1
        starts = self._starts(text[:whole])
        if len(starts) < 2:
            return []
        lines = [f"{line}\n" for line in text[:whole].split("\n")[:-1]]
        edges = [0, *starts[1:]]
        self._pieces = ["".join(lines[edges[-1] :]) + text[whole:]]
        return ["".join(lines[start:end]) for start, end in pairwise(edges)]

    def rest(self) -> str:
        """The text has come to its end: all that is left, which is finished now."""
        text = self.open
        self._pieces = []
        return text

    def _starts(self, text: str) -> list[int]:
        """The line with which each block at the top level begins."""
        counted = text.replace("\r", " ")  # the parser would take it for the end of a line
        return [token.map[0] for token in self._parser.parse(counted) if token.level == 0 and token.map is not None]


def tail(block: str, lines: int) -> str:
    """The end of an open block, for a screen that has no room for all of it; code stays code."""
    shown = block.split("\n")
    if len(shown) <= lines:
        return block
    fence = _FENCE.match(block)
    return (fence[0] if fence else "") + "\n".join(shown[-lines:])
