"""Which targets a client may reach by the name of a model, for the endpoints that do not generate."""

from __future__ import annotations

from antiphon.errors import InvalidModelName, RoutingError
from antiphon.gateway.asked import Asked
from antiphon.gateway.message import Answer
from antiphon.gateway.models import listed_models, unknown_model
from antiphon.gateway.refusal import refused
from antiphon.providers.model_name import check_model_name
from antiphon.providers.routes import Target


def allowed_targets(asked: Asked, model: str) -> list[Target]:
    """The targets of a model, in order; none if there is no such model, or not for this client. Raises `InvalidModelName`."""
    check_model_name(model)
    if not asked.key.may_use(model):
        return []
    try:
        return asked.running.targets(model)
    except InvalidModelName:
        raise
    except RoutingError:
        return []


def model_not_found(asked: Asked, name: str) -> Answer:
    """A 404 that names the models there are for this client."""
    models = listed_models(asked.running.routes, asked.key.may_use)
    return refused(asked.door.format, unknown_model(name, models))
