"""The command line of the library names the formats of trajectories, although another distribution writes them."""

from antiphon.cli.exporting import TRAJECTORY_FORMATS as NAMED
from antiphon_devtools.trajectories import TRAJECTORY_FORMATS


def test_the_command_line_names_every_format() -> None:
    assert NAMED == TRAJECTORY_FORMATS
