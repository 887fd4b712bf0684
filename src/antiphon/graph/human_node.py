"""`HumanNode`: lets a person speak or decide, by LangGraph's own `interrupt` and `Command(resume=…)`.

If calls wait for a decision, the graph stops with `{"kind": "approval", "calls": […]}`, and what it is resumed with decides
them:

    "approve"  "deny"                                     all that wait
    {"call_1": "approve", "call_2": "deny"}               each by its id; what is not named goes on waiting
    {"decision": "deny", "reason": "too dear"}            the same in full, for all or for each
    {"decision": "edit", "arguments": {"to": "Oslo"}}     allowed with other arguments; for one call
    {"say": "Never mind, tell me about Bergen."}          something else: the calls are closed, and the talk goes on

Otherwise it stops with `{"kind": "input"}`, and is resumed with what the person says: text, parts, or a list of both. An answer
that cannot be understood stops the graph again, and the `problem` is told. Decisions and words are entries of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from antiphon.conversation import Decision, ToolLoop
from antiphon.conversation.message import message
from antiphon.errors import ConversationError, GraphError
from antiphon.graph.node import ConversationNode
from antiphon.graph.stage import NodeStage
from antiphon.graph.step import GraphStep
from antiphon.history import HumanDecisionEntry, ModelInputEntry
from antiphon.parts import ToolCallRequest

if TYPE_CHECKING:
    from antiphon.graph.conversations import Conversations


class HumanNode(ConversationNode):
    """Stops the graph until a person has spoken. `ask` is told to whoever shows the interrupt."""

    def __init__(self, chats: Conversations, ask: str = "") -> None:
        super().__init__(chats)
        self._ask = ask

    async def work(self, step: GraphStep) -> Mapping[str, Any] | None:
        from langgraph.types import interrupt

        loop = ToolLoop(step.chat)
        # What was decided before a crash is not asked for again, nor taken for something that was said.
        is_deciding = bool(loop.pending) or any(isinstance(entry, HumanDecisionEntry) for entry in step.done)
        problem = ""
        while True:
            answer = interrupt(self._question(step, loop.pending if is_deciding else None, problem))
            try:
                if is_deciding and not _says(answer):
                    decisions = _decisions(answer, loop.pending, step)
                    step.mark()
                    loop.decide(*decisions)
                else:
                    self._speak(step, answer)
            except (ConversationError, GraphError) as error:
                problem = str(error)
            else:
                return None

    def _question(self, step: GraphStep, waiting: Sequence[ToolCallRequest] | None, problem: str) -> dict[str, Any]:
        output = step.chat.turn.output
        question: dict[str, Any] = {
            "kind": "input" if waiting is None else "approval",
            "conversation": step.chat.id,
            "said": output.response_markdown if output is not None else "",
        }
        if waiting is not None:
            question["calls"] = [
                {"id": call.tool_call_id, "tool": call.tool_name, "arguments": call.arguments} for call in waiting
            ]
        if self._ask:
            question["ask"] = self._ask
        if problem:
            question["problem"] = problem
        return question

    def _speak(self, step: GraphStep, answer: Any) -> None:
        if any(isinstance(entry, ModelInputEntry) for entry in step.done):
            return
        content = answer["say"] if _says(answer) else answer
        entry = message("user", content if isinstance(content, list | tuple) else (content,))
        if not isinstance(entry, ModelInputEntry):
            raise GraphError(f"a person says text and parts, not a {type(entry).__name__}")
        step.mark()
        step.runner(NodeStage(step.chat, step.place.node)).start(entry)


def _says(answer: Any) -> bool:
    return isinstance(answer, Mapping) and set(answer) == {"say"}


def _decisions(answer: Any, waiting: Sequence[ToolCallRequest], step: GraphStep) -> list[Decision]:
    """What an answer decides, call by call."""
    if isinstance(answer, str) or (isinstance(answer, Mapping) and "decision" in answer):
        if len(waiting) > 1 and isinstance(answer, Mapping) and "arguments" in answer:
            raise GraphError("several calls wait; give each its own arguments, by its id")
        answer = {call.tool_call_id: answer for call in waiting}
    if not isinstance(answer, Mapping):
        raise GraphError(f"a decision is 'approve', 'deny' or a mapping of calls to decisions, not {answer!r}")
    decided = {entry.tool_call_id for entry in step.done if isinstance(entry, HumanDecisionEntry)}
    known = {call.tool_call_id for call in waiting}
    decisions: list[Decision] = []
    for call_id, said in answer.items():
        full = said if isinstance(said, Mapping) else {"decision": said}
        if call_id in decided:
            continue
        if call_id not in known:
            raise GraphError(f"call {call_id!r} is not pending approval; pending calls: {', '.join(known) or 'none'}")
        decisions.append(
            Decision(
                tool_call_id=call_id,
                decision=full.get("decision"),  # type: ignore[arg-type]  # `decide` checks it
                reason=str(full.get("reason", "")),
                arguments=full.get("arguments"),
            )
        )
    return decisions
