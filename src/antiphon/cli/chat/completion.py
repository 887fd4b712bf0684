"""What could be typed next: commands, the names of models, and files behind an @. Plain values; the composer shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^"\s]*))$')
_MOST_FILES = 50


class Completion(Struct, frozen=True):
    """A text that may take the place of the last `length` characters, with a word about it."""

    text: str
    length: int
    about: str = ""


def completions(typed: str, commands: Mapping[str, str], words: Mapping[str, Sequence[str]]) -> Iterator[Completion]:
    """What fits behind `typed`. `words` are the arguments a command takes, by its name."""
    if typed.startswith("/") and "\n" not in typed:
        name, space, argument = typed.partition(" ")
        if not space:
            yield from (Completion(each, len(name), about) for each, about in commands.items() if each.startswith(name))
            return
        fitting = (word for word in words.get(name, ()) if argument.lower() in word.lower())
        yield from (Completion(word, len(argument)) for word in fitting)
    if mention := _MENTION.search(typed):
        yield from _files(mention[2] if mention[1] is None else mention[1], is_quoted=mention[1] is not None)


def _files(begun: str, *, is_quoted: bool) -> Iterator[Completion]:
    folder, slash, beginning = begun.rpartition("/")
    place = Path(f"{folder}{slash}" or ".").expanduser()
    try:
        found = sorted(os.scandir(place), key=lambda each: each.name)
    except OSError:
        return
    fitting = (
        each
        for each in found
        if each.name.startswith(beginning) and (beginning.startswith(".") or not each.name.startswith("."))
    )
    for number, each in enumerate(fitting):
        if number >= _MOST_FILES:
            return
        is_folder = each.is_dir()
        name = each.name + "/" * is_folder
        about = "folder" if is_folder else ""
        if " " in name and not is_quoted:
            yield Completion(f'"{folder}{slash}{name}' + '"' * (not is_folder), len(begun), about)
        else:
            yield Completion(name + '"' * (is_quoted and not is_folder), len(beginning), about)
