"""`LLMNode`: asks a model once.

What it asks follows from where the turn stands in the log: after a question or after results the model is asked to go on. If
the turn is over when the graph leads here (one model behind another), a turn begins that no person asked for: with the node's
`prompt`, or with a plain word to go on; so many in a row and no more (`max_hand_overs`). A model that has come to a bound of
the turn is asked one last time without tools, as in the loop; leading to it once more is refused (`TurnOver`).

Run again after a crash, the node finds its answer in the log and asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from antiphon.conversation.agent import CHANNEL
from antiphon.conversation.events import BOUNDS
from antiphon.conversation.turn import Turn
from antiphon.errors import GraphError, TurnOver
from antiphon.graph.node import ConversationNode
from antiphon.graph.stage import NodeStage
from antiphon.graph.step import GraphStep
from antiphon.history import ModelInputEntry
from antiphon.providers.client import ProviderClient

if TYPE_CHECKING:
    from antiphon.graph.conversations import Conversations

Words: TypeAlias = str | Callable[[Mapping[str, Any]], str]
"""What to say: words, or what makes them of the graph's state."""

GO_ON = "Go on from here."


class LLMNode(ConversationNode):
    """Asks `model` (the conversation's own by default) with the `tools` of these names (all by default).

    `system` are instructions under which this node speaks; `prompt` is said to the model where the turn is over and somebody
    must begin another; `answer` is the key of the state that gets the text of the answer, if you want it there.
    """

    def __init__(
        self,
        chats: Conversations,
        model: str | ProviderClient | None = None,
        *,
        system: str | None = None,
        prompt: Words | None = None,
        tools: Sequence[str] | None = None,
        answer: str = "",
    ) -> None:
        super().__init__(chats)
        self._model = model
        self._system = system
        self._prompt = prompt
        self._tools = tools
        self._answer = answer

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        stage = NodeStage(step.chat, step.place.node, self._model, self._system, self._tools)
        step.retract_what_was_interrupted()
        if not step.is_behind:
            self._check(step.chat.turn)
        if self._is_to_ask(step, stage):
            step.mark()
            with step.answering():
                await step.runner(stage).run()
        return {self._answer: _answer_of(step.chat.turn)} if self._answer else None

    def _check(self, turn: Turn) -> None:
        """Refuse to be where no model can be asked."""
        if turn.open_calls and not turn.has_failed:
            names = ", ".join(state.call.tool_name for state in turn.open_calls.values())
            raise GraphError(
                f"calls wait for their results ({names}), and the graph leads to the model: lead it to a ToolNode first "
                "(Conversations.has_calls), or to a HumanNode if a person must decide (Conversations.needs_person)"
            )
        if self._prompt is None and (turn.ended in BOUNDS or turn.ended == "max_hand_overs"):
            raise TurnOver(
                f"the turn has come to a bound ({turn.ended}) and the model gave its last answer; lead the graph to END when "
                "Conversations.has_calls is false, or let a person speak"
            )

    def _is_to_ask(self, step: GraphStep, stage: NodeStage) -> bool:
        """Whether the model must be asked; where the turn is over, begins another one."""
        turn = step.chat.turn
        if turn.needs_model or turn.has_failed:
            return True
        if step.is_behind:
            return False
        if turn.input is None and self._prompt is None:
            raise GraphError("nobody has asked anything yet: begin with Conversations.ask, an AskNode or a HumanNode")
        words = self._prompt(step.state) if callable(self._prompt) else self._prompt or GO_ON
        step.mark()
        step.hand_over(stage, ModelInputEntry.of(words, channel=CHANNEL))
        return True


def _answer_of(turn: Turn) -> str:
    return turn.output.response_markdown if turn.output is not None else ""
