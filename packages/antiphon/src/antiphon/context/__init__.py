"""From the log to what a model sees: live context, window, token counts."""

from antiphon.context.compaction import Compaction
from antiphon.context.gauge import ContextGauge
from antiphon.context.live import (
    LiveContext,
    LiveContextOptions,
    LiveContextRenderer,
    OmittedEntries,
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
    "Compaction",
    "ContextGauge",
    "CounterChain",
    "LiveContext",
    "LiveContextOptions",
    "LiveContextRenderer",
    "LocalTokenizer",
    "OmittedEntries",
    "RenderedContextEntry",
    "ReportedUsage",
    "TokenCounter",
    "TokenLedger",
    "render_live_context",
]
