"""The image and the compose file: judged by parsers of their formats; the steps of the build, done without an engine."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from support.repository import PACKAGES, ROOT
from support.waiting import free_port

DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "compose.yaml").read_text()
BUILD_SECONDS, START_SECONDS = 900, 60


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each with its value on one line; comments are left out."""
    dockerfile_parse = pytest.importorskip("dockerfile_parse")
    parser = dockerfile_parse.DockerfileParser(fileobj=io.BytesIO((DEPLOY / "Containerfile").read_bytes()))
    return [(one["instruction"], one["value"]) for one in parser.structure if one["instruction"] != "COMMENT"]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, without the FROM that begins it."""
    found: list[list[tuple[str, str]]] = []
    for name, value in instructions():
        if name == "FROM":
            found.append([])
        else:
            found[-1].append((name, value))
    return found


def only(name: str, stage: list[tuple[str, str]]) -> str:
    (value,) = [value for instruction, value in stage if instruction == name]
    return value


# The compose file.


def test_compose_follows_the_specification() -> None:
    parsed = pytest.importorskip("compose_spec").PyCompose.from_yaml(COMPOSE)
    parsed.validate()
    assert set(parsed.service_names()) == {"gateway", "postgres", "valkey"}


@pytest.mark.parametrize(
    ("correct", "wrong"),
    [
        ("depends_on:", "depend_on:"),
        ("condition: service_healthy", "condition: healthy"),
        ("interval: 5s", "interval: five"),
    ],
)
def test_the_specification_would_notice_a_mistake(correct: str, wrong: str) -> None:
    compose = pytest.importorskip("compose_spec").PyCompose
    assert correct in COMPOSE
    with pytest.raises(ValueError):
        compose.from_yaml(COMPOSE.replace(correct, wrong)).validate()


# The image.


@pytest.mark.parametrize("page", ["deploy/Containerfile", "docs/gateway/deploy.md"])
def test_a_read_only_container_has_a_volume_for_its_data(page: str) -> None:
    home = re.search(r"HOME=(\S+)", (ROOT / "deploy" / "Containerfile").read_text())
    assert home is not None
    text = (ROOT / page).read_text()
    commands = re.findall(r"podman run --read-only.*?antiphon$", text, re.MULTILINE | re.DOTALL)
    assert commands
    assert all(f":{home[1]} " in command for command in commands), "the ledger could not be written"


def test_every_copied_path_is_in_the_source() -> None:
    build, final = stages()
    copied = [name for instruction, value in build if instruction == "COPY" for name in value.split()[:-1]]
    tracked = subprocess.run(["git", "ls-files", *copied], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in copied:
        assert any(path == name or path.startswith(f"{name}/") for path in tracked.splitlines()), name
    assert {"packages", "constraints.txt"} == set(copied)
    assert only("COPY", final).startswith("--from=build /opt/antiphon ")


def test_the_image_runs_unprivileged_and_its_commands_are_lists() -> None:
    names = {name for name, _ in instructions()}
    known = {
        "FROM",
        "ARG",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert names <= known
    final = stages()[-1]
    assert only("USER", final) == "65532:65532"
    scripts = tomllib.loads((PACKAGES / "antiphon" / "pyproject.toml").read_text())["project"]["scripts"]
    assert json.loads(only("ENTRYPOINT", final))[0] in scripts
    assert all(isinstance(word, str) for word in json.loads(only("CMD", final)))
    assert json.loads(health_check(final))[0] == "python"
    assert len({value.partition(" AS ")[0] for name, value in instructions() if name == "FROM"}) == 1


def health_check(stage: list[tuple[str, str]]) -> str:
    return only("HEALTHCHECK", stage).partition(" CMD ")[2].strip()


@pytest.mark.slow
def test_the_steps_of_the_build_make_a_gateway_that_is_healthy(tmp_path: Path) -> None:
    """The instructions in a folder: what the build copies and installs, then the command of the image and its health check."""
    source, prefix = tmp_path / "source", tmp_path / "antiphon"
    build, final = stages()
    arguments: dict[str, str] = {}
    for name, value in build:
        if name == "ARG":
            arguments |= dict([value.split("=", 1)])
        elif name == "COPY":
            copy(value.split(), source)
        elif name == "RUN":
            command = value.replace("/opt/antiphon", str(prefix)).replace("python -m venv", f"{sys.executable} -m venv")
            environ = {**os.environ, **arguments}
            subprocess.run(["sh", "-c", command], cwd=source, env=environ, check=True, timeout=BUILD_SECONDS)
    port = free_port()
    config = tmp_path / "antiphon.toml"
    config.write_text(
        f'[gateway]\nport = {port}\nformat_port = 0\n[ledger]\naddress = "{tmp_path}/ledger.db"\n'
        '[[providers]]\nname = "offline"\n'
    )
    environ = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    check = [word.replace(":8000/", f":{port}/") for word in json.loads(health_check(final))]
    assert f":{port}/" in str(check)

    def is_healthy() -> bool:
        return (
            subprocess.run([f"{prefix}/bin/{check[0]}", *check[1:]], env=environ, capture_output=True).returncode == 0
        )

    assert not is_healthy(), "nothing listens yet"
    places = {"/etc/antiphon/antiphon.toml": str(config), "0.0.0.0": "127.0.0.1"}
    served = [
        places.get(word, word) for word in [*json.loads(only("ENTRYPOINT", final)), *json.loads(only("CMD", final))]
    ]
    with subprocess.Popen([f"{prefix}/bin/{served[0]}", *served[1:]], env=environ, cwd=tmp_path) as gateway:
        try:
            end = time.monotonic() + START_SECONDS
            while not is_healthy():
                assert gateway.poll() is None, "it ended"
                assert time.monotonic() < end, "it is not healthy in time"
        finally:
            gateway.terminate()
        assert gateway.wait(START_SECONDS) == 0


def copy(words: list[str], source: Path) -> None:
    *names, target = words
    for name in names:
        place = source / target / (name if target.endswith("/") else "")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
