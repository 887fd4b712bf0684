"""`MarkdownContext`: where in a Markdown text we are, and whether a call may begin there or would only be quoted.

Text that is not a call is added piece by piece; only a few values are kept, however long it gets. Nothing is a call

- in a fenced code block or in its opening line (a block that *is* a call was read as one by `parser` and is not added here),
- in a code span. A span ends with as many backticks as it began with, or with its paragraph,
- in a quoted line (`> …`), or indented by four columns and more, which is code too,
- between quotation marks of the same line.

Anywhere else a call may begin, in the middle of a sentence too: models write `我来搜索<tool_call>…` as well.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\n|`+|~+|[^\n`~]+")
_CODE_INDENT = 4
_QUOTE_MARK = re.compile(r'["“”„«»「」『』]')
_CLOSING_QUOTES = "”»」』"

# How far a line has come: only blanks; a run of backticks or tildes after them; what follows such a run; anything else.
_START, _RUN, _BEHIND_RUN, _WORDS = range(4)


class MarkdownContext:
    """What came before, as far as it matters. `note` it in order."""

    __slots__ = ("_fence", "_has_open_quote", "_indent", "_is_quoted", "_mark", "_run", "_span", "_state")

    def __init__(self) -> None:
        self._fence: tuple[str, int] | None = None
        self._span = 0
        self._start_line()

    def _start_line(self) -> None:
        self._state = _START
        self._indent = 0
        self._is_quoted = False
        self._has_open_quote = False
        self._mark = ""
        self._run = 0

    @property
    def is_line_start(self) -> bool:
        """Whether a block of its own may begin here."""
        return self._state == _START and self._indent < _CODE_INDENT and self._fence is None

    @property
    def is_own_line(self) -> bool:
        """Whether a line that is an unmarked call may begin here."""
        return self.is_line_start and not self._span

    @property
    def allows_call(self) -> bool:
        """Whether a call may begin here."""
        if self._state == _START:
            return self.is_own_line
        is_prose = self._state == _WORDS and self._fence is None and not self._is_quoted
        # Backticks right before it have ended a span, or have just begun one.
        is_in_span = self._run != self._span if self._run else self._span > 0
        return is_prose and not is_in_span and not self._has_open_quote

    def note_call(self) -> None:
        """A call was here: the text after it is treated as the start of a line."""
        self._start_line()

    def note(self, text: str) -> None:
        """Text stood here."""
        for token in _TOKEN.findall(text):
            if token == "\n":
                self._end_line()
            elif self._state == _START:
                self._begin(token)
            elif self._fence is not None:
                self._note_fenced(token)
            else:
                self._note_prose(token)

    def _begin(self, token: str) -> None:
        words = token.lstrip(" \t\r")
        for blank in token[: len(token) - len(words)]:
            self._indent += _CODE_INDENT if blank == "\t" else 1
        if not words:
            return
        if words[0] in "`~" and self._indent < _CODE_INDENT:
            self._state, self._mark, self._run = _RUN, words[0], len(words)
            return
        self._state = _WORDS
        self._is_quoted = words[0] == ">" or self._indent >= _CODE_INDENT
        self._note_prose(words)

    def _note_fenced(self, token: str) -> None:
        """Only a line that is nothing but a run like the opening one may close the block."""
        if self._state == _RUN and token[0] == self._mark:
            self._run += len(token)
        elif self._state != _WORDS and not token.strip():
            self._state = _BEHIND_RUN
        else:
            self._state = _WORDS

    def _note_prose(self, token: str) -> None:
        if self._state == _RUN:
            if token[0] == self._mark:
                self._run += len(token)
                return
            if self._run >= 3:
                self._state = _BEHIND_RUN
            else:
                self._state = _WORDS
                self._settle_run()
        if self._state == _BEHIND_RUN:
            if token[0] != "`" or self._mark != "`":
                return
            self._state = _WORDS  # no block opens with more backticks on its line: it was a span
            self._settle_run()
        if token[0] == "`":
            self._mark = "`"
            self._run += len(token)
            return
        self._settle_run()
        for mark in _QUOTE_MARK.findall(token):
            self._has_open_quote = not self._has_open_quote if mark == '"' else mark not in _CLOSING_QUOTES

    def _settle_run(self) -> None:
        """A run of backticks is over: it began a span, or ended one, or is part of one."""
        if self._run and self._mark == "`":
            if not self._span:
                self._span = self._run
            elif self._span == self._run:
                self._span = 0
        self._run = 0

    def _end_line(self) -> None:
        is_fence_line = self._state in (_RUN, _BEHIND_RUN) and self._run >= 3
        if self._fence is not None:
            mark, length = self._fence
            if is_fence_line and self._mark == mark and self._run >= length:
                self._fence = None
        elif is_fence_line:
            self._fence = (self._mark, self._run)
            self._span = 0
        elif self._state == _START:
            self._span = 0
        else:
            self._settle_run()
        self._start_line()
