"""Errors of Chat Completions and of the hosts that imitate it."""

from __future__ import annotations

from antiphon.wire.shared_openai import CHAT, error_table

_ERRORS = error_table(CHAT)
read_error, write_error = _ERRORS.read, _ERRORS.write
