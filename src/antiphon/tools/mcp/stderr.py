"""`ErrorOutput`: what a started server says on the side, to tell of it when the server fails.

A server's standard error is neither ours nor the user's screen's. A thread reads it, so that the server never waits for
somebody to do so; each line goes to the log, at debug level, and the last few are kept. Secrets that we gave the server
are masked in all of it (law L10).
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

logger = logging.getLogger("antiphon.tools.mcp")

_KEPT_LINES = 5
_LONGEST_LINE = 500


class ErrorOutput:
    """One end of a pipe for a server to write to, and its last lines."""

    def __init__(self, name: str, mask: Callable[[str], str]) -> None:
        self._name = name
        self._mask = mask
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        reading, writing = os.pipe()
        self.file: TextIO = os.fdopen(writing, "w")
        self._thread = threading.Thread(
            target=self._read, args=(os.fdopen(reading, errors="replace"),), name=f"stderr of {name}", daemon=True
        )
        self._thread.start()

    def _read(self, source: TextIO) -> None:
        with source:
            while line := source.readline(_LONGEST_LINE):
                line = self._mask(line.rstrip())
                logger.debug("%s: %s", self._name, line)
                self._lines.append(line)

    def close(self) -> None:
        """Let go of our end; what the server still writes is read all the same."""
        self.file.close()

    def last_words(self) -> str:
        """The last lines, once the server is gone."""
        self._thread.join(timeout=0.5)
        return "\n".join(line for line in self._lines if line)
