"""`Standing`: how the state of a graph stands to the log when a step begins.

A graph knows a conversation up to the version in its state. The log may have gone further, and why it has decides what to do.
It is read off the marks that steps leave in the log (see `mark`), never guessed:

    no mark behind the version       `fresh`     the step goes on from here; what people added meanwhile is part of it
    the last mark is this task's     `resumed`   the step ran before and its checkpoint was not saved: a crash, a retry
    it is another node's of this     refused     two nodes of one step cannot write one conversation
      very checkpoint
    it, or a checkpoint that knows   refused     another run of the thread has gone on since this one began
      of it, is later than our run
    its work is in no checkpoint     `kept`      a step crashed and was not run again, because something new was asked: what
                                                 it did has happened, and stays
    else                             `fresh`     the graph went back to an earlier checkpoint: so does the log, by a
                                                 rollback to the version that the graph knows

A conversation belongs to the thread whose step marked it last. Another thread that comes with a state of it (copied from there)
gets a fork at its version; one that names the conversation and no version takes it over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from antiphon.errors import GraphError, RunOvertaken
from antiphon.graph.holdings import at_once
from antiphon.graph.lineage import Lineage
from antiphon.graph.mark import append_mark, last_mark, marks_after
from antiphon.graph.place import Place
from antiphon.history import AgentHistory

Standing: TypeAlias = Literal["fresh", "resumed", "kept"]


def belongs_elsewhere(history: AgentHistory, place: Place, version: int | None) -> bool:
    """Whether a conversation is another thread's, and the state only a copy."""
    if version is None or not place.thread:
        return False
    mark = last_mark(history)
    return mark is not None and bool(mark.thread) and mark.thread != place.thread


async def standing_of(
    history: AgentHistory, place: Place, version: int, look: Callable[[], Awaitable[Lineage | None]]
) -> Standing:
    """How a state at `version` stands to the log; rolls the log back where the graph went back.

    `look` finds what the checkpoints of the thread know. Where nobody keeps any, whoever gave the state its version meant it.
    """
    if version > history.version:
        raise GraphError(
            f"the graph's state says version {version} of conversation {history.id}, which has only {history.version}: it is "
            "another store, or one that was restored from a copy. Give the state the version to go on from"
        )
    marks = marks_after(history, version)
    if not marks:
        return "fresh"
    last = marks[-1]
    if last.task == place.task:
        return "resumed"
    if place.checkpoint and last.checkpoint == place.checkpoint:
        raise at_once(history.id, last.node, place.node)
    if place.checkpoint and last.checkpoint > place.checkpoint:
        raise _overtaken(history, place, version)
    lineage = await look()
    if lineage is not None:
        if lineage.was_overtaken(version):
            raise _overtaken(history, place, version)
        if any(mark.state == version for mark in marks if mark.number > lineage.known):
            return "kept"
    history.rollback(version, "the graph went back to here")
    append_mark(history, place, version)  # so that the step does not go back once more when it is resumed
    return "fresh"


def _overtaken(history: AgentHistory, place: Place, version: int) -> RunOvertaken:
    return RunOvertaken(
        f"conversation {history.id} has gone on to version {history.version} in another run of thread "
        f"{place.thread or '(none)'} since this one began at version {version}. Nothing was done; invoke the graph again"
    )
