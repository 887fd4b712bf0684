"""Text for people: on one line, cut to a length, valid Unicode."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text on one line: each run of white space becomes a space."""
    return " ".join(text.split())


def shorten(text: str, most: int) -> str:
    """The text, or its beginning with an ellipsis: at most `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def excerpt(text: str, start: int, end: int) -> str:
    """A part of a text, with an ellipsis where more of it follows or comes before."""
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def replace_lone_surrogates(text: str) -> str:
    """The text with a question mark for each lone surrogate, which cannot be written as UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()
