"""`ConnectionAnswers`: the answers of one WebSocket connection, for clients that continue what they asked not to store.

Only the latest are kept, in memory, and they end with the connection. Each holds the bytes (`Governor`) that it adds to the one
that it continues. An answer whose continuation failed is dropped, as the Open Responses standard asks: the client then sends the
whole conversation again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antiphon.errors import UnknownResponse
from antiphon.http.body import Hold
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.state.continuing import continue_from, own_messages, previous_response_id

MAX_ANSWERS = 32
"""Enough for several lanes that continue their own last answer."""


class _Answer:
    """All messages up to and including an answer. `hold` counts those that it adds to `earlier`."""

    def __init__(self, messages: tuple[Message, ...], hold: Hold, earlier: _Answer | None) -> None:
        self.messages = messages
        self.hold = hold
        self.earlier = earlier
        self.users = 1
        if earlier is not None:
            earlier.users += 1


class ConnectionAnswers:
    """The latest answers of a connection, by id. `new_hold` makes what counts an answer."""

    def __init__(self, new_hold: Callable[[], Hold]) -> None:
        self._new_hold = new_hold
        self._answers: dict[str, _Answer] = {}
        self._is_closed = False

    def __contains__(self, answer_id: str) -> bool:
        return answer_id in self._answers

    def expand(self, request: ModelRequest) -> ModelRequest | None:
        """The request with the answer that it continues; None if that is not here."""
        earlier = self._answers.get(previous_response_id(request))
        return None if earlier is None else continue_from(request, earlier.messages)

    def store(self, answer_id: str, request: ModelRequest, expanded: ModelRequest, output: ModelOutput) -> str:
        """Keep an answer. `expanded` is the request with all earlier messages.

        Returns why it is not kept, if too many bytes wait; else an empty text.
        """
        if self._is_closed:
            return ""
        answer = (Message("assistant", output.parts),) if output.parts else ()
        messages = (*own_messages(expanded), *answer)
        earlier = self._answers.get(previous_response_id(request))
        hold = self._new_hold()
        refusal = hold.grow(len(msgspec.json.encode(messages[len(earlier.messages) if earlier is not None else 0 :])))
        if refusal:
            return refusal
        self.drop(answer_id)
        self._answers[answer_id] = _Answer(messages, hold, earlier)
        while len(self._answers) > MAX_ANSWERS:
            self.drop(next(iter(self._answers)))
        return ""

    def check_results(self, request: ModelRequest) -> None:
        """Raises `UnknownResponse` for a result without its call, in a request that continues one of the answers.

        All messages before it are here, so the client continues the wrong answer: nothing is there to be repaired.
        """
        earlier = self._answers.get(previous_response_id(request))
        if earlier is None:
            return
        parts = [part for message in request.messages for part in message.parts]
        known = [*parts, *(part for message in earlier.messages for part in message.parts)]
        calls = {part.tool_call_id for part in known if isinstance(part, ToolCallRequest)}
        for part in parts:
            if isinstance(part, ToolCallResult) and part.tool_call_id not in calls:
                message = f"No tool call found for function call output with call_id {part.tool_call_id}."
                raise UnknownResponse(message, status=400, param="input")

    def drop(self, answer_id: str) -> None:
        """Forget an answer; what others add to it stays counted."""
        answer = self._answers.pop(answer_id, None)
        while answer is not None:
            answer.users -= 1
            if answer.users:
                return
            answer.hold.release()
            answer = answer.earlier

    def close(self) -> None:
        """Forget all: the client left."""
        self._is_closed = True
        for answer_id in list(self._answers):
            self.drop(answer_id)
