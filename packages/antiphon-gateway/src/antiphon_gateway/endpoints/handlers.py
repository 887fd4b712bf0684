"""What answers a request, by the action of its endpoint: a kind of `MeteredRequest`, or a function."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon_gateway.admin.credentials import handle_list_credentials, handle_switch_credential
from antiphon_gateway.admin.handlers import (
    handle_audit,
    handle_change_key,
    handle_create_key,
    handle_delete_key,
    handle_disable_key,
    handle_enable_key,
    handle_get_key,
    handle_list_keys,
    handle_rotate_key,
    handle_spend,
    handle_usage,
)
from antiphon_gateway.admin.status_login import handle_login, handle_login_needed, handle_status_page
from antiphon_gateway.endpoints.answers import (
    handle_cancel_interaction,
    handle_cancel_response,
    handle_delete_interaction,
    handle_delete_response,
    handle_get_interaction,
    handle_get_response,
    handle_list_items,
)
from antiphon_gateway.endpoints.background import Answering
from antiphon_gateway.endpoints.embeddings import Embedding
from antiphon_gateway.endpoints.models import handle_get_model, handle_list_models
from antiphon_gateway.endpoints.ollama import handle_running, handle_show, handle_tags, handle_version
from antiphon_gateway.endpoints.pass_through import PassThrough
from antiphon_gateway.endpoints.responses_api.compaction import Compaction
from antiphon_gateway.endpoints.responses_api.conversations import (
    handle_add_items,
    handle_create_conversation,
    handle_delete_conversation,
    handle_delete_conversation_item,
    handle_get_conversation,
    handle_get_conversation_item,
    handle_list_conversation_items,
    handle_update_conversation,
)
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

HANDLERS: Mapping[str, Handler] = {
    "list_models": handle_list_models,
    "get_model": handle_get_model,
    "tags": handle_tags,
    "show": handle_show,
    "running": handle_running,
    "version": handle_version,
    "get_response": handle_get_response,
    "delete_response": handle_delete_response,
    "cancel_response": handle_cancel_response,
    "list_items": handle_list_items,
    "create_conversation": handle_create_conversation,
    "get_conversation": handle_get_conversation,
    "update_conversation": handle_update_conversation,
    "delete_conversation": handle_delete_conversation,
    "add_conversation_items": handle_add_items,
    "list_conversation_items": handle_list_conversation_items,
    "get_conversation_item": handle_get_conversation_item,
    "delete_conversation_item": handle_delete_conversation_item,
    "get_interaction": handle_get_interaction,
    "delete_interaction": handle_delete_interaction,
    "cancel_interaction": handle_cancel_interaction,
    "list_credentials": handle_list_credentials,
    "switch_credential": handle_switch_credential,
    "create_key": handle_create_key,
    "list_keys": handle_list_keys,
    "get_key": handle_get_key,
    "change_key": handle_change_key,
    "delete_key": handle_delete_key,
    "disable_key": handle_disable_key,
    "enable_key": handle_enable_key,
    "rotate_key": handle_rotate_key,
    "audit": handle_audit,
    "spend": handle_spend,
    "usage": handle_usage,
    "status_page": handle_status_page,
    "status_login": handle_login,
    "status_login_needed": handle_login_needed,
}
"""Handlers by the action of the endpoint."""
