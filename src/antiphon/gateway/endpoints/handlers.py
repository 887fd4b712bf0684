"""The small endpoints: models, token counts, and the responses that are kept here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from antiphon.gateway.context import Asked
from antiphon.gateway.endpoints.models import (
    model_shown,
    models_listed,
)
from antiphon.gateway.endpoints.responses import items_listed, response_deleted, response_shown
from antiphon.gateway.endpoints.tokens import tokens_counted
from antiphon.gateway.http.messages import Answer

SMALL: Mapping[str, Callable[[Asked], Awaitable[Answer]]] = {
    "list_models": models_listed,
    "get_model": model_shown,
    "count": tokens_counted,
    "get_response": response_shown,
    "delete_response": response_deleted,
    "list_items": items_listed,
}
"""By the action of the door."""
