"""The first screen of the terminal: the name, one sentence, and, without a key, four things to try and the way to a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from antiphon.cli.program import program
from antiphon.cli.terminal import ellipsize, width_of
from antiphon.providers.default_model import OFFLINE
from antiphon_chat.language import translate
from antiphon_chat.shared.models import model_title
from antiphon_chat.terminal.render import Renderer

THINGS = (
    ("1", "search, then plan", "ten seconds, no key"),
    ("2", "stop me in the middle", "go on later: {command}"),
    ("3", "see it as each provider", "the same history in each API's own shape"),
    ("4", "roll back and fork", "nothing is deleted"),
    ("/key", "use a real model", "Anthropic, OpenAI, Google or a compatible host"),
)
_NARROW = 60


def mark(kind: str) -> str:
    """A note of the score: `asked` is hollow, `answered` filled; the line runs down between them."""
    is_unicode = "utf" in (sys.stdout.encoding or "").lower().replace("-", "")
    unicode_marks = {"asked": "▫", "answered": "▪", "line": "│"}
    return unicode_marks[kind] if is_unicode else {"asked": "o", "answered": "*", "line": "|"}[kind]


def greeting(renderer: Renderer, model: str, about: str = "") -> Iterator[str]:
    """The lines. `about` says why this model answers."""
    is_tour = model == OFFLINE
    title = f"{mark('asked')}{mark('answered')} Antiphon"
    right = f"{model_title(model)} · {translate('no key')}" if is_tour else model_title(model)
    gap = renderer.columns - width_of(title) - width_of(right) - 1
    shown = ellipsize(f" · {right}", max(4, renderer.columns - width_of(title) - 1)) if gap < 2 else " " * gap + right
    yield renderer.styled(title, "bold") + renderer.styled(shown, "dim")
    sentence = translate("One history, every model.")
    if is_tour:
        sentence += translate(" No key yet, so a guided tour answers; it is not a model.")
    yield renderer.line(sentence)
    if about:
        yield renderer.line(about, "dim")
    if not is_tour:
        return
    yield ""
    rows = [
        (
            key,
            translate(name),
            translate(hint, command=f"{program()} chat --resume") if "{" in hint else translate(hint),
        )
        for key, name, hint in THINGS
    ]
    widest = max(width_of(name) for _, name, _ in rows)
    for key, name, hint in rows:
        head = f"{renderer.styled(f'{key:<5}', 'bold')} {name}"
        if renderer.columns < _NARROW:
            yield head
            continue
        padding = " " * (widest - width_of(name) + 3)
        room = renderer.columns - 6 - widest - 4
        shown = hint if width_of(hint) <= room or key != "2" else translate("and go on later")  # no command is cut
        yield head + padding + renderer.styled(ellipsize(shown, room), "dim")
    yield ""
