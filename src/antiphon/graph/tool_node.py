"""`ToolNode`: runs the calls of the last answer, as the loop does: what is finished is not run again, what may have half-run is
told as that, and what needs a person waits for one (`Conversations.needs_person` leads there)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.graph.node import ConversationNode
from antiphon.graph.stage import NodeStage
from antiphon.graph.step import GraphStep


class ToolNode(ConversationNode):
    """Runs calls. Where there are none it does nothing."""

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        turn = step.chat.turn
        if turn.open_calls and not turn.has_failed:
            step.mark()
            await step.runner(NodeStage(step.chat, step.place.node)).run()
        return None
