"""`POST /v1/responses/compact`: a conversation as its user messages and one `compaction` item, for any model.

The model of the request writes a summary, which the item carries (`state.compactions`). Every provider is asked in the same way,
also one that has the endpoint: an item of its own could be read by no other model.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.http.messages import Response
from antiphon.ids import new_id
from antiphon.parts import Text, TokenUsage, ToolCallResult, text_of
from antiphon.wire import formats
from antiphon.wire.openai_responses.response import write_usage
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.generate.generation import Generation
from antiphon_gateway.generate.server_state import expand_state
from antiphon_gateway.state.continuing import FORMAT, encode_summary, own_messages
from antiphon_gateway.state.conversations import complete_item
from antiphon_gateway.threads import STATE

INSTRUCTION = (
    "Write a summary of the conversation so far, for an assistant that continues it without having seen it. Keep every fact,"
    " decision, name, number, open question and next step; state what was done and what is left to do. Write only the summary."
)
_wire = formats[FORMAT]
_NO_USAGE = TokenUsage()


class _Answer(Struct):
    usage: Any = None


class Compaction(Generation):
    """One conversation to be compacted: a generation of its summary."""

    async def answer(self) -> Response:
        """The compaction. Raises `UnknownResponse` and `WireError`."""
        request = _wire.read_request(self.request.body)
        if not request.model:
            return self.refuse(ProviderError("the request has no model", "invalid_request", param="model"))
        expanded = await STATE.run(expand_state, self, request)
        if not own_messages(expanded):
            return self.refuse(ProviderError("input: there is nothing to compact", "invalid_request", param="input"))
        asked = structs.replace(
            expanded,
            messages=(*expanded.messages, Message("user", (Text(INSTRUCTION),))),
            tools=(),
            tool_choice=None,
            store=False,
            stream=False,
        )
        self.request.body = _wire.encode_request(asked).data
        answer = await super().answer()
        if answer.status != 200 or not isinstance(answer.body, bytes):
            return answer
        return Response.json(_write_compaction(expanded, answer.body))


def _write_compaction(request: ModelRequest, answer: bytes) -> dict[str, Any]:
    summary = text_of(_wire.read_response(answer).parts)
    users = tuple(message for message in own_messages(request) if _is_from_user(message))
    items = _wire.write_request(ModelRequest(messages=users)).body["input"] if users else []
    compaction = {"type": "compaction", "id": f"cmp_{new_id()}", "encrypted_content": encode_summary(summary)}
    usage = msgspec.json.decode(answer, type=_Answer).usage or write_usage(_NO_USAGE)
    return {
        "id": f"resp_{new_id()}",
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*map(complete_item, items), compaction],
        "usage": usage,
    }


def _is_from_user(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(part, ToolCallResult) for part in message.parts)
