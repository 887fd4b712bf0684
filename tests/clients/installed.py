"""Programs installed from their registries, each into a folder of its own, once.

An installer runs other people's code: it gets a clean environment with a home of its own, and of ours only what says how
the registries are reached.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import msgspec
from msgspec import Struct

from clients.program import Program

NODE = "node@24"
"""Newer than what most systems bring, and what most of the programs ask for."""
_REACHED_BY = ("SSL_CERT", "NODE_EXTRA_CA", "PIP_", "npm_config_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class _Manifest(Struct):
    version: str


def install(program: Program, folder: Path) -> str:
    """Install a program unless it is there, and tell its version. Processes that want one at the same time take turns."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return _installed(program, folder)


def _installed(program: Program, folder: Path) -> str:
    if program.source == "npm":
        _npm(folder, "node", NODE)
        place = _npm(folder, program.folder, *program.packages)
        name = _bare(program.packages[0])
        manifest = (place / "node_modules" / name / "package.json").read_bytes()
        return msgspec.json.decode(manifest, type=_Manifest).version
    place = folder / program.folder
    if not (place / "bin" / "python").exists():
        _run(folder, sys.executable, "-m", "venv", str(place))
        _run(folder, str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *program.packages)
    libraries = [str(path) for path in place.glob("lib/python*/site-packages")]
    return next(iter(Distribution.discover(name=program.packages[0], path=libraries))).version


def _npm(folder: Path, name: str, *packages: str) -> Path:
    place = folder / name
    if not (place / "bin").is_symlink():  # the last thing made; it leads nowhere if no package has a command
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"name": "clients", "private": true}')
        # by their versions, for a bare name may also be a folder beside it
        named = [package if _bare(package) != package else f"{package}@latest" for package in packages]
        _run(folder, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(place), *named)
        (place / "bin").symlink_to(place / "node_modules" / ".bin")
    return place


def _bare(package: str) -> str:
    """The name of a package without the version that was asked for."""
    name, at, _ = package.rpartition("@")
    return name if at and name else package


def _run(folder: Path, *command: str) -> None:
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    reached = {name: value for name, value in os.environ.items() if name.startswith(_REACHED_BY)}
    path = f"{folder / 'node' / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **reached}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
