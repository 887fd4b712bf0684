"""Trajectories: conversations as training examples and as records of an agent's work.

`TrajectoryExport` turns a history into lines of one of three formats: OpenAI's fine-tuning JSONL, ShareGPT JSONL, and ATIF.
`selection.py` decides which branches and turns; each format is one file; every loss is reported, as translations do.
"""

from antiphon_devtools.trajectories.atif_reader import read_atif
from antiphon_devtools.trajectories.selection import BRANCHES, Trajectory, TurnFilter, select_trajectories
from antiphon_devtools.trajectories.writing import TRAJECTORY_FORMATS, TrajectoryExport, WrittenTrajectory

__all__ = [
    "BRANCHES",
    "TRAJECTORY_FORMATS",
    "Trajectory",
    "TrajectoryExport",
    "TurnFilter",
    "WrittenTrajectory",
    "read_atif",
    "select_trajectories",
]
