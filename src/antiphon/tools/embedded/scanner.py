"""`Scanner`: text in as it comes, text and calls out.

Two states: prose, which goes out at once and is noted in the `Surroundings`; and a candidate, held back from the first character
that may begin a call until `grammar` has read it as one or has found that it is none. Then what it had taken goes out as prose.

White space that touches a call is part of its markup and goes with it. To know that, the last white space of a piece is kept
until something follows.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from antiphon.tools.embedded.grammar import candidate
from antiphon.tools.embedded.source import NotACall, Reading, Source
from antiphon.tools.embedded.surroundings import Surroundings
from antiphon.tools.embedded.written_call import Offer, WrittenCall

Piece: TypeAlias = str | WrittenCall

_MAY_BEGIN = re.compile(r"[<\[{`~]")


class Scanner:
    """One text. `feed` its pieces and `close` it; each gives what has become certain by then."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._source = Source()
        self._place = Surroundings()
        self._candidate: Reading[list[WrittenCall]] | None = None
        self._white: list[str] = []
        self._is_after_call = False
        self._pieces: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        self._source.add(text)
        self._scan()
        return self._said()

    def close(self) -> list[Piece]:
        """The text is over: a call that only lacks its closer counts."""
        self._source.is_ended = True
        self._scan()
        self._release_white()
        return self._said()

    def abandon(self) -> list[Piece]:
        """The text was cut: what was held back is text, whatever it might have become."""
        self._candidate = None
        self._say(self._source.settle() + self._source.rest())
        self._release_white()
        return self._said()

    def _scan(self) -> None:
        source = self._source
        while True:
            if self._candidate is None:
                if not self._pass_prose():
                    return
                self._candidate = candidate(source, self._offer, self._place)
            try:
                next(self._candidate)
            except StopIteration as found:
                source.settle()
                self._place.note_call()
                self._white.clear()
                self._is_after_call = True
                self._pieces += found.value
            except NotACall:
                if not source.mark:
                    source.take(
                        1
                    )  # nothing of it could be used: its first character is text, the next may begin another
                self._pass(source.settle())
            else:
                return  # it needs to see more
            self._candidate = None

    def _pass_prose(self) -> bool:
        """Let text go by up to where a call may begin; whether there is such a place."""
        source = self._source
        while found := _MAY_BEGIN.search(source.text, source.position):
            self._pass(source.text[source.position : found.start()])
            source.position = found.start()
            if self._is_place_for(found[0]):
                return True
            self._pass(found[0])
            source.position += 1
        self._pass(source.rest())
        return False

    def _is_place_for(self, front: str) -> bool:
        if front == "{":
            return self._place.is_own_line
        if front in "`~":
            return self._place.is_line_start
        return self._place.admits(is_token=True)

    def _pass(self, text: str) -> None:
        self._place.note(text)
        self._say(text)

    def _say(self, text: str) -> None:
        if self._is_after_call:
            text = text.lstrip()
            self._is_after_call = not text
        said = text.rstrip()
        if said:
            self._release_white()
            self._pieces.append(said)
        if len(said) < len(text):
            self._white.append(text[len(said) :])

    def _release_white(self) -> None:
        if self._white:
            self._pieces.append("".join(self._white))
            self._white.clear()

    def _said(self) -> list[Piece]:
        """The pieces, text next to text as one."""
        pieces: list[Piece] = []
        words: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                words.append(piece)
                continue
            if words:
                pieces.append("".join(words))
                words.clear()
            pieces.append(piece)
        if words:
            pieces.append("".join(words))
        self._pieces = []
        return pieces
