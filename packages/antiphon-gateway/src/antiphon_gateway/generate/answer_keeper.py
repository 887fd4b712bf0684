"""`AnswerKeeper`: the answers of a request whose format looks them up by id: kept here, or remembered where they are.

The gateway keeps an answer where the upstream could not: it has another format, the client's connection may continue it, or it
continues what is stored here. An answer that the upstream stores under the id that the client gets is only remembered, with the
provider and the key that have it.

One that is streamed to its client is recorded meanwhile (`AnswerRecording`) as the object that requests which continue it need.
`WholeAnswer` assembles the object of a format from a stream of it; an answer in the background is shown by it while it grows.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.providers.routes import Target
from antiphon.wire import Format
from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.output import ModelOutput
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.generate.preparer import PreparedRequest, Preparer
from antiphon_gateway.generate.server_state import conversation_id
from antiphon_gateway.runtime.body_fields import top_level_fields
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.state.answers import StoredAnswer
from antiphon_gateway.state.continuing import previous_response_id, should_store
from antiphon_gateway.state.file import StateLimitReached
from antiphon_gateway.threads import STATE

logger = logging.getLogger("antiphon.gateway")


class WholeAnswer:
    """Assembles the answer that a stream of a format carries."""

    def __init__(self, wire: Format) -> None:
        self._wire = wire
        self._reader = wire.stream_reader()
        self._assembler = Assembler()

    def feed(self, data: bytes) -> bool:
        """Read more of the stream. Returns whether the answer is complete."""
        for delta in self._reader.feed(data):
            self._assembler.add(delta)
        return self._assembler.is_finished

    def encode(self) -> bytes:
        """The answer so far as an object of the format."""
        return self._wire.encode_response(self._assembler.output).data


class _Completed(Struct):
    response: msgspec.Raw


class AnswerRecording:
    """`output` is the whole answer, `body` the object that a client gets of it later.

    The last event of a Responses stream has the object. Where it does not (Interactions), the client's own stream is read.
    """

    def __init__(self, wire: Format) -> None:
        self.body = b""
        self._whole = None if wire.name == "openai-responses" else WholeAnswer(wire)
        self._assembler = Assembler()

    @property
    def output(self) -> ModelOutput:
        """The answer."""
        return self._assembler.output

    def add(self, deltas: list[ModelOutputDelta], written: bytes) -> None:
        """More of the answer, and what the client got of it."""
        for delta in deltas:
            self._assembler.add(delta)
        if self._whole is not None:
            if written and self._whole.feed(written):
                self.body = self._whole.encode()
        elif b"response.completed" in written or b"response.incomplete" in written:
            for event in SseReader().feed(written):
                if event.event in (b"response.completed", b"response.incomplete"):
                    self.body = bytes(msgspec.json.decode(event.data, type=_Completed).response)


class _Answer(Struct):
    id: str = ""
    output: list[Any] = []


class AnswerKeeper:
    """Keeps the answers of one request."""

    def __init__(self, metered: MeteredRequest, preparer: Preparer) -> None:
        self._services = metered.services
        self._owner = metered.key.name
        self._connection = metered.connection
        self._record = metered.record
        self._preparer = preparer
        self._is_stored_upstream: bool | None = None

    async def prefer_storing_provider(self, targets: list[Target]) -> list[Target]:
        """The targets, first those of the provider that stored what the request continues."""
        if b'"previous_' not in self._preparer.body:
            return targets
        previous = previous_response_id(self._preparer.parsed_request)
        known = await STATE.run(self._services.answers.find, previous, self._owner)
        if known is None or not known.provider:
            return targets
        self._preparer.preferred = (known.provider, known.credential)
        return sorted(targets, key=lambda target: target.provider != known.provider)

    def keeps(self, prepared: PreparedRequest) -> bool:
        """Whether the answer is kept here for requests that continue it."""
        return prepared.keeps_answer or (not prepared.same_format and should_store(self._preparer.parsed_request))

    def remember_whole(self, body: bytes, prepared: PreparedRequest, model: str) -> None:
        """Remember which provider has a whole answer that was passed on."""
        if self._stores(prepared):
            self.remember(msgspec.json.decode(body, type=_Answer).id, prepared, model)

    def remember(self, answer_id: str, prepared: PreparedRequest, model: str) -> None:
        """Remember which provider has an answer, and which key gets it; if it stores it under the id that the client gets."""
        if answer_id and self._stores(prepared):
            attempts = self._record.attempts
            provider, credential = self._record.provider, attempts[-1].credential if attempts else ""
            answer = StoredAnswer(answer_id, "upstream", provider=provider, credential=credential, model=model)
            self._services.answers.remember(answer, self._owner)

    async def keep(self, output: ModelOutput, body: bytes, input_items: list[Any] | None = None) -> None:
        """Keep an answer where requests that continue it look for it."""
        services, owner, conversation = self._services, self._owner, self._local_conversation()
        request, expanded = self._preparer.parsed_request, self._preparer.expanded
        try:
            seen = msgspec.json.decode(body, type=_Answer)
            if self._connection is not None and expanded is not None:
                self._connection.store(seen.id, request, expanded, output)
            if should_store(request):
                await STATE.run(services.answers.store, seen.id, request, output, owner=owner, body=body)
            if conversation:
                items = [*(self.input_items() if input_items is None else input_items), *seen.output]
                await STATE.run(services.conversations.add, conversation, owner, items)
        except StateLimitReached as reached:
            logger.warning("the answer is not stored; requests that continue it will not find it: %s", reached)
        except (AntiphonError, msgspec.DecodeError):
            logger.exception("the answer could not be stored; requests that continue it will not find it")

    def input_items(self) -> list[Any]:
        """The items that the request adds to its conversation."""
        if not self._local_conversation():
            return []
        given = msgspec.json.decode(self._preparer.body).get("input")
        return given if isinstance(given, list) else [{"role": "user", "content": given}] if given else []

    def _local_conversation(self) -> str:
        """The conversation of the request, if the gateway has it; empty otherwise."""
        expanded = self._preparer.expanded
        if expanded is None or conversation_id(expanded):
            return ""
        return conversation_id(self._preparer.parsed_request)

    def _stores(self, prepared: PreparedRequest) -> bool:
        """Whether the provider stores the answer under the id that the client gets."""
        if prepared.keeps_answer or not prepared.same_format:
            return False
        body = self._preparer.body
        return b'"store"' not in body or bytes(top_level_fields(body).get("store", b"")).strip() != b"false"
