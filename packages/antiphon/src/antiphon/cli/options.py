"""Arguments that several commands have: the store, a conversation, a configuration, JSON output, times and whole numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

from antiphon.errors import AntiphonError
from antiphon.extensions import EXTENSIONS, load_part

_EARLIEST, _MOST_DAYS = datetime(1970, 1, 1, tzinfo=UTC), 100_000


def add_store(parser: argparse.ArgumentParser, *, is_action: bool = False) -> None:
    """Add `--store`: to a command, and again to each of its actions, so that it is accepted before and after the action."""
    parser.add_argument(
        "--store",
        metavar="PLACE",
        default=argparse.SUPPRESS if is_action else None,  # an action must not undo what was given before it
        help="a file or postgresql://… (default: $ANTIPHON_STORE, or the file in your data folder)",
    )


def add_conversation(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a stored conversation."""
    parser.add_argument("conversation", metavar="ID", help="an id, the beginning or end of one, or `last`")


def read_config(path: str, table: str) -> Any:
    """The `antiphon.toml` that `--config` names, for one of its tables: nothing else in it, as a secret, has to be right.

    Reading it is the gateway's.
    """
    return load_part(EXTENSIONS, "gateway_config", "--config").load_config(path, only=(table,))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="for scripts")


def add_since(parser: argparse.ArgumentParser) -> None:
    """Add `--since`, for `read_time`."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="from this UTC day or time on: 2026-11-01, 2026-11-01T12:00, or 7d for seven days ago",
    )


def read_time(option: str, written: str | None) -> datetime | None:
    """A time of the command line. Raises `AntiphonError`."""
    if written is None:
        return None
    if written.endswith("d") and written[:-1].isdigit():
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return max(_EARLIEST, midnight - timedelta(days=min(int(written[:-1]), _MOST_DAYS)))
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        raise AntiphonError(f"{option} {written!r} is not a time; use 2026-11-01, 2026-11-01T12:00 or 7d") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def whole_number(least: int, most: float = inf) -> Callable[[str], int]:
    """The type of an option that takes a whole number in this range."""
    expected = f"{least} or more" if most == inf else f"{least}-{most}"

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected {expected}")
        return int(text)

    return read
