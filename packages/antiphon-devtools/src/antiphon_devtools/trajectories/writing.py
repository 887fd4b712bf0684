"""`TrajectoryExport`: one export of conversations to one format.

An export knows what it has written, so that turns which branches and forks share are marked as copied from the second time on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.errors import ConversationError
from antiphon.history import AgentHistory
from antiphon.wire.request import ToolDefinition
from antiphon_devtools.trajectories.media_files import MediaFolder
from antiphon_devtools.trajectories.selection import Trajectory, TurnFilter, select_trajectories

TRAJECTORY_FORMATS = ("openai-finetune", "sharegpt", "atif")

Writer: TypeAlias = Callable[
    [Trajectory, Sequence[ToolDefinition], MediaFolder], tuple[dict[str, Any] | None, list[str]]
]
"""Writes a trajectory: its body, or None if there is nothing to export, and what could not be carried."""


class WrittenTrajectory(Struct, frozen=True):
    """One line of an export. `body` is None if nothing was left to export; `notes` say what could not be carried."""

    trajectory: Trajectory
    body: dict[str, Any] | None
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> bytes:
        """The body as one line of JSON, with its line end; empty without a body."""
        return b"" if self.body is None else msgspec.json.encode(self.body) + b"\n"


class TrajectoryExport:
    """An export in progress, to `openai-finetune`, `sharegpt` or `atif`: `TrajectoryExport("atif").write(history)`.

    `branch` is `current`, `abandoned` (what rollbacks left), `all`, or the number of a version. `tools` are definitions of the
    tools; `media` is a folder for images and audio.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - as in `from_messages`
        *,
        branch: str = "current",
        keep: TurnFilter | None = None,
        tools: Sequence[ToolDefinition] = (),
        media: Path | None = None,
    ) -> None:
        self._write = _writer(format)
        self._branch = branch
        self._keep = keep
        self._tools = tuple(tools)
        self._media = MediaFolder(media)
        self._exported: set[bytes] = set()

    def write(self, history: AgentHistory, *, title: str = "", parent: str | None = None) -> list[WrittenTrajectory]:
        """The selected branches of a history. Raises `ConversationError` if it has no such branch."""
        selected = select_trajectories(
            history, branch=self._branch, keep=self._keep, title=title, parent=parent, exported=self._exported
        )
        return [self._written(trajectory) for trajectory in selected]

    def _written(self, trajectory: Trajectory) -> WrittenTrajectory:
        body, notes = self._write(trajectory, self._tools, self._media)
        return WrittenTrajectory(trajectory, body, (*trajectory.notes, *notes))


def _writer(name: str) -> Writer:
    """The writer of a format, imported on first use: commands know the names without them."""
    if name not in TRAJECTORY_FORMATS:
        raise ConversationError(f"unknown trajectory format {name!r}; expected one of: {', '.join(TRAJECTORY_FORMATS)}")
    module = name.replace("-", "_")
    writer: Writer = getattr(import_module(f"antiphon_devtools.trajectories.{module}"), f"write_{module}")
    return writer
