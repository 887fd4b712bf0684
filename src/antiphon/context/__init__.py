"""From the log to what a model sees now: live context, window, token counts."""

from antiphon.context.live import (
    LeftOut,
    LiveContext,
    LiveContextOptions,
    LiveContextRenderer,
    RenderedContextEntry,
    render_live_context,
)
from antiphon.context.tokens import (
    CharacterEstimate,
    CounterChain,
    LocalTokenizer,
    ReportedUsage,
    TokenCounter,
    TokenLedger,
)

__all__ = [
    "CharacterEstimate",
    "CounterChain",
    "LeftOut",
    "LiveContext",
    "LiveContextOptions",
    "LiveContextRenderer",
    "LocalTokenizer",
    "RenderedContextEntry",
    "ReportedUsage",
    "TokenCounter",
    "TokenLedger",
    "render_live_context",
]
