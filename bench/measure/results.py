"""The results of a group: figures, growths, what could not be measured, and the circumstances.

One small JSON file per group, `bench/results/GROUP.json`, replaced when the group is measured again. It has versions, the load
and the kind of machine, and no path. `source` is a digest of the package and the bench, so that an interrupted run can be
resumed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.measure.figures import Figure, Growth, Point

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench" / "results"
PACKAGES = ("msgspec", "httptools", "aiohttp", "splintr-rs")

Line = Figure | Growth | str
"""A figure, a growth, or what could not be measured and why."""


class Machine(Struct, frozen=True):
    """Where it was measured."""

    python: str
    system: str
    cores: int
    processor: str
    versions: dict[str, str]


class Results(Struct, frozen=True, kw_only=True):
    """The results of one group. `load` is the load average of a minute before and after."""

    group: str
    taken: datetime
    source: str
    seconds: int
    load: tuple[float, float]
    machine: Machine
    figures: tuple[Figure, ...] = ()
    growths: tuple[Growth, ...] = ()
    not_measured: tuple[str, ...] = ()

    @property
    def promised(self) -> list[Figure | Growth]:
        """The lines that promise something."""
        lines: list[Figure | Growth] = [*self.figures, *self.growths]
        return [line for line in lines if line.at_most is not None]

    @property
    def not_held(self) -> list[Figure | Growth]:
        """The promises that do not hold."""
        return [line for line in self.promised if not line.holds]


def build_results(group: str, lines: Sequence[Line], *, began: datetime, load: float, source: str) -> Results:
    """The results of a group, with the circumstances."""
    now = datetime.now(UTC)
    return Results(
        group=group,
        taken=now.replace(microsecond=0),
        source=source,
        seconds=round((now - began).total_seconds()),
        load=(round(load, 2), round(os.getloadavg()[0], 2)),
        machine=machine(),
        figures=tuple(_rounded(line) for line in lines if isinstance(line, Figure)),
        growths=tuple(_rounded_growth(line) for line in lines if isinstance(line, Growth)),
        not_measured=tuple(_plain(line) for line in lines if isinstance(line, str)),
    )


def _plain(line: str) -> str:
    """A line without its columns and without paths."""
    return " ".join(line.replace(str(ROOT), ".").split())


def _rounded(figure: Figure) -> Figure:
    """The figure with five digits: a clock is not more precise."""
    names = ("ours", "theirs", "our_median", "their_median")
    values = {name: value for name in names if (value := getattr(figure, name)) is not None}
    return msgspec.structs.replace(figure, **{name: _digits(value) for name, value in values.items()})


def _rounded_growth(growth: Growth) -> Growth:
    points = (Point(point.size, _digits(point.least), _digits(point.median)) for point in growth.points)
    return msgspec.structs.replace(growth, points=tuple(points))


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def machine() -> Machine:
    """This machine, in general terms."""
    versions = {"sqlite": sqlite3.sqlite_version}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        processor=_processor(),
        versions=versions,
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def source_digest() -> str:
    """The first twelve digits of a digest of the measured code."""
    digest = hashlib.sha256()
    for folder in ("packages", "bench"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def write(results: Results, folder: Path = FOLDER) -> Path:
    """Write the file, one line per figure."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{results.group}.json"
    fields = [f"{_json(name)}: {_listed(getattr(results, name))}" for name in results.__struct_fields__]
    file.write_text("{\n" + ",\n".join(fields) + "\n}\n")
    return file


def _listed(value: object) -> str:
    if isinstance(value, tuple) and not all(isinstance(one, float) for one in value):
        return "[\n" + ",\n".join(map(_json, value)) + "\n]"
    return _json(value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def read(group: str, folder: Path = FOLDER) -> Results | None:
    """The stored results of a group; None if it was not measured."""
    file = folder / f"{group}.json"
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else None


def read_all(groups: Sequence[str]) -> list[Results]:
    """The stored results of the groups that were measured."""
    return [results for group in groups if (results := read(group)) is not None]
