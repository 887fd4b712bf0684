"""The oldest versions of our own dependencies that pyproject.toml allows, one a line, for pip to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,-]+\])?>=(?P<floor>[\d.]+),<(?P<below>[\d.]+)")


def requirements() -> dict[str, tuple[str, str]]:
    """The floor and the upper bound of every dependency at run time, those of the extras included."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name in sorted(extras.keys() - {"dev", "all"}) for one in extras[name]),
    ]
    found = {}
    for one in wanted:
        match = _REQUIREMENT.fullmatch(one)
        assert match, f"{one}: a dependency has a floor and an upper bound, name>=1.2,<2"
        found[match["name"] + (match["extras"] or "")] = (match["floor"], match["below"])
    return found


if __name__ == "__main__":
    print(*(f"{name}=={floor}" for name, (floor, _) in requirements().items()), sep="\n")
