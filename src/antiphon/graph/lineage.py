"""`Lineage`: what the checkpoints of a thread know of a conversation, and from which of them a run stems.

It is looked up only where the log has gone further than the state of a step and its marks alone do not say why: rarely, and
then it costs as much as the thread is long. Each checkpoint has its parent, and ids sort by time. A run's first own checkpoint
holds its input, or is the fork with which LangGraph begins when it is sent back to an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from antiphon.graph.place import Place


class Checkpoint(Struct, frozen=True):
    """One checkpoint: the version of the conversation in it, or 0 if it knows another one or none."""

    id: str
    parent: str
    source: str
    version: int


class Lineage:
    """The checkpoints of a thread, as seen from one of them."""

    def __init__(self, checkpoints: Iterable[Checkpoint], place: Place) -> None:
        self._all = {one.id: one for one in checkpoints}
        self._ours = {place.checkpoint}
        self._began = place.checkpoint
        one = self._all.get(place.checkpoint)
        is_own_run = True
        while one is not None:
            self._ours.add(one.id)
            if is_own_run:
                self._began = one.id
            is_own_run = is_own_run and one.source == "loop"
            one = self._all.get(one.parent)

    @property
    def known(self) -> int:
        """The latest version that any checkpoint knows."""
        return max((one.version for one in self._all.values()), default=0)

    def was_overtaken(self, version: int) -> bool:
        """Whether the thread came to a later version than this in another run, and only after ours began."""
        return any(
            one.version > version and one.id > self._began and one.id not in self._ours for one in self._all.values()
        )


async def lineage_of(config: Mapping[str, Any], place: Place, conversation: str, is_async: bool) -> Lineage | None:
    """What the graph's checkpointer keeps of the thread; None where there is none."""
    # Where LangGraph hands it on to the graphs inside a graph; it has no public name.
    saver: Any = (config.get("configurable") or {}).get("__pregel_checkpointer")
    if not place.thread or not hasattr(saver, "list"):
        return None
    thread: Any = {"configurable": {"thread_id": place.thread}}
    kept = [one async for one in saver.alist(thread)] if is_async else list(saver.list(thread))
    return Lineage((_read(one, conversation) for one in kept), place)


def _read(kept: Any, conversation: str) -> Checkpoint:
    values = kept.checkpoint["channel_values"]
    # The first checkpoint of a graph inside a graph stems from one of the graph around it.
    around = next(iter((kept.metadata.get("parents") or {}).values()), "")
    parent = (kept.parent_config or {}).get("configurable", {}).get("checkpoint_id", "") or around
    version = values.get("version", 0) if values.get("conversation") == conversation else 0
    return Checkpoint(kept.checkpoint["id"], parent, str(kept.metadata.get("source", "")), version)
