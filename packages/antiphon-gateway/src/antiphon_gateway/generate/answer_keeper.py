"""`AnswerKeeper`: the answers of a request whose format looks them up by id: kept here, or remembered where they are.

The gateway keeps an answer where the upstream could not: it has another format, the client's connection may continue it, or it
continues what is stored here. An answer that the upstream stores under the id that the client gets is only remembered, with the
provider and the key that have it.

Of one that is streamed to its client the deltas are collected meanwhile, for requests that continue it.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.providers.routes import Target
from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.output import ModelOutput
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.generate.server_state import conversation_id
from antiphon_gateway.generate.targeted_request import TargetedRequest
from antiphon_gateway.runtime.body_fields import top_level_fields
from antiphon_gateway.state.answers import NO_EVENTS, StoredAnswer
from antiphon_gateway.state.continuing import FORMAT, previous_response_id, should_store
from antiphon_gateway.state.file import StateLimitReached
from antiphon_gateway.state.generated import WholeInteraction
from antiphon_gateway.threads import STATE

logger = logging.getLogger("antiphon.gateway")


class _Completed(Struct):
    response: msgspec.Raw


class _Answer(Struct):
    id: str = ""
    output: list[Any] = []


class AnswerKeeper:
    """Keeps the answer of one request."""

    def __init__(self, request: TargetedRequest) -> None:
        self._request = request
        self._assembler = Assembler()
        self._interaction = None if request.wire.name == FORMAT else WholeInteraction()

    async def prefer_storing_provider(self, targets: list[Target]) -> list[Target]:
        """The targets, first those of the provider that stored what the request continues."""
        asked = self._request
        if b'"previous_' not in asked.body:
            return targets
        known = await STATE.run(asked.services.answers.find, previous_response_id(asked.parsed_request), asked.key.name)
        if known is None or not known.provider:
            return targets
        asked.preferred = (known.provider, known.credential)
        return sorted(targets, key=lambda target: target.provider != known.provider)

    def keeps(self) -> bool:
        """Whether the answer is kept here for requests that continue it."""
        if not self._request.current.has_own_id:
            return False
        request = self._request.parsed_request
        return should_store(request) or self._request.connection is not None or bool(conversation_id(request))

    def remember_whole(self, body: bytes) -> None:
        """Remember which provider has a whole answer that was passed on."""
        if self._stores():
            self.remember(msgspec.json.decode(body, type=_Answer).id)

    def remember(self, answer_id: str) -> None:
        """Remember which provider has an answer, and which key gets it; if it stores it under the id that the client gets."""
        if answer_id and self._stores():
            asked, record = self._request, self._request.record
            credential = record.attempts[-1].credential if record.attempts else ""
            answer = StoredAnswer(
                answer_id, "upstream", provider=record.provider, credential=credential, model=asked.answer_model
            )
            asked.services.answers.remember(answer, asked.key.name)

    # A stream.

    def add(self, deltas: list[ModelOutputDelta], written: bytes) -> None:
        """More of the answer, and what the client gets of it."""
        for delta in deltas:
            self._assembler.add(delta)
        if self._interaction is not None:
            self._interaction.feed(written)

    @property
    def is_ending(self) -> bool:
        """Whether the answer has ended."""
        return self._assembler.is_finished

    async def keep_stream(self, last: bytes) -> None:
        """Keep the answer, if it is complete. `last` is the end of the stream, which the client gets next."""
        if not self.is_ending:
            return
        output = self._assembler.output
        if self._interaction is not None:
            await self.keep(output, self._interaction.encode(), last)
            return
        for event in SseReader().feed(last):
            if event.event in (b"response.completed", b"response.incomplete"):
                await self.keep(output, bytes(msgspec.json.decode(event.data, type=_Completed).response), last)

    async def keep(self, output: ModelOutput, body: bytes, last: bytes = b"") -> None:
        """Keep an answer where requests that continue it look for it; one in the background with its events, to the `last`."""
        asked = self._request
        services, owner, connection = asked.services, asked.key.name, asked.connection
        request, expanded = asked.parsed_request, asked.expanded
        try:
            seen = msgspec.json.decode(body, type=_Answer)
            if connection is not None and expanded is not None:
                connection.store(seen.id, request, expanded, output)
            if should_store(request):
                events = asked.background.unstored(last) if asked.background is not None else NO_EVENTS
                store = services.answers.store
                await STATE.run(store, seen.id, request, output, owner=owner, body=body, events=events)
            # a conversation that is still named is not ours
            if expanded is not None and not conversation_id(expanded) and (conversation := conversation_id(request)):
                items = [*_input_items(asked.body), *seen.output]
                await STATE.run(services.conversations.add, conversation, owner, items)
        except StateLimitReached as reached:
            logger.warning("the answer is not stored; requests that continue it will not find it: %s", reached)
        except (AntiphonError, msgspec.DecodeError):
            logger.exception("the answer could not be stored; requests that continue it will not find it")

    def _stores(self) -> bool:
        """Whether the provider stores the answer under the id that the client gets."""
        if self._request.current.has_own_id:
            return False
        body = self._request.body
        return b'"store"' not in body or bytes(top_level_fields(body).get("store", b"")).strip() != b"false"


def _input_items(body: bytes) -> list[Any]:
    """The items that a request adds to its conversation."""
    given = msgspec.json.decode(body).get("input")
    return given if isinstance(given, list) else [{"role": "user", "content": given}] if given else []
