"""`RunRegistry`: the kinds of runs a worker can execute, by name.

A run names its kind and carries its options; the kind's function decides on the model, the tools and the limits. It takes the
history and the run, and returns a `ToolLoop`:

    registry = RunRegistry()

    @registry.kind("research", code=2)
    def research(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation("anthropic/claude-…", tools=[look_up], history=history), max_rounds=20)
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
from antiphon.errors import RunConfigError
from antiphon.history import AgentHistory, Run

LoopFactory: TypeAlias = Callable[[AgentHistory, Run], ToolLoop | Awaitable[ToolLoop] | AsyncIterator[ToolLoop]]
F = TypeVar("F", bound=LoopFactory)


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of run: the function that builds its loop, the version of that function, and the provider whose limit applies."""

    name: str
    code: int
    provider: str
    build: LoopFactory

    @asynccontextmanager
    async def loop(self, history: AgentHistory, run: Run) -> AsyncIterator[ToolLoop]:
        """The loop for `run`. A loop that was returned is closed at the end; a generator closes what it yielded itself."""
        if inspect.isasyncgenfunction(self.build):
            async with asynccontextmanager(self.build)(history, run) as loop:
                yield self._check(loop)
            return
        built = self.build(history, run)
        loop = self._check(await built if inspect.isawaitable(built) else built)
        try:
            yield loop
        finally:
            await loop.chat.aclose()

    def _check(self, built: object) -> ToolLoop:
        if not isinstance(built, ToolLoop):
            raise RunConfigError(f"kind {self.name!r} must return a ToolLoop, got {type(built).__name__}")
        return built


class RunRegistry:
    """A registry of kinds of runs."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def kind(self, name: str, *, code: int = 0, provider: str = "") -> Callable[[F], F]:
        """Register a function for runs of this kind: sync, async, or an async generator that yields the one loop.

        `code` is the version of the function. Raise it when runs need something that older workers lack; a worker only gets
        runs whose code it has. `provider` names the limit these runs count against, unless the submitter names another.
        """
        if not name or name != name.strip():
            raise RunConfigError(f"invalid kind name {name!r}: expected text without spaces around it")
        if name in self._kinds:
            raise RunConfigError(f"kind {name!r} is already registered; use another name")
        if code < 0:
            raise RunConfigError(f"kind {name!r} has code={code}: must be at least 0")

        def register(build: F) -> F:
            self._kinds[name] = Kind(name=name, code=code, provider=provider, build=build)
            return build

        return register

    def get(self, name: str) -> Kind | None:
        """The kind with that name, or None."""
        return self._kinds.get(name)

    @property
    def codes(self) -> dict[str, int]:
        """The code version of each kind."""
        return {kind.name: kind.code for kind in self._kinds.values()}

    def __len__(self) -> int:
        return len(self._kinds)

    def __repr__(self) -> str:
        return f"<RunRegistry {', '.join(f'{name} {code}' for name, code in self.codes.items()) or 'empty'}>"


def find_kind(build: RunRegistry | LoopFactory, run: Run) -> Kind:
    """The kind that executes a run: the one it names in a registry, or a single function for all."""
    if not isinstance(build, RunRegistry):
        return Kind(name=run.kind or "turn", code=run.code, provider="", build=build)
    kind = build.get(run.kind)
    if kind is None:
        raise RunConfigError(f"unknown kind of run {run.kind!r}; this registry has {', '.join(build.codes) or 'none'}")
    if kind.code < run.code:
        raise RunConfigError(f"a run of kind {run.kind!r} needs code {run.code}; this worker has {kind.code}")
    return kind


def load_run_registry(path: str) -> RunRegistry:
    """Import the registry at `module:name`; modules in the current folder are found too."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise RunConfigError(f"invalid registry {path!r}: expected module:name, as in `--app my_agents:registry`")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except Exception as error:  # importing a module runs arbitrary code
        raise RunConfigError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    registry = getattr(module, name, None)
    if not isinstance(registry, RunRegistry):
        found = "not defined" if registry is None else f"a {type(registry).__name__}"
        raise RunConfigError(f"{path} is {found}; expected a RunRegistry")
    if not len(registry):
        raise RunConfigError(f"{path} has no kinds of runs; register one with @{name}.kind(…)")
    return registry
