"""From the name of a model to whom to ask: roles, routes, `provider/model` names, and families of names.

A name is looked up in this order, and the first that knows it decides:

1. a role (`planner`) stands for the name it was given;
2. a route whose pattern matches the whole name gives its targets, to be tried in their order;
3. `provider/model` is what it says: the provider ends at the first slash, the model may have more of them;
4. the name of a provider alone is that provider, with the model left to it;
5. a plain name belongs to the provider whose names look like it (`claude-*`), as the presets have it.

Fallbacks come last, whatever the name. Targets are names of kind 3 to 5, so looking up ends. A `*` in a target stands for the
name that was asked for: `Route("*", ["openrouter/*"])` asks one provider for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter

from msgspec import Struct

from antiphon.errors import RoutingError
from antiphon.providers.model_name import check_model_name


class Target(Struct, frozen=True):
    """A model at a provider."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}" if self.model else self.provider


class Route(Struct, frozen=True):
    """What is asked for by names that match `pattern`: `targets`, each tried when the one before it failed."""

    pattern: str
    targets: Sequence[str]

    def __post_init__(self) -> None:
        if not self.pattern or isinstance(self.targets, str) or not self.targets:
            raise RoutingError(
                f"the route {self.pattern!r} has the targets {self.targets!r}; "
                'give a pattern and a list: Route("claude-*", ["anthropic/*", "openai/gpt-5"])'
            )


class RouteTable:
    """Resolves names. `providers` says which there are, each with globs of the models that are its own.

    With `only_routes` a name is served only if a role or a route names it: steps 3 to 5 are for their targets alone.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        roles: Mapping[str, str],
        fallbacks: Sequence[str],
        providers: Callable[[], Mapping[str, Sequence[str]]],
        *,
        only_routes: bool = False,
    ) -> None:
        self._routes = tuple(routes)
        self._roles = dict(roles)
        self._fallbacks = tuple(fallbacks)
        self._providers = providers
        self._only_routes = only_routes
        self._targets = lru_cache(maxsize=1024)(self._resolved)

    def resolve(self, model: str) -> list[Target]:
        """Whom to ask for `model`, in order, nobody twice. Raises `RoutingError` for a name that leads nowhere, and
        `InvalidModelName` for one that no model can have."""
        check_model_name(model)
        return list(self._targets(model))

    def _resolved(self, model: str) -> tuple[Target, ...]:
        name = self._without_role(model)
        names = (*self._names(name, is_listed=name != model), *self._fallbacks)
        return tuple(dict.fromkeys(map(self._target, names)))

    def _without_role(self, name: str) -> str:
        passed = [name]
        while name in self._roles:
            name = self._roles[name]
            if name in passed:
                raise RoutingError(f"the roles go in a circle: {' -> '.join([*passed, name])}; let one name a model")
            passed.append(name)
        return name

    def _names(self, name: str, *, is_listed: bool) -> Iterator[str]:
        for route in self._routes:
            if fnmatchcase(name, route.pattern):
                yield from (target.replace("*", name) for target in route.targets)
                return
        if self._only_routes and not is_listed:
            raise RoutingError(f"cannot find the model {name!r}: no route matches it. Add it to the routes")
        yield name

    def _target(self, name: str) -> Target:
        providers = self._providers()
        provider, slash, model = name.partition("/")
        if slash and provider in providers:
            check_model_name(model)
            return Target(provider, model)
        if name in providers:
            return Target(name, "")
        owners = [
            (not pattern.startswith("*"), owner)  # the end of a name says more than its beginning: gpt-5-codex
            for owner, patterns in providers.items()
            for pattern in patterns
            if fnmatchcase(name, pattern)
        ]
        if owners:
            return Target(min(owners, key=itemgetter(0))[1], name)
        raise RoutingError(self._unknown(name, provider, bool(slash), list(providers)))

    def _unknown(self, name: str, provider: str, has_provider: bool, providers: list[str]) -> str:
        if not name:
            return "no model was named; say one, such as anthropic/claude-sonnet-5, or give the router a default"
        what = f"there is no provider {provider!r}" if has_provider else "no provider is known for it"
        near = get_close_matches(provider, [*providers, *self._roles], n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        patterns = [route.pattern for route in self._routes]
        known = [
            f"providers: {', '.join(providers) or 'none'}",
            *([f"routes: {', '.join(patterns)}"] if patterns else []),
            *([f"roles: {', '.join(sorted(self._roles))}"] if self._roles else []),
        ]
        return (
            f"cannot find the model {name!r}: {what}.{meant} Name it as provider/model, or add a route. "
            f"Known are {'; '.join(known)}"
        )
