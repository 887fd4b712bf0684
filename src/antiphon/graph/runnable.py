"""`RunnableNode`: a node that LangGraph calls as it is, awaited or not.

LangGraph takes any function as a node, but runs a plain one in a thread where it is awaited, and an awaited one not at all
where it is not. A LangChain `Runnable` is called the way the graph is. That base class is mixed in when a node is made, since
LangGraph is not loaded before somebody uses it.
"""

from __future__ import annotations

from functools import cache
from types import new_class
from typing import Any, Self

from antiphon.conversation.sync import run_sync
from antiphon.errors import GraphError
from antiphon.graph.place import MISSING


class RunnableNode:
    """What `made` does with the graph's state, as a node."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        kind: Any = cls
        node: Self = object.__new__(_as_runnable(kind))
        return node

    async def made(self, state: Any, config: Any, *, is_async: bool) -> dict[str, Any]:
        """The state's new values. `is_async` says whether the graph awaits its nodes."""
        raise NotImplementedError

    def __call__(self, state: Any, config: Any = None) -> dict[str, Any]:
        return self.invoke(state, config)

    def invoke(self, state: Any, config: Any = None, **_: Any) -> dict[str, Any]:
        """Do it now."""
        return run_sync(self.made(state, config or _config_here(), is_async=False))

    async def ainvoke(self, state: Any, config: Any = None, **_: Any) -> dict[str, Any]:
        """`invoke` for code that awaits."""
        return await self.made(state, config or _config_here(), is_async=True)


def _config_here() -> Any:
    """The config of the node by which this one is called, if there is one."""
    from langchain_core.runnables.config import ensure_config

    return ensure_config()


@cache
def _as_runnable(node: Any) -> Any:
    """The class with LangChain's base behind it."""
    try:
        from langchain_core.runnables import Runnable
    except ImportError as error:
        raise GraphError(MISSING) from error
    if issubclass(node, Runnable):
        return node
    return new_class(node.__name__, (node, Runnable), exec_body=lambda body: body.update(__module__=node.__module__))
