"""The oldest versions of our own dependencies that the packages allow, one a line, for pip to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECTS = sorted((Path(__file__).parents[2] / "packages").glob("*/pyproject.toml"))
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,-]+\])?>=(?P<floor>[\d.]+),<(?P<below>[\d.]+)")


def requirements() -> dict[str, tuple[str, str]]:
    """The floor and the upper bound of every dependency at run time, those of the extras included."""
    projects = [tomllib.loads(path.read_text())["project"] for path in PROJECTS]
    wanted = [
        one
        for project in projects
        for needed in (project["dependencies"], *project.get("optional-dependencies", {}).values())
        for one in needed
    ]
    found = {}
    for one in wanted:
        if one.startswith("antiphon"):  # ours, of the same version
            continue
        match = _REQUIREMENT.fullmatch(one)
        assert match, f"{one}: a dependency has a floor and an upper bound, name>=1.2,<2"
        found[match["name"] + (match["extras"] or "")] = (match["floor"], match["below"])
    return found


if __name__ == "__main__":
    print(*(f"{name}=={floor}" for name, (floor, _) in requirements().items()), sep="\n")
