"""Which models a client may name, and the error for any other.

A route with a plain name is listed under it; a glob as the model of its first target, if that name routes to the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from msgspec import Struct

from antiphon.model_name import ModelName
from antiphon.providers.routes import Route
from antiphon.wire.output import ProviderError

_GLOB = frozenset("*?[")
_MAX_SUGGESTIONS = 20


class ModelEntry(Struct, frozen=True):
    """A model that can be requested by `name`; `provider` is its first target."""

    name: str
    provider: str = ""


def visible_models(routes: Sequence[Route], may_use: Callable[[str], bool] | None = None) -> tuple[ModelEntry, ...]:
    """The models with a name of their own, in the order of the routes. `may_use` selects those this client may see."""
    found: dict[str, ModelEntry] = {}
    for route in routes:
        for name in _names(routes, route):
            if may_use is None or may_use(name):
                found.setdefault(name, ModelEntry(name, _provider(route)))
    return tuple(found.values())


def unknown_model_error(name: str, models: Sequence[ModelEntry]) -> ProviderError:
    """The error message for an unknown name: which names exist, the most similar first."""
    names = [model.name for model in models]
    near = get_close_matches(name, names, n=3)
    others = [other for other in names if other not in near]
    shown = (near + others)[:_MAX_SUGGESTIONS]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    there = f"There are: {', '.join(shown)}{more}." if shown else "No models are available to this key."
    short_name = name if len(name) <= 200 else f"{name[:200]}…"
    return ProviderError(
        f"The model `{short_name}` does not exist or you do not have access to it. {there}",
        "not_found",
        404,
        param="model",
    )


def _names(routes: Sequence[Route], route: Route) -> Iterator[str]:
    if not _GLOB & set(route.pattern):
        yield route.pattern
        return
    target = route.targets[0]
    if "*" in target:
        return
    for name in (ModelName.parse(target).model, target):
        if name and _route_of(routes, name) is route:
            yield name
            return


def _route_of(routes: Sequence[Route], name: str) -> Route | None:
    return next((route for route in routes if fnmatchcase(name, route.pattern)), None)


def _provider(route: Route) -> str:
    return ModelName.parse(route.targets[0]).provider
