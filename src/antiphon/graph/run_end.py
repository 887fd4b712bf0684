"""How a graph's run tells that it is over: a callback handler that LangGraph calls at its beginning and its end.

Nodes run as children of the run that was invoked, at any depth. The handler remembers for each run the one it stems from, so a
node can say on whose behalf it holds a conversation, and the end of that run gives it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler


class RunEnds:
    """Knows the runs that are under way. `ended` is told the id of one that is over."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._roots: dict[UUID, UUID] = {}
        self._handler: Any = None

    def root_of(self, callbacks: Any) -> str:
        """The run that a node with these `callbacks` works for; empty if nobody would tell of its end."""
        root = self._roots.get(getattr(callbacks, "parent_run_id", None))  # type: ignore[arg-type]
        return str(root) if root is not None else ""

    def began(self, run_id: UUID, parent: UUID | None) -> None:
        self._roots[run_id] = self._roots.get(parent, run_id) if parent is not None else run_id

    def over(self, run_id: UUID) -> None:
        if self._roots.pop(run_id, None) == run_id:
            self._ended(str(run_id))

    @property
    def handler(self) -> BaseCallbackHandler:
        """What LangGraph is to be given."""
        if self._handler is None:
            self._handler = _handler(self)
        return self._handler  # type: ignore[no-any-return]


def _handler(ends: RunEnds) -> BaseCallbackHandler:
    from langchain_core.callbacks import BaseCallbackHandler

    class RunEndHandler(BaseCallbackHandler):
        run_inline = True  # on the event loop too: the lease is back before whoever invoked goes on

        ignore_chat_model = True

        def on_chain_start(self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **__: Any) -> None:
            ends.began(run_id, parent_run_id)

        def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
            ends.over(run_id)

        def on_chain_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
            ends.over(run_id)

    return RunEndHandler()
