"""What answers a request, by the action of its endpoint: a kind of `MeteredRequest`, or the function `handle_<action>`."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon_gateway.admin import credentials, status_login
from antiphon_gateway.admin import handlers as admin
from antiphon_gateway.endpoints import answers, models, readiness
from antiphon_gateway.endpoints.background import Answering
from antiphon_gateway.endpoints.embeddings import Embedding
from antiphon_gateway.endpoints.pass_through import PassThrough
from antiphon_gateway.endpoints.responses_api import conversations
from antiphon_gateway.endpoints.responses_api.compaction import Compaction
from antiphon_gateway.endpoints.tokens import TokenCount
from antiphon_gateway.generate.generation import Generation
from antiphon_gateway.runtime.metered import Handler, MeteredRequest, SocketRequest
from antiphon_gateway.state.continuing import STATE_FIELDS

REQUESTS: Mapping[str, type[MeteredRequest]] = {
    "generate": Generation,
    "embed": Embedding,
    "count": TokenCount,
    "compact": Compaction,
    "pass": PassThrough,
    "connect": SocketRequest,
}
"""The kinds of requests that are more than a function."""

KEPT: Mapping[str, type[MeteredRequest]] = dict.fromkeys(STATE_FIELDS, Answering)
"""Generations of formats whose answers are kept here: a client may not want to wait for one."""

HANDLERS: dict[str, Handler] = {
    name.removeprefix("handle_"): handler
    for module in (credentials, status_login, admin, answers, models, conversations, readiness)
    for name, handler in vars(module).items()
    if name.startswith("handle_")
}
"""Handlers by the action of the endpoint."""
