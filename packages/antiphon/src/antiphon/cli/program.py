"""`runnable`: a text whose instructions (`antiphon key new`, between backticks) can be typed where this person stands.

After `make run` there is no `antiphon` on the PATH, only the one of the environment. So texts are written with the plain name,
and where they are shown it is replaced by the path that runs the same program. Text of a model or a person is never passed here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

_INSTRUCTION = re.compile(r"`antiphon (?=[a-z-])")


def runnable(text: str) -> str:
    """The text with its instructions as they can be typed here."""
    return _INSTRUCTION.sub(lambda _: f"`{program()} ", text) if "`antiphon " in text else text


@cache
def program() -> str:
    """How this program is called from the current folder: its name if that is found, else its path, else by its Python."""
    own = Path(sys.executable).parent / "antiphon"
    found = shutil.which("antiphon")
    if found is not None and (not own.exists() or os.path.samefile(found, own)):
        return "antiphon"
    if not os.access(own, os.X_OK):
        return f"{shlex.quote(sys.executable)} -m antiphon"
    here = Path.cwd()
    shown = own.relative_to(here) if own.is_relative_to(here) else own
    return shlex.quote(str(shown))
