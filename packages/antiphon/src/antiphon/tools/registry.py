"""`ToolRegistry`: the tools on offer, by name.

Tools come as they are, as plain functions, or from sources (an MCP server) that are listed when the registry is opened. They
keep the order in which they came, and `definitions` is the same tuple until something changes, so that what a provider is
sent stays the same and its prompt cache keeps hitting (law L9). Two tools of one name are refused, never shadowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from antiphon.closing import AsyncClosable
from antiphon.errors import InvalidTool
from antiphon.extensions import adapt
from antiphon.text import near_misses
from antiphon.tools.tool import FunctionTool, Tool
from antiphon.wire.request import ToolDefinition


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that must be listed, such as an MCP server.

    One whose tools may change has `revision`, a number that grows with each change: it is listed again when that differs.
    """

    async def tools(self) -> Sequence[Tool]:
        """The tools there are now."""
        ...

    async def aclose(self) -> None:
        """Release whatever the tools need."""
        ...


class LangChainToolLike(Protocol):
    """A tool of LangChain, as `@tool` of `langchain_core.tools` makes one."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def ainvoke(self, input: Any) -> Any: ...  # noqa: A002 - LangChain's name


ToolLike: TypeAlias = Tool | ToolSource | LangChainToolLike | Callable[..., Any]


class ToolRegistry(AsyncClosable):
    """The tools on offer. With sources among them, use it as `async with`, or call `open` and `aclose`."""

    def __init__(self, offered: Iterable[ToolLike] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.sources: list[ToolSource] = []
        """The sources that `open` lists; without any, it need not be called."""
        self._names_of: dict[int, list[str]] = {}
        self._revisions: dict[int, int] = {}
        self._definitions: tuple[ToolDefinition, ...] | None = None
        if not isinstance(offered, Iterable):
            raise InvalidTool(f"tools are a list; write [{getattr(offered, '__name__', type(offered).__name__)}]")
        for one in offered:
            self.add(one)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The definitions of the tools, as sent to a provider."""
        if self._definitions is None:
            self._definitions = tuple([tool.definition for tool in self._tools.values()])
        return self._definitions

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """The tools that do not come from a source."""
        of_sources = {name for names in self._names_of.values() for name in names}
        return tuple(tool for name, tool in self._tools.items() if name not in of_sources)

    def get(self, name: str) -> Tool | None:
        """The tool with that name, or None."""
        return self._tools.get(name)

    def near_misses(self, name: str) -> list[str]:
        """The tools that were probably meant by an unknown name."""
        return near_misses(name, self._tools)

    def add(self, offered: ToolLike) -> None:
        """Offer a tool, a plain function, a tool of LangChain, or what a source has (from the next `open` or `refresh` on)."""
        if isinstance(offered, Tool):
            self._add_tool(offered)
        elif isinstance(offered, ToolSource) and not isinstance(offered, type):
            self.sources.append(offered)
        elif not isinstance(offered, FunctionType) and (adapted := adapt("tool", offered)) is not None:
            self._add_tool(adapted)
        elif callable(offered):
            self._add_tool(FunctionTool(offered))
        else:
            raise InvalidTool(
                "not a tool: expected a Tool, a function, a ToolSource or a LangChain tool, "
                f"got {type(offered).__name__}"
            )

    def remove(self, name: str) -> None:
        """Remove this tool. An unknown name is an error."""
        if name not in self._tools:
            raise InvalidTool(
                f"unknown tool {name!r}: cannot remove it; the tools are {', '.join(self._tools) or 'none'}"
            )
        del self._tools[name]
        self._definitions = None

    async def open(self) -> None:
        """List the sources that were not listed yet, and those whose tools have changed since (`revision`).

        If one fails, nothing of it is offered, and the error is raised.
        """
        for source in self.sources:
            is_listed = id(source) in self._names_of
            if not is_listed or getattr(source, "revision", 0) != self._revisions.get(id(source), 0):
                await self._load(source)

    async def refresh(self) -> None:
        """List all sources again: removes tools that are gone and adds new ones."""
        for source in self.sources:
            await self._load(source)

    async def aclose(self) -> None:
        """Close the sources and remove their tools. All are closed, even if one fails."""
        errors: list[Exception] = []
        for source in reversed(self.sources):
            for name in self._names_of.pop(id(source), ()):
                self._tools.pop(name, None)
            try:
                await source.aclose()
            except Exception as error:  # the others must be closed too
                errors.append(error)
        self._definitions = None
        if errors:
            raise errors[0]

    async def _load(self, source: ToolSource) -> None:
        revision = getattr(source, "revision", 0)
        offered = await source.tools()
        old = self._names_of.get(id(source), [])
        names = [tool.name for tool in offered]
        if taken := sorted(
            {name for name in names if names.count(name) > 1 or (name in self._tools and name not in old)}
        ):
            raise InvalidTool(f"{_source_name(source)} offers tools whose names are taken: {', '.join(taken)}")
        for name in set(old) - {tool.name for tool in offered}:
            self._tools.pop(name, None)
        # Those that stay keep their place, so that what providers were sent stays a prefix.
        self._tools.update((tool.name, tool) for tool in offered)
        self._names_of[id(source)] = [tool.name for tool in offered]
        self._revisions[id(source)] = revision
        self._definitions = None

    def _add_tool(self, tool: Tool) -> None:
        if tool.name in self._tools:
            raise InvalidTool(
                f"there are two tools called {tool.name!r}; give one of them another name, with @tool(name=…)"
            )
        self._tools[tool.name] = tool
        self._definitions = None

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools


def _source_name(source: ToolSource) -> str:
    return str(getattr(source, "name", "") or type(source).__name__)
