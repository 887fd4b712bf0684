"""Where `Format` finds the typed reader."""

from antiphon.wire.gemini.request import read_plain

__all__ = ["read_plain"]
