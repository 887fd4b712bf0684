"""`Gateway`: from a request to an answer: admission, rate limits, and the handler of the endpoint.

`admit` decides on the head alone, before a body is read: the endpoint exists, the address and the origin are allowed (without
keys only this machine is served, and no foreign web page), and the key is valid (compared in constant time; a wrong one gets no
details). Every error is answered in the format of the endpoint. One `Running` is taken on admission and used to the end,
whatever is reloaded meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any, Protocol

from msgspec import Struct

from antiphon import __version__
from antiphon.errors import InvalidModelName, UnknownResponse, WireError
from antiphon.gateway.access.client_keys import ClientKey, is_loopback
from antiphon.gateway.access.origin import host_problem, site_problem
from antiphon.gateway.access.rate_limits import RateLimits
from antiphon.gateway.config.loaded import Running
from antiphon.gateway.config.reload import Watcher
from antiphon.gateway.config.settings import Config
from antiphon.gateway.context import Asked, Services
from antiphon.gateway.endpoints.embeddings import embed
from antiphon.gateway.endpoints.handlers import SMALL
from antiphon.gateway.endpoints.operations import NOT_ADMIN, is_operator, readiness
from antiphon.gateway.endpoints.response_store import refusal
from antiphon.gateway.generate.charging import charged_tokens
from antiphon.gateway.generate.generation import Generation
from antiphon.gateway.http.errors import refused
from antiphon.gateway.http.messages import Answer, ClientRequest
from antiphon.gateway.observe.instruments import CONTENT_TYPE
from antiphon.gateway.observe.logs import tell
from antiphon.gateway.observe.recent import RequestRecord
from antiphon.gateway.observe.request_trace import Passage
from antiphon.gateway.observe.status import Reload, status_of
from antiphon.gateway.observe.status_page import status_answer
from antiphon.gateway.routes import Door, NoDoor, door_of, is_chat
from antiphon.wire.output import ProviderError

logger = logging.getLogger("antiphon.gateway")

_ANYBODY = ClientKey(name="")
_PROBES = frozenset({"health", "ready"})
_LOOPBACK_ONLY = "without client keys only this machine is served; add client_keys to the configuration"
_WRONG_KEY = ProviderError("the key is missing or not known here", "authentication", code="invalid_api_key")


class Answers(Protocol):
    """What a listener gives its requests to."""

    def admit(self, request: ClientRequest) -> Any:
        """Decide on a request without its body: an `Answer` that refuses it, or what `handle` is given with it."""

    async def handle(self, request: ClientRequest, admission: Any = None) -> Answer:
        """Answer a request. Without an admission it is admitted first."""


class Mounted(Answers, Protocol):
    """The chat, as far as the gateway knows it."""

    async def aclose(self, grace: float) -> None:
        """End what is under way, which gets `grace` seconds."""


class Admission(Struct, frozen=True):
    """A request that may be answered: the configuration it is answered by, its endpoint and its client.

    Requests to the chat have no `door`, but the chat's own admission.
    """

    running: Running
    door: Door | None
    key: ClientKey
    began: float
    chat: Any = None


class Gateway:
    """Answers requests by the configuration that is in force."""

    def __init__(self, running: Running, services: Services) -> None:
        self._running = running
        self._services = services
        self._began = datetime.now(UTC)
        self._watcher: Watcher | None = None
        self._chat: Mounted | None = None

    @property
    def running(self) -> Running:
        """What is in force."""
        return self._running

    def apply(self, config: Config) -> None:
        """Put another configuration in force. Requests under way finish on the one they began with."""
        self._running = Running(config, self._services.transport, previous=self._running, environ=self._running.environ)
        self._services.metrics.use_models(model.name for model in config.models)

    def watch(self, watcher: Watcher) -> None:
        """Tell `/status` how the file stands that `watcher` watches."""
        self._watcher = watcher

    @property
    def limits(self) -> RateLimits:
        """How much each client has used."""
        return self._services.limits

    def see(self) -> None:
        """Tell the metrics how things stand now."""
        services = self._services
        services.metrics.see_credentials(self._running.credentials)
        if services.shared is not None:
            services.metrics.see_shared(is_away=services.shared.store.is_away)

    def mount(self, chat: Mounted) -> None:
        """Let the chat answer what is the chat's, on the main port."""
        self._chat = chat

    def admit(self, request: ClientRequest) -> Admission | Answer:
        """Decide on a request without its body."""
        running, began = self._running, time.monotonic()
        door = door_of(request.method, request.path, request.headers)
        if isinstance(door, NoDoor):
            if self._chat is not None and request.door == "main" and is_chat(request.path):
                verdict = self._chat.admit(request)
                return verdict if isinstance(verdict, Answer) else Admission(running, None, _ANYBODY, began, verdict)
            return self._nowhere(request, door)
        key = self._presented(running, request, door)
        if isinstance(key, ClientKey):
            return Admission(running, door, key, began)
        self._count(door, key, "", began)
        return key

    async def handle(self, request: ClientRequest, admission: Any = None) -> Answer:
        """Answer a request."""
        admission = admission or self.admit(request)
        if isinstance(admission, Answer):
            return admission
        running, door, key = admission.running, admission.door, admission.key
        if door is None:
            assert self._chat is not None
            # a task, because the chat may need more than an errand can do
            return await asyncio.create_task(self._chat.handle(request, admission.chat))
        action = door.action
        if action == "health":
            return Answer.json({"status": "ok", "version": __version__})
        if action == "ready":
            known = self._known_key(running, request)
            return readiness(running, has_details=is_operator(running.keys, known, request.peer))
        limited = await self._within_limits(key, door) if key.is_limited else None
        if limited is not None:
            self._count(door, limited, "", admission.began)
            return limited
        if action in ("metrics", "status") and not is_operator(running.keys, key, request.peer):
            answer = refused(door.format, NOT_ADMIN)
            self._count(door, answer, "", admission.began)
            return answer
        if action == "metrics":
            self.see()
            return Answer(headers={"content-type": CONTENT_TYPE}, body=self._services.metrics.render())
        if action == "status":
            return self._status(running, request)
        asked = Asked(running, self._services, request, door, key)
        try:
            if action == "generate":
                return await Generation(asked, self._seen).answer()  # which is counted on its way
            if action == "embed":
                return await embed(asked, self._seen)
            answer = await SMALL[action](asked)
        except Exception as error:
            answer = self._failed(error, asked)
            if action in ("generate", "embed"):
                return answer
        self._count(door, answer, key.name, admission.began)
        return answer

    def _count(self, door: Door, answer: Answer, key_name: str, began: float) -> None:
        self._services.metrics.request(
            client_format=door.format, status=answer.status, seconds=time.monotonic() - began, key_name=key_name
        )

    def _failed(self, error: Exception, asked: Asked) -> Answer:
        """What went wrong in answering, told in the client's format."""
        if isinstance(error, WireError):
            return refused(asked.door.format, ProviderError(str(error), "invalid_request"))
        if isinstance(error, InvalidModelName):
            return refused(asked.door.format, ProviderError(str(error), "invalid_request", param="model"))
        if isinstance(error, UnknownResponse):
            return refused(asked.door.format, refusal(error), status=error.status)
        logger.error("internal error while handling a request", exc_info=error)
        message = f"internal error; see the log for request {asked.request.request_id}"
        return refused(asked.door.format, ProviderError(message, "server"), status=500)

    def _presented(self, running: Running, request: ClientRequest, door: Door) -> ClientKey | Answer:
        """Whose request it is, or why it is not answered."""
        keys, headers = running.keys, request.headers
        needs_no_key = door.action in _PROBES
        if keys.is_open:
            problem = site_problem(headers, running.origin_rules)
            if not problem and not needs_no_key:  # probes ask from other machines, by any name
                problem = (
                    _LOOPBACK_ONLY if not is_loopback(request.peer) else host_problem(headers, running.origin_rules)
                )
            return refused(door.format, ProviderError(problem, "permission")) if problem else _ANYBODY
        if needs_no_key:
            return _ANYBODY
        key = self._known_key(running, request)
        return refused(door.format, _WRONG_KEY) if key is None else key

    def _known_key(self, running: Running, request: ClientRequest) -> ClientKey | None:
        """The client whose key was presented, in whichever place clients put it."""
        headers = request.headers
        return running.keys.check(
            headers.get("authorization"),
            headers.get("x-api-key"),
            headers.get("x-goog-api-key"),
            request.query.get("key"),
        )

    async def _within_limits(self, key: ClientKey, door: Door) -> Answer | None:
        """When to ask again, for a key that has used up its limit."""
        wait = await self._services.limits.admitted(key)
        if wait is None:
            return None
        error = ProviderError("this key has used up its limit for now", "rate_limit", retry_after=wait)
        return refused(door.format, error)

    def _nowhere(self, request: ClientRequest, door: NoDoor) -> Answer:
        if door.allowed:
            error = ProviderError(f"{request.path} takes {', '.join(door.allowed)}, not {request.method}", "not_found")
            return refused("", error, status=405, headers={"allow": ", ".join(door.allowed)})
        error = ProviderError(
            f"there is nothing at {request.path[:200]}; see /v1/models and /status", "not_found", code="not_found"
        )
        return refused("", error)

    def _status(self, running: Running, request: ClientRequest) -> Answer:
        status = status_of(
            version=__version__,
            started=self._began,
            now=datetime.now(UTC),
            seen=self._services.recent.seen(),
            credentials=running.credentials,
            models={model.name: model.targets for model in running.config.models},
            config_file=self._watcher.status.path if self._watcher is not None else "",
            reload=_last_reload(self._watcher),
            shared=self._services.shared.status if self._services.shared is not None else None,
        )
        return status_answer(status, request.headers, request.query)

    def _seen(self, passage: Passage, asked: Asked) -> None:
        services = self._services
        seconds, overhead = passage.seconds, passage.overhead
        services.metrics.request(
            client_format=passage.client_format,
            upstream_format=passage.upstream_format,
            model=passage.asked,
            provider=passage.provider,
            status=passage.status,
            seconds=seconds,
            first_token_seconds=None if passage.first_token is None else passage.first_token - passage.began,
            overhead_seconds=overhead,
            usage=passage.usage,
            repairs=passage.repairs,
            losses=passage.losses,
            attempts=passage.attempts,
            key_name=passage.key,
            streamed=passage.streams,
        )
        services.recent.add(RequestRecord.of(passage))
        services.spans.record(passage, asked.request.headers)
        if asked.key.is_limited:
            services.limits.spend(asked.key, charged_tokens(passage))
        self._log(passage, seconds, overhead)

    def _log(self, passage: Passage, seconds: float, overhead: float) -> None:
        level = logging.INFO if passage.status < 500 and passage.error is None else logging.WARNING
        if not logger.isEnabledFor(level):
            return
        repairs = f", {len(passage.repairs)} repairs" if passage.repairs else ""
        losses = f", {len(passage.losses)} losses" if passage.losses else ""
        error = f": {passage.error.message}" if passage.error else ""
        tell(
            logger,
            level,
            f"{passage.client_format} {passage.asked} -> {passage.provider}/{passage.model} {passage.status}"
            f" in {seconds:.3f} s{repairs}{losses}{error}",
            {
                "request_id": passage.request_id,
                "key": passage.key,
                "overhead_ms": round(overhead * 1000, 3),
                "repairs": list(map(str, passage.repairs)),
                "losses": list(map(str, passage.losses)),
            },
        )


def _last_reload(watcher: Watcher | None) -> Reload | None:
    status = watcher.status if watcher is not None else None
    if status is None:
        return None
    if status.refusal and status.refused_at is not None:
        return Reload(time=status.refused_at, is_applied=False, problems=tuple(status.refusal.splitlines()))
    return Reload(time=status.applied_at, is_applied=True) if status.applied_at is not None else None
