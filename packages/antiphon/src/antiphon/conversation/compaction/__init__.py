"""A conversation that never overflows: how large the next request is, what is taken out of it, and how to read that again."""

from antiphon.conversation.compaction.auto import AutoCompaction, compact, compact_when_needed

__all__ = ["AutoCompaction", "compact", "compact_when_needed"]
