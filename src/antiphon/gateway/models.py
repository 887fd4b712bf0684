"""The documented import path of names in `antiphon.gateway.endpoints.models`."""

from antiphon.gateway.endpoints.models import list_models, visible_models

listed_models = visible_models

__all__ = ["list_models", "listed_models", "visible_models"]
