"""`ChatApp`: routes a request to the page, its files, or the API under `/chat/api/`.

`AccessControl` checks host, key and origin before anything else. Content from the store is sent as JSON, never as markup; the
page builds its elements from text. Every response has headers that forbid type sniffing, framing and referrers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from antiphon import __version__
from antiphon.conversation import Conversation
from antiphon.errors import AntiphonError
from antiphon.history import AgentHistory, HistoryStore
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import OriginRules
from antiphon.http.server.application import Admitted, Application, Refusal
from antiphon.http.server.application import Handler as RequestHandler
from antiphon.page.files import SECURITY_HEADERS, PageFiles
from antiphon.prices.table import PriceTable
from antiphon.providers.client import ProviderClient
from antiphon.threads import STORES
from antiphon_chat.language import use_language
from antiphon_chat.page.access import API, READING, AccessControl, ModelAccess
from antiphon_chat.page.api.conversations import ConversationApi
from antiphon_chat.page.api.mcp import McpApi
from antiphon_chat.page.api.models import ModelApi
from antiphon_chat.page.api.plans import PlanApi
from antiphon_chat.page.api.replays import ReplayApi
from antiphon_chat.page.api.tools import ToolApi
from antiphon_chat.page.api.turns import MAX_RUNNING_TURNS, TurnApi
from antiphon_chat.page.mounted.metered_calls import ChatMeter
from antiphon_chat.page.open_conversations import OpenConversations
from antiphon_chat.page.request import ApiError, ChatRequest, error_response
from antiphon_chat.shared.conversations.titles import write_title
from antiphon_chat.shared.markdown import blocks_json
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.models import ChatModels, ReloadableProvider
from antiphon_chat.shared.session import TurnSettings, needs_approval, open_conversation
from antiphon_chat.shared.setup.model_setup import ModelSetup
from antiphon_chat.shared.toolbox import Toolboxes
from antiphon_chat.shared.turn_limits import limits_for
from antiphon_gateway.access.client_keys import ClientKey, ClientKeys
from antiphon_gateway.config.settings import Config

logger = logging.getLogger("antiphon.web")

Handler: TypeAlias = Callable[[ChatRequest], Awaitable[Response]]

ASSETS = Path(__file__).with_name("assets")
STYLES = ("theme.css", "base.css", "layout.css", "thread.css", "cards.css", "history.css", "settings.css")
STREAM_SECONDS = 600.0
TOOLS_SECONDS = 10.0
_PAGE = "/chat/page/"
_CODES = {
    408: "timeout",
    413: "too_large",
    415: "unsupported_media",
    500: "internal",
    503: "unavailable",
    504: "timeout",
}
"""Error codes of what the listener refuses."""
_NO_KEYS = ClientKeys(Config())
_API_HEADERS = {"cache-control": "no-store", "content-security-policy": "default-src 'none'; frame-ancestors 'none'"}


class MarkdownTexts(Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to draw."""

    texts: tuple[str, ...]


class ChatApp(Application):
    """The chat over a store of conversations.

    `models` returns the current models; `toolboxes` have the tools; `keys` are the current client keys, without which only this
    machine is served, under the names that `rules` allow; `meter` counts what each key uses. `system` is the system instruction
    of new conversations, `turns` the current settings of turns. With `asks_before_changes`, every call of a tool that is not
    read-only needs approval. With `setup`, keys can be pasted on the page; with `mcp`, which is one of the tools, its MCP servers
    can be changed there; with `writes_titles` the model writes the titles of new conversations. Costs are by `prices`, else by
    the list prices. The caller closes what it passes, except `toolboxes`.
    """

    def __init__(
        self,
        store: HistoryStore,
        models: Callable[[], ChatModels],
        toolboxes: Toolboxes,
        *,
        keys: Callable[[], ClientKeys] = lambda: _NO_KEYS,
        rules: Callable[[], OriginRules] = OriginRules,
        meter: ChatMeter | None = None,
        system: str = "",
        token_limit: int | None = None,
        turns: Callable[[], TurnSettings] = TurnSettings,
        asks_before_changes: bool = False,
        stream_seconds: Callable[[], float] = lambda: STREAM_SECONDS,
        max_running: int = MAX_RUNNING_TURNS,
        page: PageFiles | None = None,
        setup: ModelSetup | None = None,
        mcp: McpServers | None = None,
        writes_titles: bool = False,
        prices: Callable[[], PriceTable | None] = lambda: None,
    ) -> None:
        self._models = models
        self._meter = meter
        self._model_access = ModelAccess(models, meter)
        self._toolboxes = toolboxes
        self._admission = AccessControl(keys, rules)
        self._token_limit = token_limit
        self._given_turns = turns
        self._asks_before_changes = asks_before_changes
        self._page = page or PageFiles(ASSETS, STYLES, sandboxed="diagram")
        self._is_closing = False
        self._provider = ReloadableProvider(models)
        self.conversations = OpenConversations(
            store,
            self._open_chat,
            limits=lambda history: limits_for(history.snapshot(), self._turns()),
            agents=lambda: self._turns().agents,
            partial_answers=toolboxes.partial_answers,
            write_title=write_title if writes_titles else None,
            prices=prices,
        )
        conversation = ConversationApi(self.conversations, self._model_access, system, self._turns)
        self._mcp = mcp
        self._setup = setup
        turn = TurnApi(self.conversations, self._model_access, stream_seconds, max_running, self._prepare_turn)
        plan = PlanApi(toolboxes)
        model = ModelApi(self._model_access, setup)
        server = McpApi(mcp)
        replay = ReplayApi(self.conversations, turn)
        tool = ToolApi(self.conversations)
        one = r"/conversations/(?P<id>[^/]+)"
        self._routes: list[tuple[re.Pattern[str], Mapping[str, Handler]]] = [
            (re.compile(path), handlers)
            for path, handlers in {
                "/state": {"GET": self._state},
                "/imports": {"POST": conversation.take_in},
                "/conversations": {"GET": conversation.list, "POST": conversation.create},
                one: {"GET": conversation.show, "PATCH": conversation.change, "DELETE": conversation.delete},
                f"{one}/turns": {"POST": turn.say},
                f"{one}/resume": {"POST": turn.resume},
                f"{one}/interrupt": {"POST": turn.interrupt},
                f"{one}/decisions": {"POST": turn.decide},
                f"{one}/events": {"GET": turn.events},
                f"{one}/branches": {"GET": turn.branches, "POST": turn.branch},
                f"{one}/replays": {"POST": replay.start},
                f"{one}/comparison": {"GET": replay.compare},
                f"{one}/fork": {"POST": conversation.fork},
                f"{one}/rollback": {"POST": conversation.roll_back},
                f"{one}/compact": {"POST": conversation.compact},
                f"{one}/timeline": {"GET": conversation.timeline},
                f"{one}/rendered": {"GET": conversation.rendered},
                f"{one}/cache": {"GET": conversation.cache},
                f"{one}/export": {"GET": conversation.export},
                f"{one}/media/(?P<name>[^/]+)": {"GET": conversation.media},
                "/models": {"GET": model.list},
                "/keys": {"POST": model.add_key},
                r"/keys/(?P<id>[^/]+)": {"DELETE": model.forget_key},
                "/mcp": {"GET": server.list, "POST": server.add},
                r"/mcp/(?P<id>[^/]+)": {"PATCH": server.change, "DELETE": server.remove},
                r"/mcp/(?P<id>[^/]+)/test": {"POST": server.test},
                "/tools": {"GET": tool.statistics},
                "/markdown": {"POST": self._markdown},
                "/plans": {"GET": plan.list},
                r"/plans/(?P<id>[^/]+)": {"GET": plan.show, "PATCH": plan.change, "DELETE": plan.delete},
            }.items()
        ]

    def admit(self, request: ClientRequest) -> RequestHandler | Response:
        """Whose request it is, decided without its body."""
        key = admit(self._admission, request)
        return key if isinstance(key, Response) else Admitted(partial(self.answer, request, key), key.name)

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that the listener refuses."""
        code = _CODES.get(refusal.status, "invalid")
        return _protected(request, error_response(ApiError(refusal.message, refusal.status, code, **refusal.headers)))

    async def answer(self, request: ClientRequest, key: ClientKey) -> Response:
        """Answer a request of a client."""
        try:
            is_api = request.path.startswith(API)
            answer = await self._call_api(request, key) if is_api else self._serve_page(request)
        except AntiphonError as error:
            answer = error_response(error)
        except Exception:
            logger.exception("a request failed inside the chat")
            answer = error_response(
                ApiError(f"the chat failed; its log says more under {request.request_id}", 500, "failed")
            )
        return _protected(request, answer)

    async def aclose(self, grace: float = 0.0) -> None:
        """Disconnect the watchers, end the turns within `grace` seconds, and close the tools."""
        self._is_closing = True
        await self.conversations.aclose(grace)
        await self._toolboxes.aclose()

    def _serve_page(self, request: ClientRequest) -> Response:
        """The page and its files, which are public."""
        if request.method not in READING:
            raise ApiError(f"{request.path[:200]} takes GET, not {request.method}", 405, "method", allow="GET")
        if request.path in ("/", "/chat"):
            return Response(status=302, headers={"location": "/chat/"})
        is_file = request.path.startswith(_PAGE)
        if is_file or request.path == "/chat/":
            name = request.path.removeprefix(_PAGE) if is_file else "index.html"
            if (answer := self._page.answer(request, name)) is not None:
                return answer
        raise ApiError(f"there is nothing at {request.path[:200]}; the chat is at /chat/", 404, "not_found")

    async def _call_api(self, request: ClientRequest, key: ClientKey) -> Response:
        if self._is_closing:  # a page that was disconnected reconnects at once
            raise ApiError("the chat is stopping; come back when it is up again", 503, "stopping")
        use_language("zh" if request.headers.get("accept-language", "").startswith("zh") else "en")
        path = "/" + request.path.removeprefix(API)
        for pattern, handlers in self._routes:
            if found := pattern.fullmatch(path):
                handler = handlers.get(request.method)
                if handler is None:
                    allowed = ", ".join(handlers)
                    raise ApiError(
                        f"{request.path[:200]} takes {allowed}, not {request.method}", 405, "method", allow=allowed
                    )
                return await handler(ChatRequest(request, key, **found.groupdict()))
        raise ApiError(f"there is nothing at {request.path[:200]}", 404, "not_found")

    async def _state(self, request: ChatRequest) -> Response:
        """The default model, the other models, and the tools."""
        models, registry = self._models(), self._toolboxes.of(request.owner).registry
        await registry.open()
        tools = [tool for name in registry.names if (tool := registry.get(name)) is not None]
        choice = models.choice
        return Response.json(
            {
                "version": __version__,
                "choice": {
                    "model": choice.model,
                    "what": choice.reason,
                    "how": choice.hint,
                    "kind": choice.kind,
                    "values": choice.values,
                },
                "models": self._model_access.names(request.key),
                "tools": [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "effect": tool.effect,
                        "needs_approval": needs_approval(tool, asks_before_changes=self._asks_before_changes),
                    }
                    for tool in tools
                ],
                "token_limit": limit if isinstance(limit := self._turns().token_limit, int) else None,
                "limits": structs.asdict(self._turns().limits),
                "has_keys": self._admission.needs_key,
                "has_mcp": self._mcp is not None,
            }
        )

    async def _prepare_turn(self) -> None:
        """Wait a moment for the MCP servers of the settings, and let a key that was rejected be tried again."""
        if self._setup is not None:
            self._setup.retry_rejected_keys()
        if self._mcp is not None:
            await self._mcp.wait_until_started(TOOLS_SECONDS)

    async def _markdown(self, request: ChatRequest) -> Response:
        """The blocks of texts that are not in an entry: results of tools."""
        texts = request.read(MarkdownTexts).texts
        drawn = await STORES.run(lambda: b",".join(map(blocks_json, texts)))
        return Response(headers={"content-type": "application/json"}, body=b'{"blocks":[%s]}' % drawn)

    def _turns(self) -> TurnSettings:
        turns = self._given_turns()
        return turns if self._token_limit is None else structs.replace(turns, token_limit=self._token_limit)

    def _open_chat(self, history: AgentHistory, owner: str) -> Conversation:
        chat = open_conversation(
            history,
            self._models(),
            self._toolboxes.of(owner).registry,
            provider=self._metered(owner),
            asks_before_changes=self._asks_before_changes,
            turns=self._turns(),
            partial_answers=self._toolboxes.partial_answers,
        )
        if self._meter is not None:
            chat.executor.on_call = self._meter.count_tool_calls(chat.registry)
        return chat

    def _metered(self, owner: str) -> ProviderClient:
        """The models for conversations of that client, by its current limits."""
        return self._provider if self._meter is None else self._meter.calls_of(owner, self._models)


def admit(admission: AccessControl, request: ClientRequest) -> ClientKey | Response:
    """The owner of a request, or the response that refuses it."""
    try:
        return admission.admit(request)
    except ApiError as error:
        return _protected(request, error_response(error))


def _protected(request: ClientRequest, answer: Response) -> Response:
    """The response with the security headers."""
    is_api = request.path.startswith(API)
    answer.headers = {**SECURITY_HEADERS, **(_API_HEADERS if is_api else {}), **answer.headers}
    return answer
