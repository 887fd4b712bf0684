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
from types import MappingProxyType
from typing import TypeAlias

from antiphon.errors import AntiphonError
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import OriginRules
from antiphon.http.server.application import Admitted, Application, Refusal
from antiphon.http.server.application import Handler as RequestHandler
from antiphon.page.files import SECURITY_HEADERS, PageFiles
from antiphon_chat.language import use_language
from antiphon_chat.page.access import API, READING, AccessControl
from antiphon_chat.page.api import conversations, mcp, models, plans, state, turns
from antiphon_chat.page.request import ApiError, ChatRequest, error_response
from antiphon_chat.page.services import ChatServices
from antiphon_gateway.access.client_keys import ClientKey, ClientKeys
from antiphon_gateway.config.settings import Config

logger = logging.getLogger("antiphon.web")

Handler: TypeAlias = Callable[[ChatRequest], Awaitable[Response]]

ASSETS = Path(__file__).with_name("assets")
STYLES = ("theme.css", "base.css", "layout.css", "thread.css", "cards.css", "history.css", "settings.css")
PAGE = PageFiles(ASSETS, STYLES, sandboxed="diagram")
"""One for all: its files are read and compressed once."""
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


_ONE = "/conversations/{id}"
ROUTES: Mapping[str, Mapping[str, Handler]] = MappingProxyType(
    {
        "/state": {"GET": state.show_state},
        "/imports": {"POST": conversations.import_file},
        "/conversations": {"GET": conversations.list_conversations, "POST": conversations.create_conversation},
        _ONE: {
            "GET": conversations.show_conversation,
            "PATCH": conversations.change_conversation,
            "DELETE": conversations.delete_conversation,
        },
        f"{_ONE}/turns": {"POST": turns.say},
        f"{_ONE}/resume": {"POST": turns.resume},
        f"{_ONE}/interrupt": {"POST": turns.interrupt},
        f"{_ONE}/decisions": {"POST": turns.decide},
        f"{_ONE}/events": {"GET": turns.watch_events},
        f"{_ONE}/branches": {"GET": turns.list_branches, "POST": turns.start_branch},
        f"{_ONE}/replays": {"POST": turns.start_replay},
        f"{_ONE}/comparison": {"GET": turns.compare_conversations},
        f"{_ONE}/fork": {"POST": conversations.fork_conversation},
        f"{_ONE}/rollback": {"POST": conversations.roll_back_conversation},
        f"{_ONE}/compact": {"POST": conversations.compact_conversation},
        f"{_ONE}/timeline": {"GET": conversations.show_timeline},
        f"{_ONE}/rendered": {"GET": conversations.show_rendered},
        f"{_ONE}/cache": {"GET": conversations.show_cache},
        f"{_ONE}/export": {"GET": conversations.export_conversation},
        f"{_ONE}/media/{{name}}": {"GET": conversations.show_media},
        "/models": {"GET": models.list_models},
        "/keys": {"POST": models.add_key},
        "/keys/{id}": {"DELETE": models.forget_key},
        "/mcp": {"GET": mcp.list_servers, "POST": mcp.add_server},
        "/mcp/{id}": {"PATCH": mcp.change_server, "DELETE": mcp.remove_server},
        "/mcp/{id}/test": {"POST": mcp.test_server},
        "/tools": {"GET": state.tool_calls},
        "/markdown": {"POST": state.draw_markdown},
        "/plans": {"GET": plans.list_plans},
        "/plans/{id}": {"GET": plans.show_plan, "PATCH": plans.change_plan, "DELETE": plans.delete_plan},
    }
)
"""What the API answers, by path and method."""
_PATTERNS = [(re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), path) for path in ROUTES]


class ChatApp(Application):
    """The page of a chat and its API. `keys` are the current client keys, without which only this machine is served, under the
    names that `rules` allow. The caller closes what the services were made of, except the tools."""

    def __init__(
        self,
        chat: ChatServices,
        *,
        keys: Callable[[], ClientKeys] = lambda: _NO_KEYS,
        rules: Callable[[], OriginRules] = OriginRules,
        page: PageFiles = PAGE,
    ) -> None:
        self.chat = chat
        self._admission = AccessControl(keys, rules)
        self._page = page
        self._is_closing = False

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
        await self.chat.aclose(grace)

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
        for pattern, route in _PATTERNS:
            if found := pattern.fullmatch(path):
                handlers = ROUTES[route]
                if (handler := handlers.get(request.method)) is None:
                    allow = ", ".join(handlers)
                    message = f"{request.path[:200]} takes {allow}, not {request.method}"
                    raise ApiError(message, 405, "method", allow=allow)
                return await handler(ChatRequest(request, key, self.chat, **found.groupdict()))
        raise ApiError(f"there is nothing at {request.path[:200]}", 404, "not_found")


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
