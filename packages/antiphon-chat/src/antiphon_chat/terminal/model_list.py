"""The list of models in the terminal, by source: for the first minute and for `/model`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.providers.default_model import OFFLINE
from antiphon.providers.local import INSTALL_HINT
from antiphon_chat.language import translate
from antiphon_chat.shared.models import model_title
from antiphon_chat.shared.setup.model_setup import ModelSource
from antiphon_chat.terminal.render import Renderer

_SHOWN = 6


def model_list(
    renderer: Renderer, sources: Sequence[ModelSource], current: str, names: Sequence[str] = (), *, is_long: bool
) -> str:
    """The sources as a table; with `is_long` the models they list too. `names` are further models, such as those used before."""
    rows = [row for source in sources for row in _rows(source, current, is_long)]
    shown = {name for source in sources for name in (source.model, *source.models)}
    rows += [("→" if name == current else "", _shown(name), "") for name in names if name not in shown]
    rows.append(("", translate("/key PROVIDER"), translate("paste an API key; it is not shown")))
    return renderer.table(("", translate("MODEL"), ""), rows)


def _rows(source: ModelSource, current: str, is_long: bool) -> Iterator[tuple[str, str, str]]:
    count = len(source.models)
    about = describe(source) + (" · " + translate("{count} models", count=count) if count > 1 else "")
    name = source.model or f"{source.provider}/…"
    yield "→" if name == current else "", _shown(name), about
    others = [model for model in source.models if model != source.model]
    for model in others[:_SHOWN] if is_long else ():
        yield "→" if model == current else "", model, ""
    if is_long and len(others) > _SHOWN:
        rest = len(others) - _SHOWN
        yield "", f"{source.provider}/…", translate("{count} more; Tab after /model searches them", count=rest)


def _shown(name: str) -> str:
    """A model as `/model` takes it: the tour by its title."""
    return model_title(name) if name == OFFLINE else name


def describe(source: ModelSource) -> str:
    """What a source is, in one phrase."""
    match source.kind:
        case "key" if source.is_stored:
            return translate("key stored on this machine")
        case "key" | "server" if source.variable:
            return translate("{key} is set", key=source.variable)
        case "server":
            return translate("found on this machine")
        case "local" if source.is_ready:
            return translate("small local model: real, but weak")
        case "local":
            return translate("small local model, weak; to install: {command}", command=INSTALL_HINT)
        case "tour":
            return translate("not a model, needs no key")
        case _:
            return ""
