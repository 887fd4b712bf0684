"""Arguments that several commands have: the store, a conversation, a configuration, JSON output and whole numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from typing import Any

from antiphon.extensions import EXTENSIONS, load_part


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


def read_config(path: str) -> Any:
    """The `antiphon.toml` that `--config` names. Reading it is the gateway's."""
    return load_part(EXTENSIONS, "gateway_config", "--config").load_config(path)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="for scripts")


def whole_number(least: int, most: float = inf) -> Callable[[str], int]:
    """The type of an option that takes a whole number in this range."""
    expected = f"{least} or more" if most == inf else f"{least}-{most}"

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected {expected}")
        return int(text)

    return read
