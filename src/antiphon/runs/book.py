"""`RunBook`: what a worker can play, by name.

A run says only what kind it is and what its submitter wanted; the code of the kind says which model, which tools and which
bounds that means. It is a function from the history and the run to a `ToolLoop`:

    book = RunBook()

    @book.kind("research", code=2)
    def research(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation("anthropic/claude-…", tools=[look_up], history=history), max_rounds=20)

It may be async, and it may be an async generator that yields the one loop. What is returned, the worker closes when the run is
put away; what is yielded, the generator closes itself, and so it may share things between runs.

`code` is the version of the function. It grows when runs begin to need something that older workers lack; a worker is given no
run that asks for more than it has.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TypeAlias, TypeVar

from msgspec import Struct

from antiphon.conversation import ToolLoop
from antiphon.errors import RunBookRefused
from antiphon.history import AgentHistory, Run

Build: TypeAlias = Callable[[AgentHistory, Run], ToolLoop | Awaitable[ToolLoop] | AsyncIterator[ToolLoop]]
B = TypeVar("B", bound=Build)


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of run: the function that builds its loop, the version of that, and whose limit its runs count against."""

    name: str
    code: int
    provider: str
    build: Build

    @asynccontextmanager
    async def loop(self, history: AgentHistory, run: Run) -> AsyncIterator[ToolLoop]:
        """The loop that plays `run`, and at the end what it needed closed."""
        if inspect.isasyncgenfunction(self.build):
            async with asynccontextmanager(self.build)(history, run) as loop:
                yield self._checked(loop)
            return
        built = self.build(history, run)
        loop = self._checked(await built if inspect.isawaitable(built) else built)
        try:
            yield loop
        finally:
            await loop.chat.aclose()

    def _checked(self, built: object) -> ToolLoop:
        if not isinstance(built, ToolLoop):
            raise RunBookRefused(f"the kind {self.name!r} is to give a ToolLoop, and gave {type(built).__name__}")
        return built


class RunBook:
    """The kinds of runs there are."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def kind(self, name: str, *, code: int = 0, provider: str = "") -> Callable[[B], B]:
        """Say how runs of this kind are played. `provider` is whose limit they count against, where the submitter says none."""
        if not name or name != name.strip():
            raise RunBookRefused(f"a kind of run has a name, and {name!r} is none")
        if name in self._kinds:
            raise RunBookRefused(f"there is a kind {name!r} already; give each its own name")
        if code < 0:
            raise RunBookRefused(f"the code of a kind counts from 0, and that of {name!r} is {code}")

        def enter(build: B) -> B:
            self._kinds[name] = Kind(name=name, code=code, provider=provider, build=build)
            return build

        return enter

    def get(self, name: str) -> Kind | None:
        return self._kinds.get(name)

    @property
    def codes(self) -> dict[str, int]:
        """The kinds, each with the version of its code."""
        return {kind.name: kind.code for kind in self._kinds.values()}

    def __len__(self) -> int:
        return len(self._kinds)

    def __repr__(self) -> str:
        return f"<RunBook {', '.join(f'{name} {code}' for name, code in self.codes.items()) or 'without kinds'}>"


def book_at(place: str) -> RunBook:
    """The book that `module:name` leads to; modules are looked for in the current folder too."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise RunBookRefused(f"{place!r} names no book; write module:name, as in `--app my_agents:book`")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever the module does when it is imported
        raise RunBookRefused(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    book = getattr(module, name, None)
    if not isinstance(book, RunBook):
        found = "there is none" if book is None else f"it is a {type(book).__name__}"
        raise RunBookRefused(f"{place} is to be a RunBook, and {found}")
    if not len(book):
        raise RunBookRefused(f"{place} has no kinds of runs; enter one with @{name}.kind(…)")
    return book
