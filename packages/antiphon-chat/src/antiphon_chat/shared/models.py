"""The models of a chat: the menu, the default, the lookup of a name, and the model a conversation was last used with.

Also what a person wants to know of a model before choosing it: the size of its window and its prices, from the tables we ship.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TypeAlias

from antiphon.errors import AntiphonError, ProviderSetupError, RoutingError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ContextEntry,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    ModelOutputEntry,
    Origin,
)
from antiphon.model_name import ModelName
from antiphon.prices.table import PriceTable
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.default_model import (
    OFFLINE,
    PREFERRED,
    ModelChoice,
    available_models,
    default_model,
    make_choice,
)
from antiphon.providers.presets import PRESETS
from antiphon.providers.router import ProviderRouter
from antiphon.wire.capabilities import find_family
from antiphon.wire.delta import ModelOutputDelta
from antiphon_chat.language import translate


def model_title(model: str) -> str:
    """A model as people call it: without the path to it."""
    return translate("guided tour") if model == OFFLINE else ModelName.parse(model).model or model


class ChatModels:
    """The models on the menu (`names`), and the default.

    Other models may be named too: `check` raises `RoutingError`, which lists the known ones, for an unknown name.
    """

    def __init__(
        self,
        router: ProviderRouter,
        choice: ModelChoice,
        names: Iterable[str] = (),
        check: Callable[[str], object] | None = None,
    ) -> None:
        self.router = router
        self.choice = choice
        self.names = tuple(dict.fromkeys((choice.model, *names)))
        self.check = check or router.resolve

    def is_available(self, model: str) -> bool:
        """Whether a model of that name is known and its provider has what it needs, such as a key."""
        try:
            self.check(model)
            self.router.client(self.router.resolve(model)[0].provider)
        except AntiphonError:
            return False
        return True


class ReloadableProvider(ProviderClient):
    """Calls the current models: a reload may replace them while conversations are open."""

    name = "chat"

    def __init__(self, models: Callable[[], ChatModels]) -> None:
        self._models = models

    def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        return self._models().router.call_model(context, options)

    def origins_of(self, model: str) -> Sequence[Origin]:
        return self._models().router.origins_of(model)


def models_from_environment(
    environ: Mapping[str, str], model: str | ProviderClient | None = None, names: Iterable[str] = ()
) -> ChatModels:
    """The models whose provider has a key or an address in the environment, and `names`; `model` is the default, if given."""
    offer = default_model(environ)
    if isinstance(model, ProviderClient):
        router = ProviderRouter({model.name: model}, default=model.name, environ=environ)
        return ChatModels(
            router, ModelChoice(model.name, "given by the program", "Name another as provider/model."), ()
        )
    choice = make_choice(model, "asked") if model and model != offer.model else offer
    router = ProviderRouter(default=choice.model, environ=environ)
    router.resolve(choice.model)
    return ChatModels(router, choice, dict.fromkeys((*dict(available_models(environ)), *names, OFFLINE)))


def models_used(entries: Iterable[HistoryEntry]) -> list[str]:
    """The models that answered in these entries."""
    return list(dict.fromkeys(_origins(entries)))


def _origins(entries: Iterable[HistoryEntry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, ModelOutputEntry) and (origin := entry.origin) and origin.provider and origin.model:
            yield origin.name


def find_model(wanted: str, available: Sequence[str], router: ProviderRouter, environ: Mapping[str, str]) -> str:
    """The model of that name, title or part of a name. Raises an error that names near misses, or the missing key."""
    if wanted.casefold() == model_title(OFFLINE).casefold():
        return OFFLINE
    fitting = [name for name in available if wanted.lower() in name.lower()]
    name = fitting[0] if len(fitting) == 1 and wanted not in available else wanted
    try:
        provider = router.resolve(name)[0].provider
    except RoutingError:
        if len(fitting) > 1:
            shown = ", ".join(fitting[:8]) + (", …" if len(fitting) > 8 else "")
            raise RoutingError(f"{len(fitting)} models match {wanted!r}: {shown}; give more of the name") from None
        offered = [*available, *(f"{provider}/{model}" for provider, model in PREFERRED)]
        parts = {part: name for name in reversed(offered) for part in (name, ModelName.parse(name).model)}
        near = dict.fromkeys(parts[part] for part in difflib.get_close_matches(wanted, parts, n=3))
        if not near:
            raise
        raise RoutingError(f"unknown model {wanted!r}; did you mean {' or '.join(near)}?") from None
    preset = PRESETS.get(provider)
    if preset is not None and preset.needs_key and not preset.read_variables(environ).key:
        raise ProviderSetupError(
            f"{name} needs a key: set {' or '.join(preset.secret_variables)}, or paste one (/key {provider}); "
            "the guided tour needs none"
        )
    router.client(provider)  # built now, so that a wrong setting is reported now and not in the middle of a turn
    return name


# The model of a conversation is the one that was chosen for it (a note in its log), else the one that answered last.

_CHOSEN = "chat_model"


def model_note(model: str) -> DebugLogEntry:
    """The entry that records which model was chosen."""
    return DebugLogEntry("model", f"Model set to {model}.", metadata=EntryMetadata(extra={_CHOSEN: model}))


def chosen_model(snapshot: AgentHistorySnapshot) -> str:
    """The model that was chosen last; empty if none was."""
    for entry in reversed(snapshot.effective):
        if isinstance(chosen := entry.extra(_CHOSEN), str):
            return chosen
    return ""


def record_model(history: AgentHistory, model: str) -> None:
    """Record the choice of a model, unless the log has it already."""
    snapshot = history.snapshot()
    if model != (chosen_model(snapshot) or _last_model(snapshot)):
        history.append(model_note(model))


def remembered_model(snapshot: AgentHistorySnapshot, is_available: Callable[[str], bool], default: str) -> str:
    """The model to continue a conversation with."""
    candidates = (chosen_model(snapshot), _last_model(snapshot))
    return next((model for model in candidates if model and is_available(model)), default)


def _last_model(snapshot: AgentHistorySnapshot) -> str:
    return next(_origins(reversed(snapshot.effective)), "")


ModelFacts: TypeAlias = tuple[int | None, Decimal | None, Decimal | None]
"""The window in tokens, and the dollars for a million tokens in and out; None is not known."""


def facts_of(names: Iterable[str]) -> dict[str, ModelFacts]:
    """The facts of the models that the tables have."""
    known = {name: _facts(name) for name in names}
    return {name: facts for name, facts in known.items() if any(fact is not None for fact in facts)}


@cache
def _facts(name: str) -> ModelFacts:
    provider, model = ModelName.parse(name)
    family = find_family(model)
    window: int | None = family.facts.get("context_window") if family is not None else None
    found = _prices().find(model, provider) if provider else _prices().find(model)
    if found is None:
        return window, None, None
    price = found.price_at(datetime.now(UTC), {})
    return window, price.amount("input", 0), price.amount("output", 0)


@cache
def _prices() -> PriceTable:
    return PriceTable()
