"""`AccessControl`: whose request it is, and whether a page of ours sent it.

- Without keys only this machine is served, and only under a name of this machine (`http.origin` has the rules).
- With keys, everything except the page itself requires one.
- A request that changes something must come from our own page (CSRF): as JSON, with our own header. A form or a simple cross-site
  request cannot send these without a preflight, which is never granted. `Origin` and `Sec-Fetch-Site` must agree. Requests that
  only read are protected by the same-origin policy, and are refused to other sites as well.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.http.messages import ClientRequest
from antiphon.http.origin import OriginRules, is_loopback, local_problem, site_problem
from antiphon_chat.page.request import ApiError
from antiphon_gateway.access.client_keys import ANONYMOUS, ClientKey, ClientKeys

API = "/chat/api/"
HEADER = "x-antiphon-chat"
READING = frozenset({"GET", "HEAD"})


class AccessControl:
    """Checks requests against the current keys and the origin rules."""

    def __init__(self, keys: Callable[[], ClientKeys], rules: Callable[[], OriginRules] = OriginRules) -> None:
        self._keys = keys
        self._rules = rules

    @property
    def needs_key(self) -> bool:
        """Whether a request without a key is refused."""
        return not self._keys().allows_anonymous

    def admit(self, request: ClientRequest) -> ClientKey:
        """Whose request it is, decided without its body. Raises `ApiError`."""
        self.check_host(request)
        return self.authenticate(request) if request.path.startswith(API) else ANONYMOUS

    def check_host(self, request: ClientRequest) -> None:
        """Whether a client at that address, asking for that host, is served at all. Raises `ApiError`."""
        keys = self._keys()
        if not keys.allows_anonymous:
            return
        if not is_loopback(request.peer):
            raise ApiError("without client keys only this machine is served; add client_keys", 403, "forbidden")
        if problem := local_problem(request.headers, self._rules()):
            raise ApiError(problem, 403, "forbidden")

    def authenticate(self, request: ClientRequest) -> ClientKey:
        """Whose request to the API it is. Raises `ApiError`."""
        if problem := site_problem(request.headers, self._rules()):
            raise ApiError(problem, 403, "forbidden")
        if request.method not in READING:
            _check_change(request)
        keys = self._keys()
        if keys.allows_anonymous:
            return ANONYMOUS
        # Not from the query: URLs end up in logs and browser histories.
        key = keys.authenticate(request.headers, {})
        if key is None and keys.is_unread:
            raise ApiError(
                "the gateway has just started and has not read its stored keys yet; try again", 503, "unavailable"
            )
        if key is None:
            raise ApiError("the key is missing or not known here", 401, "invalid_api_key")
        return key


def _check_change(request: ClientRequest) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError("send content-type: application/json", 415, "unsupported_media")
    if request.headers.get(HEADER) != "1":
        raise ApiError(f"send the header {HEADER}: 1; it shows that a page of ours asks", 403, "forbidden")
