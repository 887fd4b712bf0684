"""From a model name to targets: roles, routes, `provider/model` names, and families of names.

The first step that knows a name decides: 1. a role (`planner`) is an alias of a name; 2. a route whose pattern matches gives
its targets in order; 3. `provider/model`, split at the first slash; 4. the name of a provider, which picks the model itself;
5. a plain name belongs to the provider whose globs match it (`claude-*`), as in the presets.

Fallbacks come last, for every name. Targets are names of kind 3 to 5, so resolving ends. A `*` in a target is replaced by the
requested name: `Route("*", ["openrouter/*"])` sends everything to one provider.

Clients choose names, and some providers have them in the URL path: a name with a dot segment (`gpt-4-/../other`) would escape a
glob such as `gpt-4-*`, so `check_model_name` rejects it, and only `quote_path` writes a name into a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from antiphon.errors import InvalidModelName, RoutingError
from antiphon.model_name import ModelName

MAX_NAME_LENGTH = 256
"""Characters. The longest names that providers use have about a hundred."""

_has_dot_segment = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)").search


class Target(Struct, frozen=True):
    """A model at a provider."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}" if self.model else self.provider


TargetOrder: TypeAlias = Literal["listed", "weighted", "fastest"]
"""Which target of a route a call asks first: the first one, one by its weight, or the one with the shortest answer times."""
Arrange: TypeAlias = Callable[[Sequence[Target], TargetOrder, Sequence[float]], list[Target]]


class Route(Struct, frozen=True):
    """Targets for model names that match `pattern`; each is tried if the one before it failed.

    `order` decides which one is asked first; `weights` has a number for each target, for the order `weighted`.
    """

    pattern: str
    targets: Sequence[str]
    order: TargetOrder = "listed"
    weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        if not self.pattern or isinstance(self.targets, str) or not self.targets:
            raise RoutingError(
                f"route {self.pattern!r} has targets {self.targets!r}; "
                'expected a pattern and a list: Route("claude-*", ["anthropic/*", "openai/gpt-5"])'
            )
        if self.weights and len(self.weights) != len(self.targets):
            raise RoutingError(
                f"route {self.pattern!r} has {len(self.targets)} targets and {len(self.weights)} weights; "
                "give each target a weight, or none"
            )


class _Resolved(NamedTuple):
    """The targets of a name. The first of them, as many as there are weights, are those of its route."""

    targets: tuple[Target, ...]
    order: TargetOrder = "listed"
    weights: tuple[float, ...] = ()


def _generality(pattern: str) -> int:
    """A suffix is more specific than a prefix (gpt-5-codex), and `*` is what the others leave."""
    return 2 if pattern == "*" else int(not pattern.startswith("*"))


class RouteTable:
    """Resolves model names. `providers` returns the known ones, each with globs of its models.

    With `only_routes` a name is accepted only if a role or a route names it; steps 3 to 5 apply to their targets only.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        roles: Mapping[str, str],
        fallbacks: Sequence[str],
        providers: Callable[[], Mapping[str, Sequence[str]]],
        *,
        only_routes: bool = False,
        arrange: Arrange | None = None,
    ) -> None:
        self._arrange = arrange
        self._routes = tuple(routes)
        self._roles = dict(roles)
        self._fallbacks = tuple(fallbacks)
        self._providers = providers
        self._only_routes = only_routes
        self._targets = lru_cache(maxsize=1024)(self._resolve_uncached)

    def resolve(self, model: str) -> list[Target]:
        """The targets for `model`, in order and without duplicates. Raises `RoutingError` or `InvalidModelName`."""
        targets, order, weights = self._targets(model)
        if order == "listed" or self._arrange is None:
            return list(targets)
        count = len(weights)
        return [*self._arrange(targets[:count], order, weights), *targets[count:]]

    def _resolve_uncached(self, model: str) -> _Resolved:
        check_model_name(model)
        name = self._expand_roles(model)
        route = next((route for route in self._routes if fnmatchcase(name, route.pattern)), None)
        if route is None:
            if self._only_routes and name == model:
                raise RoutingError(f"cannot find the model {name!r}: no route matches it. Add it to the routes")
            return _Resolved(tuple(dict.fromkeys(map(self._target, (name, *self._fallbacks)))))
        weights: dict[Target, float] = {}
        for target, weight in zip(route.targets, route.weights or [1.0] * len(route.targets), strict=True):
            weights.setdefault(self._target(target.replace("*", name)), weight)
        targets = tuple(dict.fromkeys((*weights, *map(self._target, self._fallbacks))))
        return _Resolved(targets, route.order, tuple(weights.values()))

    def _expand_roles(self, name: str) -> str:
        chain = [name]
        while name in self._roles:
            name = self._roles[name]
            if name in chain:
                raise RoutingError(f"roles form a cycle: {' -> '.join([*chain, name])}; let one of them name a model")
            chain.append(name)
        return name

    def _target(self, name: str) -> Target:
        providers = self._providers()
        provider, model = ModelName.parse(name)
        if provider in providers:
            check_model_name(model)
            return Target(provider, model)
        if name in providers:
            return Target(name, "")
        owners = [
            (_generality(pattern), owner)
            for owner, patterns in providers.items()
            for pattern in patterns
            if fnmatchcase(name, pattern)
        ]
        if owners:
            return Target(min(owners, key=itemgetter(0))[1], name)
        raise RoutingError(self._not_found_message(name, provider, list(providers)))

    def _not_found_message(self, name: str, provider: str, providers: list[str]) -> str:
        if not name:
            return "no model named; name one, such as anthropic/claude-sonnet-5, or set a default for the router"
        reason = f"unknown provider {provider!r}" if provider else "no provider has it"
        near = get_close_matches(provider or name, [*providers, *self._roles], n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        patterns = [route.pattern for route in self._routes]
        known = [
            f"providers: {', '.join(providers) or 'none'}",
            *([f"routes: {', '.join(patterns)}"] if patterns else []),
            *([f"roles: {', '.join(sorted(self._roles))}"] if self._roles else []),
        ]
        return (
            f"cannot find the model {name!r}: {reason}.{meant} Name it as provider/model, or add a route. "
            f"Known {'; '.join(known)}"
        )


def check_model_name(name: str) -> None:
    """Raise `InvalidModelName` for a name that is not allowed."""
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidModelName(f"model: the name has {len(name):,} characters; at most {MAX_NAME_LENGTH} are allowed")
    if not name.isprintable():
        raise InvalidModelName(f"model: the name {name!a} contains control characters; remove them")
    if _has_dot_segment(name):
        raise InvalidModelName(f"model: the name {name!r} contains a dot segment ('.' or '..'); remove it")


def quote_path(name: str, *, is_one_segment: bool = False) -> str:
    """A name for the path of a URL. Slashes separate segments, unless it must be one segment."""
    check_model_name(name)
    return quote(name, safe=":@" if is_one_segment else "/:@")
