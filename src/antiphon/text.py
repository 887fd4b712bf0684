"""Text for people: on one line, and cut to a length."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text on one line: each run of white space becomes a space."""
    return " ".join(text.split())


def shorten(text: str, most: int) -> str:
    """The text, or its beginning with an ellipsis: at most `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
