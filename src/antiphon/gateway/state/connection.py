"""`ConnectionAnswers`: the answers of one WebSocket connection, for clients that continue what they asked not to store.

Only the latest are kept, in memory, and they end with the connection. An answer whose continuation failed is dropped, as the Open
Responses standard asks: the client then sends the whole conversation again.
"""

from __future__ import annotations

from antiphon.gateway.state.store import continue_from, own_messages, previous_response_id
from antiphon.parts import ToolCallRequest
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest

MAX_ANSWERS = 32
"""Enough for several lanes that continue their own last answer."""


class ConnectionAnswers:
    """The latest answers of a connection, by id: all messages up to and including each of them."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[Message, ...]] = {}

    def __contains__(self, answer_id: str) -> bool:
        return answer_id in self._answers

    def expand(self, request: ModelRequest) -> ModelRequest | None:
        """The request with the answer that it continues; None if that is not here."""
        earlier = self._answers.get(previous_response_id(request))
        return None if earlier is None else continue_from(request, earlier)

    def store(self, answer_id: str, expanded: ModelRequest, output: ModelOutput) -> None:
        """Keep an answer to a request that contains all earlier messages."""
        answer = (Message("assistant", output.parts),) if output.parts else ()
        self._answers[answer_id] = (*own_messages(expanded), *answer)
        while len(self._answers) > MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def has_call(self, answer_id: str, call_id: str) -> bool:
        """Whether a call with that id was made up to an answer."""
        return any(
            isinstance(part, ToolCallRequest) and part.tool_call_id == call_id
            for message in self._answers[answer_id]
            for part in message.parts
        )

    def drop(self, answer_id: str) -> None:
        """Forget an answer."""
        self._answers.pop(answer_id, None)
