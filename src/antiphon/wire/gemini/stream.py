"""Where `Format` finds the stream reader."""

from antiphon.wire.gemini.stream_reader import StreamReader

__all__ = ["StreamReader"]
