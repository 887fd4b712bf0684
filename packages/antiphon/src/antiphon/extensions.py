"""What stands above the code that uses it: commands, and parts that a command or a page uses where they are installed.

The library imports none of them; it finds them by name when they are needed. Names of ours are in a table, which is asked
first, because importing `importlib.metadata` takes longer than most commands do. Other people's distributions register entry
points of the same groups: `antiphon.commands` (a module with `configure(parser)` and `run(arguments) -> exit code`) and
`antiphon.extensions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal, NamedTuple

from antiphon.errors import ExtraMissing

COMMANDS = "antiphon.commands"
EXTENSIONS = "antiphon.extensions"

_NO_LIBRARIES = frozenset({"builtins", "abc", "typing", "antiphon"})


class Part(NamedTuple):
    """A module that a distribution brings."""

    module: str
    distribution: str


OURS: dict[str, dict[str, Part]] = {
    COMMANDS: {
        "chat": Part("antiphon_chat.terminal", "antiphon-chat"),
        "serve": Part("antiphon_gateway.cli.serve", "antiphon-gateway"),
        "admin": Part("antiphon_gateway.cli.admin", "antiphon-gateway"),
        "key": Part("antiphon_gateway.cli.key", "antiphon-gateway"),
        "doctor": Part("antiphon_gateway.cli.doctor", "antiphon-gateway"),
        "worker": Part("antiphon.cli.worker", "antiphon"),
        "runs": Part("antiphon.cli.runs", "antiphon"),
        "convert": Part("antiphon.cli.formats.convert", "antiphon"),
        "check": Part("antiphon.cli.formats.check", "antiphon"),
        "repair": Part("antiphon.cli.formats.repair", "antiphon"),
        "conform": Part("antiphon_devtools.cli.conform", "antiphon-devtools"),
        "models": Part("antiphon.cli.models", "antiphon"),
        "prices": Part("antiphon.cli.prices", "antiphon"),
        "spend": Part("antiphon_gateway.cli.spend", "antiphon-gateway"),
        "replay": Part("antiphon_devtools.cli.replay", "antiphon-devtools"),
        "cache": Part("antiphon_devtools.cli.cache", "antiphon-devtools"),
        "tape": Part("antiphon_devtools.cli.tape", "antiphon-devtools"),
        "history": Part("antiphon.cli.history", "antiphon"),
        "tools": Part("antiphon.cli.tools", "antiphon"),
        "sessions": Part("antiphon_devtools.cli.sessions", "antiphon-devtools"),
        "import": Part("antiphon_devtools.cli.importing", "antiphon-devtools"),
        "export": Part("antiphon_devtools.cli.exporting", "antiphon-devtools"),
    },
    EXTENSIONS: {
        "cache_doctor": Part("antiphon_devtools.cache_doctor.conversation", "antiphon-devtools"),
        "cache_watch": Part("antiphon_devtools.cache_doctor.gateway_watch", "antiphon-devtools"),
        "cassettes": Part("antiphon_devtools.cassettes.serving", "antiphon-devtools"),
        "chat_page": Part("antiphon_chat.page.mounted.mount", "antiphon-chat"),
        "chat_runs": Part("antiphon_chat.shared.worker_runs", "antiphon-chat"),
        "gateway_config": Part("antiphon_gateway.config.file", "antiphon-gateway"),
        "guided_tour": Part("antiphon_chat.offline", "antiphon-chat"),
        "langchain_core": Part("antiphon.integrations.langchain", "antiphon"),
        "interchange": Part("antiphon.conversation.interchange", "antiphon"),
        "trajectories": Part("antiphon_devtools.cli.trajectories", "antiphon-devtools"),
    },
}


def load_part(group: str, name: str, used_for: str) -> ModuleType:
    """The module of that name. Raises `ExtraMissing`, which says what to install; `used_for` is what needs it."""
    found = find_part(group, name)
    if found is None:
        part = OURS[group].get(name)
        where = f"is in {part.distribution}: pip install {part.distribution}" if part else "is not installed"
        raise ExtraMissing(f"{used_for} {where}")
    return found


def find_part(group: str, name: str) -> ModuleType | None:
    """The module of that name; None if no installed distribution brings it."""
    part = OURS[group].get(name)
    if part is None:
        return next((import_module(value) for known, value in other_parts(group) if known == name), None)
    if find_spec(part.module.partition(".")[0]) is None:
        return None
    return import_module(part.module)


def adapt(what: Literal["tool", "model"], given: object) -> Any:
    """What the integration with another library makes of an object of its; None if there is none.

    An extension that has the name of the library (`langchain_core`) is asked: its `adapt_tool` or `adapt_model`.
    """
    for library in dict.fromkeys(base.__module__.partition(".")[0] for base in type(given).__mro__):
        part = None if library in _NO_LIBRARIES else find_part(EXTENSIONS, library)
        adapted = getattr(part, f"adapt_{what}", lambda _: None)(given)
        if adapted is not None:
            return adapted
    return None


def other_parts(group: str) -> Iterator[tuple[str, str]]:
    """Name and module of the parts that distributions of others register."""
    from importlib.metadata import entry_points

    ours = OURS[group]
    yield from ((point.name, point.value) for point in entry_points(group=group) if point.name not in ours)
