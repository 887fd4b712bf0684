"""`ChatApp`: from a request to an answer: the page, its files, and the API behind `/chat/api/`.

In order: may somebody at that address be served (`Admission`), what do they ask for, whose key is it, did our own page ask. All
that comes from the store is sent as JSON, never as markup: what is shown is the page's business, and the page builds it of text.
Every answer forbids a browser to guess its type, to frame it, and to tell others where it came from.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from antiphon import __version__
from antiphon.conversation import Conversation
from antiphon.errors import AntiphonError
from antiphon.gateway.access.client_keys import ClientKey, ClientKeys
from antiphon.gateway.access.origin import OriginRules
from antiphon.gateway.access.rate_limits import RateLimits
from antiphon.gateway.config.settings import Config
from antiphon.gateway.http.messages import Answer, ClientRequest
from antiphon.history import AgentHistory, HistoryStore
from antiphon.tools.tool import ask_before_changes
from antiphon.web.admission import API, READING, Admission
from antiphon.web.asked import Asked
from antiphon.web.conversation_api import ConversationApi
from antiphon.web.conversations import LiveConversations
from antiphon.web.models import ChatModels, CurrentModels, MeteredModels
from antiphon.web.page_files import PageFiles
from antiphon.web.plan_api import PlanApi
from antiphon.web.refusal import Refused, refusal
from antiphon.web.toolbox import Toolboxes
from antiphon.web.turn_api import MOST_RUNNING, ModelChoice, TurnApi

logger = logging.getLogger("antiphon.web")

Handler: TypeAlias = Callable[[Asked], Awaitable[Answer]]

STREAM_SECONDS = 600.0
_PAGE = "/chat/page/"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_API_HEADERS = {"cache-control": "no-store", "content-security-policy": "default-src 'none'; frame-ancestors 'none'"}


class ChatApp:
    """The chat over a store of conversations.

    `models` says who can be talked to, now; `toolboxes` have the tools; `keys` are the clients' keys in force, without which only
    this machine is served, under the names that `rules` allow; `limits` count what each key uses. `system` is the system
    instruction of new conversations, `token_limit` where compaction is asked for. With `asks`, every call of a tool that changes
    something needs approval. The caller closes what it gives, `toolboxes` apart.
    """

    def __init__(
        self,
        store: HistoryStore,
        models: Callable[[], ChatModels],
        toolboxes: Toolboxes,
        *,
        keys: Callable[[], ClientKeys] = lambda: ClientKeys(Config()),
        rules: Callable[[], OriginRules] = OriginRules,
        limits: RateLimits | None = None,
        system: str = "",
        token_limit: int | None = None,
        asks: bool = False,
        stream_seconds: Callable[[], float] = lambda: STREAM_SECONDS,
        most_running: int = MOST_RUNNING,
        page: PageFiles | None = None,
    ) -> None:
        self._models = models
        self._limits = limits or RateLimits()
        self._choice = ModelChoice(models, self._limits)
        self._keys = keys
        self._toolboxes = toolboxes
        self._admission = Admission(keys, rules)
        self._token_limit = token_limit
        self._asks = asks
        self._page = page or PageFiles()
        self._is_closing = False
        self._provider = CurrentModels(models)
        self.conversations = LiveConversations(store, self._put_to_work)
        conversation = ConversationApi(self.conversations, self._choice, system)
        turn = TurnApi(self.conversations, self._choice, stream_seconds, most_running)
        plan = PlanApi(toolboxes)
        one = r"/conversations/(?P<id>[^/]+)"
        self._doors: list[tuple[re.Pattern[str], Mapping[str, Handler]]] = [
            (re.compile(path), handlers)
            for path, handlers in {
                "/state": {"GET": self._state},
                "/conversations": {"GET": conversation.list, "POST": conversation.create},
                one: {"GET": conversation.show, "PATCH": conversation.change, "DELETE": conversation.delete},
                f"{one}/turns": {"POST": turn.say},
                f"{one}/resume": {"POST": turn.resume},
                f"{one}/interrupt": {"POST": turn.interrupt},
                f"{one}/decisions": {"POST": turn.decide},
                f"{one}/events": {"GET": turn.events},
                f"{one}/fork": {"POST": conversation.fork},
                f"{one}/rollback": {"POST": conversation.roll_back},
                f"{one}/compact": {"POST": conversation.compact},
                f"{one}/timeline": {"GET": conversation.timeline},
                f"{one}/rendered": {"GET": conversation.rendered},
                f"{one}/export": {"GET": conversation.export},
                f"{one}/media/(?P<name>[^/]+)": {"GET": conversation.media},
                "/plans": {"GET": plan.list},
                r"/plans/(?P<id>[^/]+)": {"GET": plan.show, "PATCH": plan.change, "DELETE": plan.delete},
            }.items()
        ]

    def admit(self, request: ClientRequest) -> ClientKey | Answer:
        """Whose request it is, decided without its body."""
        return admit(self._admission, request)

    async def handle(self, request: ClientRequest, admission: ClientKey | None = None) -> Answer:
        """Answer a request."""
        key = admission or self.admit(request)
        if isinstance(key, Answer):
            return key
        try:
            is_api = request.path.startswith(API)
            answer = await self._called(request, key) if is_api else self._shown(request)
        except AntiphonError as error:
            answer = refusal(error)
        except Exception:
            logger.exception("a request failed inside the chat")
            answer = refusal(Refused(f"the chat failed; its log says more under {request.request_id}", 500, "failed"))
        return _protected(request, answer)

    async def aclose(self, grace: float = 0.0) -> None:
        """Let the watchers go and end the turns, which get `grace` seconds; let go of the tools."""
        self._is_closing = True
        await self.conversations.aclose(grace)
        await self._toolboxes.aclose()

    def _shown(self, request: ClientRequest) -> Answer:
        """The page and its files, which are nobody's secret."""
        if request.method not in READING:
            raise Refused(f"{request.path[:200]} takes GET, not {request.method}", 405, "method", allow="GET")
        if request.path in ("/", "/chat"):
            return Answer(status=302, headers={"location": "/chat/"})
        if request.path == "/chat/":
            return self._page.answer(request, "index.html")
        if request.path.startswith(_PAGE):
            return self._page.answer(request, request.path.removeprefix(_PAGE))
        raise Refused(f"there is nothing at {request.path[:200]}; the chat is at /chat/", 404, "not_found")

    async def _called(self, request: ClientRequest, key: ClientKey) -> Answer:
        if self._is_closing:  # a page that was let go of comes back at once
            raise Refused("the chat is stopping; come back when it is up again", 503, "stopping")
        path = "/" + request.path.removeprefix(API)
        for pattern, handlers in self._doors:
            if found := pattern.fullmatch(path):
                handler = handlers.get(request.method)
                if handler is None:
                    told = ", ".join(handlers)
                    raise Refused(f"{request.path[:200]} takes {told}, not {request.method}", 405, "method", allow=told)
                return await handler(Asked(request, key, **found.groupdict()))
        raise Refused(f"there is nothing at {request.path[:200]}", 404, "not_found")

    async def _state(self, asked: Asked) -> Answer:
        """What there is: the model that is taken, the others, the tools."""
        models, registry = self._models(), self._toolboxes.of(asked.owner).registry
        await registry.open()
        tools = [tool for name in registry.names if (tool := registry.get(name)) is not None]
        choice = models.choice
        return Answer.json(
            {
                "version": __version__,
                "choice": {"model": choice.model, "what": choice.what, "how": choice.how},
                "models": self._choice.names(asked.key),
                "tools": [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "effect": tool.effect,
                        "needs_approval": bool(tool.needs_approval) or (self._asks and tool.effect != "read"),
                    }
                    for tool in tools
                ],
                "token_limit": self._token_limit,
                "has_keys": self._admission.needs_key,
            }
        )

    def _put_to_work(self, history: AgentHistory, owner: str) -> Conversation:
        registry = self._toolboxes.of(owner).registry
        chat = Conversation(
            self._choice.default,
            provider=MeteredModels(self._provider, lambda tokens: self._charge(owner, tokens)),
            tools=registry,
            history=history,
            token_limit=self._token_limit,
            approval=ask_before_changes if self._asks else None,
        )
        # A conversation from a terminal or a program continues with the model it was with, as in the terminal.
        if (origin := chat.last_origin) is not None and self._choice.is_available(
            name := f"{origin.provider}/{origin.model}"
        ):
            chat.model = name
        return chat

    def _charge(self, owner: str, tokens: int) -> None:
        """Charge a call of a model to the key whose conversation it is, by the limits that key has now."""
        key = next((client for client in self._keys().clients if client.name == owner), None)
        if key is not None:
            self._limits.spend(key, tokens)


def admit(admission: Admission, request: ClientRequest) -> ClientKey | Answer:
    """Whose request it is, or the answer that refuses it."""
    try:
        return admission.admit(request)
    except Refused as error:
        return _protected(request, refusal(error))


def _protected(request: ClientRequest, answer: Answer) -> Answer:
    """The answer with the headers that tell a browser what not to do with it."""
    is_api = request.path.startswith(API)
    answer.headers = {**_HEADERS, **(_API_HEADERS if is_api else {}), **answer.headers}
    return answer
