"""The models one can switch to: those on the menu, those that answered before, and whatever a router knows by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from antiphon.errors import ProviderSetupError, RoutingError
from antiphon.history import HistoryEntry, ModelOutputEntry
from antiphon.providers.default_model import PREFERRED
from antiphon.providers.presets import PRESETS
from antiphon.providers.router import ProviderRouter


def models_used(entries: Iterable[HistoryEntry]) -> list[str]:
    """The models that answered in these entries."""
    origins = (entry.origin for entry in entries if isinstance(entry, ModelOutputEntry) and entry.origin)
    return list(dict.fromkeys(f"{each.provider}/{each.model}" for each in origins if each.provider and each.model))


def models_elsewhere(here: Sequence[str]) -> list[tuple[str, str]]:
    """Models that would be there if a key was: the name, and the variable to set."""
    offered = ((f"{name}/{model}", PRESETS[name].key_variables[0]) for name, model in PREFERRED)
    return [(name, variable) for name, variable in offered if name not in here]


def model_named(wanted: str, here: Sequence[str], router: ProviderRouter, environ: Mapping[str, str]) -> str:
    """The model that is meant by a name or a part of one. Raises an error that names near misses, or what it lacks."""
    fitting = [name for name in here if wanted.lower() in name.lower()]
    name = fitting[0] if len(fitting) == 1 and wanted not in here else wanted
    try:
        provider = router.resolve(name)[0].provider
    except RoutingError:
        offered = [*here, *(f"{provider}/{model}" for provider, model in PREFERRED)]
        parts = {part: name for name in reversed(offered) for part in (name, name.partition("/")[2])}
        near = dict.fromkeys(parts[part] for part in difflib.get_close_matches(wanted, parts, n=3))
        if not near:
            raise
        raise RoutingError(f"there is no model {wanted!r}; did you mean {' or '.join(near)}?") from None
    if variables := _missing_key(provider, environ):
        raise ProviderSetupError(f"{name} needs a key: set {variables}; offline/plain needs none")
    router.client(provider)  # built now, so that what is wrong with it is told now and not in the middle of a turn
    return name


def _missing_key(provider: str, environ: Mapping[str, str]) -> str:
    """The variables of which one must be set, if none is."""
    preset = PRESETS.get(provider)
    if preset is None or not preset.needs_key:
        return ""
    variables = (*preset.key_variables, *preset.bearer_variables)
    return "" if any(environ.get(variable, "").strip() for variable in variables) else " or ".join(variables)
