"""Sessions of other coding agents: found on this machine, read into histories, and written so that a program resumes them.

`programs.py` lists the programs, one module each. A session becomes one history per branch (`imported.py`); `storing.py` puts
them into a store under ids that depend on the session alone, so that importing it again only adds what is new.
"""

from antiphon_devtools.sessions.imported import Branch, HistoryBuilder, ImportedSession
from antiphon_devtools.sessions.programs import PROGRAMS, Program, load_program
from antiphon_devtools.sessions.session_file import SessionFile, Unreadable
from antiphon_devtools.sessions.storing import store_session
from antiphon_devtools.sessions.written import SessionTarget, WrittenFile, WrittenSession

__all__ = [
    "PROGRAMS",
    "Branch",
    "HistoryBuilder",
    "ImportedSession",
    "Program",
    "SessionFile",
    "SessionTarget",
    "Unreadable",
    "WrittenFile",
    "WrittenSession",
    "load_program",
    "store_session",
]
