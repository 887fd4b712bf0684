"""`AskNode`: puts a question before the model, in the conversation or in a fork of it.

A question that comes with the graph's input belongs to the graph: it is asked exactly once, however often the step is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from antiphon.conversation.agent import CHANNEL
from antiphon.errors import GraphError
from antiphon.graph.llm_node import Words
from antiphon.graph.node import ConversationNode
from antiphon.graph.stage import NodeStage
from antiphon.graph.step import GraphStep
from antiphon.history import ModelInputEntry

if TYPE_CHECKING:
    from antiphon.graph.conversations import Conversations


class AskNode(ConversationNode):
    """Asks `question`: words, or what makes them of the state; by default what the state has under `question`.

    With `fork` the question is asked in a fork of the conversation, which the state names from then on. `by` says who asks:
    `user`, or `agent` for a question that the graph came up with, which counts as a hand-over.
    """

    def __init__(
        self, chats: Conversations, question: Words | None = None, *, fork: bool = False, by: str = "user"
    ) -> None:
        super().__init__(chats)
        self._question = question
        self.fork = fork
        self._by = by

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        if any(isinstance(entry, ModelInputEntry) for entry in step.done):
            return None
        said = self._question if self._question is not None else step.state.get("question")
        words = said(step.state) if callable(said) else said
        if not isinstance(words, str) or not words:
            raise GraphError(
                f"the node {step.place.node} has nothing to ask: the state's `question` is {words!r}; give it words, or give "
                "AskNode a question"
            )
        step.mark()
        stage = NodeStage(step.chat, step.place.node)
        entry = ModelInputEntry.of(words, channel=self._by)
        if self._by == CHANNEL:
            step.hand_over(stage, entry)
        else:
            step.runner(stage).start(entry)
        return None
