"""`Place`: where in a run of a graph a node is at work, in LangGraph's own words.

LangGraph derives the id of a task from the checkpoint that its step began with, and from the node. So a step that is run again,
after a crash or by a retry, is the same task; a run that goes back to an earlier checkpoint gets a checkpoint of its own first,
and with it new tasks. Ids of checkpoints sort by time: that is how LangGraph itself finds the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from antiphon.errors import GraphError
from antiphon.history.ids import new_id

MISSING = 'LangGraph is not installed; install the extra: pip install "antiphon[graph]"'


class Place(Struct, frozen=True, kw_only=True):
    """A node at work. Outside of a graph it is nowhere: a task of its own, and no thread."""

    task: str
    checkpoint: str = ""
    thread: str = ""
    node: str = ""
    run: str = ""
    """Which run of the graph, if that is told when it ends (`Conversations.bind`)."""
    write: Callable[[Any], None] | None = None
    """Takes what a reader of the stream is to hear (`stream_mode="custom"`)."""


def place_in(config: Mapping[str, Any], run: str = "") -> Place:
    """Where the node is that was called with `config`."""
    try:
        from langgraph.runtime import get_runtime
    except ImportError as error:
        raise GraphError(MISSING) from error
    metadata = config.get("metadata") or {}
    try:
        runtime = get_runtime()
    except RuntimeError:  # called by hand
        return Place(task=new_id(), run=run)
    info = runtime.execution_info
    if info is None:
        return Place(task=new_id(), run=run, write=runtime.stream_writer)
    return Place(
        task=info.task_id,
        checkpoint=info.checkpoint_id,
        thread=str(info.thread_id or ""),
        node=str(metadata.get("langgraph_node", "")),
        run=run,
        write=runtime.stream_writer,
    )
