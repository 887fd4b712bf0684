"""The threads of the gateway, one set for each kind of waiting. No other code of the gateway uses threads for blocking work."""

from __future__ import annotations

from antiphon.threads import Threads

STATE = Threads("state file", workers=4, waiting=64)
"""Stored responses and conversations."""
DATABASE = Threads("operator database", workers=4, waiting=64)
"""Stored keys, the audit log, and what readers ask of the ledger."""
COUNTING = Threads("processor", workers=2, waiting=64)
"""Counting tokens, which waits for nothing."""
RECORDS = Threads("request records", workers=2, waiting=32)
"""The records of recent requests, which workers share by files."""
PROCESS = Threads("disk", workers=2, waiting=8)
"""What the process itself needs and no request fills: the files of the configuration, and closing."""
