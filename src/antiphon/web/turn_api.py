"""Turns: said, stopped, gone on with, decided about, and watched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from antiphon.conversation import Decision
from antiphon.errors import AntiphonError
from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.access.rate_limits import RateLimits
from antiphon.gateway.http.messages import Answer
from antiphon.parts import InputPart
from antiphon.web.asked import Asked, number_of
from antiphon.web.conversations import LiveConversations
from antiphon.web.live_conversation import LiveConversation
from antiphon.web.models import ChatModels
from antiphon.web.refusal import Refused
from antiphon.web.uploads import Given, PartGiven, parts_of

MOST_RUNNING = 64
"""How many turns are played at once."""

_RUNNING = "a turn is being played; wait for its end, stop it, or send interrupt: true to speak over it"


class ModelChoice:
    """Which models a client may name, and whether its limits let it ask now."""

    def __init__(self, models: Callable[[], ChatModels], limits: RateLimits) -> None:
        self._models = models
        self._limits = limits

    @property
    def default(self) -> str:
        """The model that is asked when nobody chose one."""
        return self._models().choice.model

    def is_available(self, model: str) -> bool:
        """Whether a model of that name is known and its provider has what it needs, such as a key."""
        models = self._models()
        try:
            models.check(model)
            models.router.client(models.router.resolve(model)[0].provider)
        except AntiphonError:
            return False
        return True

    def names(self, key: ClientKey) -> tuple[str, ...]:
        """The models on the menu."""
        return tuple(name for name in self._models().names if key.may_use(name))

    def check(self, model: str, key: ClientKey) -> None:
        """Raise if this client cannot have that model."""
        self._models().check(model)
        if not key.may_use(model):
            raise Refused(f"this key may not use {model}", 403, "forbidden")

    async def admit(self, model: str, key: ClientKey) -> None:
        """Count a request to a model; raise if this client cannot have the model, or has to wait."""
        self.check(model, key)
        wait = await self._limits.admitted(key)
        if wait is not None:
            raise Refused("this key has used up its limit for now", 429, "rate_limit", retry_after=str(math.ceil(wait)))


class TurnAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says."""

    content: list[Given]
    model: str = ""
    interrupt: bool = False


class DecisionAsked(Decision, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided on a call, as the page sends it."""


class TurnApi:
    """Answers what is asked about turns. `stream_seconds` is how long a stream of events is kept open."""

    def __init__(
        self,
        conversations: LiveConversations,
        models: ModelChoice,
        stream_seconds: Callable[[], float],
        most_running: int = MOST_RUNNING,
    ) -> None:
        self._conversations = conversations
        self._models = models
        self._stream_seconds = stream_seconds
        self._most_running = most_running

    async def say(self, asked: Asked) -> Answer:
        """Begin a turn."""
        said = asked.read(TurnAsked)
        live = await self._opened(asked)
        if live.is_running and not said.interrupt:
            raise Refused(_RUNNING, 409, "running")
        parts = parts_of(said.content, await self._known(said.content, asked))
        self._check_room(live)
        await self._models.admit(said.model or live.chat.model or self._models.default, asked.key)
        async with live.writing:
            await live.interrupt()
            if said.model:
                await live.choose(said.model)
            return Answer.json({"turn": await live.begin(*parts)}, 202)

    async def resume(self, asked: Asked) -> Answer:
        """Go on with a turn that stopped."""
        live = await self._opened(asked)
        self._check_room(live)
        await self._models.admit(live.chat.model or self._models.default, asked.key)
        async with live.writing:
            if live.is_running:
                raise Refused(_RUNNING, 409, "running")
            return Answer.json({"turn": await live.begin()}, 202)

    async def interrupt(self, asked: Asked) -> Answer:
        """Stop the turn."""
        live = await self._opened(asked)
        return Answer.json({"interrupted": await live.interrupt()})

    async def decide(self, asked: Asked) -> Answer:
        """Allow a call, deny it, or change its arguments. Once all are decided, the turn goes on."""
        live, decision = await self._opened(asked), asked.read(DecisionAsked)
        async with live.writing:
            if live.is_running:
                raise Refused("no call waits for a decision: a turn is being played", 409, "running")
            if [call.tool_call_id for call in live.pending] == [decision.tool_call_id]:  # the turn continues after it
                await self._models.admit(live.chat.model or self._models.default, asked.key)
            await live.apart(lambda: live.loop.decide(decision))
            live.tell_entries()
            pending = live.pending
            if not pending:
                await live.begin()
        return Answer.json({"pending": pending, "running": live.is_running})

    async def events(self, asked: Asked) -> Answer:
        """What happens, as it happens."""
        live = await self._opened(asked)
        after: int | None = asked.number("after")
        if (last := asked.request.headers.get("last-event-id", "").strip()) and after is None:
            after = number_of(last, "Last-Event-ID")
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "x-accel-buffering": "no",  # a proxy in between must not collect them
        }
        return Answer(headers=headers, body=live.watch(after, self._stream_seconds()))

    async def _opened(self, asked: Asked) -> LiveConversation:
        return await self._conversations.open(asked.id, asked.owner)

    async def _known(self, content: Sequence[Given], asked: Asked) -> dict[PartGiven, InputPart]:
        """The parts that were sent before, from conversations that are this client's own."""
        known: dict[PartGiven, InputPart] = {}
        for given in content:
            if isinstance(given, PartGiven):
                live = await self._conversations.open(given.conversation, asked.owner)
                known[given] = given.of(live.chat.history.entries)
        return known

    def _check_room(self, live: LiveConversation) -> None:
        if not live.is_running and self._conversations.running >= self._most_running:
            raise Refused(f"{self._most_running} turns are being played already; try again soon", 503, "busy")
