"""Build the four packages and try them as a stranger would.

python tools/release.py build dist [v0.2.0]   wheels and source distributions, judged by twine; a tag must name their version
python tools/release.py try dist [3.12 …]     each package, from its wheel and from its sdist, in an empty environment of its own,
                                              on these versions of Python, or on each one that the metadata name
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ORDER = ("antiphon", "antiphon-gateway", "antiphon-chat", "antiphon-devtools")
UV = (sys.executable, "-m", "uv")
SMOKE = {
    "antiphon": [["--version"], ["models", "claude-sonnet-5"]],
    "antiphon-gateway": [["serve", "--schema"]],
    "antiphon-chat": [["chat", "-p", "hello"]],
    "antiphon-devtools": [["conform", "--help"], ["sessions", "--json"]],
}


def _project(package: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
    return project


def version_of(package: str) -> str:
    return str(_project(package)["version"])


def build(folder: Path, tag: str = "") -> None:
    versions = {version_of(package) for package in ORDER}
    if len(versions) != 1:
        raise SystemExit(f"the packages have several versions: {', '.join(sorted(versions))}; see tools/set_version.py")
    (version,) = versions
    if tag and tag != f"v{version}":
        raise SystemExit(f"the tag {tag} does not name the version of the packages, {version}")
    if tag:
        check_changes(version)
    for package in ORDER:
        subprocess.run([*UV, "build", "-q", "-o", str(folder), f"packages/{package}"], cwd=ROOT, check=True)
    built = sorted(str(file) for file in folder.iterdir() if file.suffix in {".whl", ".gz"})
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True)


def check_changes(version: str) -> None:
    """What is published is the first section of the changes, with a date."""
    first = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if first is None or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", first[1]):
        found = "nothing" if first is None else first[1]
        raise SystemExit(f"CHANGELOG.md begins with {found}; {version} and its date were expected")


def claimed_versions() -> list[str]:
    """The versions of Python that the metadata of the packages name."""
    named = {
        classifier.rpartition(" ")[2]
        for package in ORDER
        for classifier in _project(package)["classifiers"]
        if classifier.startswith("Programming Language :: Python :: 3.")
    }
    return sorted(named, key=lambda version: int(version.partition(".")[2]))


def try_out(folder: Path, version: str) -> None:
    """Our own packages come from the folder only; what they need comes from the index."""
    for number, package in enumerate(ORDER):
        needed = ORDER[: number + 1]
        for pattern in ("-*.whl", "-*.tar.gz"):
            files = [_only(folder, one, "-*.whl") for one in needed[:-1]] + [_only(folder, package, pattern)]
            with tempfile.TemporaryDirectory() as home:
                environment = Path(home) / "env"
                if subprocess.run([*UV, "venv", "-q", "--python", version, str(environment)], check=False).returncode:
                    raise SystemExit(
                        f"no Python {version} here, and uv cannot fetch it; make dist PYTHONS=… names others"
                    )
                subprocess.run(
                    [*UV, "pip", "install", "-q", "--python", str(environment), *map(str, files)], check=True
                )
                for line in SMOKE[package]:
                    command = [str(environment / "bin" / "antiphon"), *line]
                    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
                    if done.returncode:
                        raise SystemExit(f"{files[-1].name}: antiphon {' '.join(line)} failed: {done.stderr}")
            print(f"{files[-1].name}: installs and runs on Python {version}", flush=True)


def _only(folder: Path, package: str, pattern: str) -> Path:
    found = sorted(folder.resolve().glob(package.replace("-", "_") + pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} has {len(found)} files {package.replace('-', '_')}{pattern}; one was expected")
    return found[0]


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build", folder, *tag] if len(tag) < 2:
            build(Path(folder).resolve(), *tag)
        case ["try", folder, *versions]:
            for version in versions or claimed_versions():
                try_out(Path(folder), version)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
