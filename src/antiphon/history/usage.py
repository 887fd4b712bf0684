"""The earlier place of `TokenUsage`."""

from antiphon.history.entries import TokenUsage

__all__ = ["TokenUsage"]
