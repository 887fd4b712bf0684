"""What is released: four packages of one version, their dependency ranges, their entry points, and wheels that work alone."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import extensions
from antiphon_gateway.cli.doctor import needed_packages
from support.dependency_floors import requirements
from support.repository import PACKAGES, ROOT, SOURCES

PROJECTS: dict[str, dict[str, Any]] = {
    path.parent.name: tomllib.loads(path.read_text())["project"] for path in sorted(PACKAGES.glob("*/pyproject.toml"))
}
ORDER = ["antiphon", "antiphon-gateway", "antiphon-chat", "antiphon-devtools"]
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line and line[0] != "#"
)


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def test_four_packages_have_one_version_and_need_each_other_in_it() -> None:
    assert sorted(PROJECTS) == sorted(ORDER)
    assert {project["version"] for project in PROJECTS.values()} == {antiphon.__version__}
    assert re.search(rf"^## {re.escape(antiphon.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    for name, project in PROJECTS.items():
        needed = [one for one in project["dependencies"] if one.startswith("antiphon")]
        assert needed == [f"{other}=={antiphon.__version__}" for other in ORDER[: ORDER.index(name)]], name
        extras = [one for extra in project.get("optional-dependencies", {}).values() for one in extra]
        ours = [one for one in extras if one.startswith("antiphon") and not one.startswith("antiphon[tokens,")]
        assert all(one.endswith(f"=={antiphon.__version__}") for one in ours), name


def test_entry_points_are_the_table() -> None:
    """The command line asks its table before it asks for entry points: both must name the same modules."""
    for group, parts in extensions.OURS.items():
        for distribution in ORDER:
            registered = PROJECTS[distribution].get("entry-points", {}).get(group, {})
            listed = {name: part.module for name, part in parts.items() if part.distribution == distribution}
            inside = {
                "antiphon.conversation.interchange",
                "antiphon.integrations.langchain",
            }  # found by name within the library itself
            assert registered == {name: module for name, module in listed.items() if module not in inside}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_each_package_is_typed_and_has_its_own_pages(source: Path) -> None:
    assert (source / "py.typed").exists()
    package = source.parents[1]
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len((package / "README.md").read_text().splitlines()) < 40


def test_every_dependency_has_a_range_that_holds_the_version_we_develop_with() -> None:
    for name, (floor, below) in requirements().items():
        pinned = CONSTRAINTS[name.split("[")[0]]
        assert numbers(floor) <= numbers(pinned), name
        assert numbers(pinned)[: len(numbers(below))] < numbers(below), name


def test_the_library_is_small() -> None:
    assert len(PROJECTS["antiphon"]["dependencies"]) == 3


def test_the_doctor_asks_for_the_same_floors() -> None:
    needed = needed_packages()
    assert len(needed) == len(PROJECTS["antiphon"]["dependencies"])
    assert needed == {package: floor for package, (floor, _) in requirements().items() if package in needed}


def test_the_docs_name_the_same_ranges() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for name, (floor, below) in requirements().items():
        assert f"`>={floor},<{below}`" in page, name


def test_every_test_is_bounded(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.hasplugin("timeout")
    assert 60 <= float(pytestconfig.getini("timeout")) <= 600
    assert "pytest-timeout" in CONSTRAINTS


def test_ci_skips_no_browser_test_and_runs_slow_tests_and_the_budget_on_a_schedule() -> None:
    pushed = (ROOT / ".github/workflows/ci.yml").read_text()
    nightly = (ROOT / ".github/workflows/nightly.yml").read_text()
    run = (ROOT / ".ci/run").read_text()
    assert "run: .ci/run" in pushed
    assert 'run: make test ONLY="$PACKAGE"' in pushed
    assert "package: [library, gateway, chat, devtools]" in pushed
    assert "ANTIPHON_BROWSER_TESTS=required" in run
    assert "ANTIPHON_BROWSER_TESTS: required" in nightly
    assert all(f'"{version}"' in pushed for version in ("3.11", "3.12", "3.13"))
    assert re.search(r"schedule:\s+- cron:", nightly)
    assert all(f"run: make {target}\n" in nightly for target in ("test-all", "budget", "floors", "test"))
    assert re.search(r'continue-on-error: true.*?"3\.14"', nightly, re.DOTALL)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"test", "test-all", "budget", "floors"} <= set(targets)


SHOW_HELP = """
import contextlib, io, json, sys
from antiphon.cli import main

def help_of(name):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main([name, "--help"])
        except SystemExit as end:
            code = end.code
    return code or 0, errors.getvalue()

print(json.dumps({name: help_of(name) for name in sys.argv[1:]}))
"""


def test_a_command_of_a_missing_package_says_what_to_install(tmp_path: Path) -> None:
    """As where only the library is installed: its folder alone is on the path."""
    names = extensions.OURS[extensions.COMMANDS]
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(library_alone(tmp_path))}
    command = [sys.executable, "-S", "-c", SHOW_HELP, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    shown = json.loads(done.stdout)
    for name, part in names.items():
        if part.distribution == "antiphon":
            assert shown[name] == [0, ""]
        else:
            wanted = f"antiphon: the command {name} is in {part.distribution}: pip install {part.distribution}\n"
            assert shown[name] == [2, wanted]


def library_alone(folder: Path) -> list[str]:
    """A path with the library and its dependencies, and without the other packages."""
    place = folder / "alone"
    place.mkdir()
    for name in ("msgspec", "httptools", "jsonschema_rs"):
        module = __import__(name)
        assert module.__file__ is not None
        (place / name).symlink_to(Path(module.__file__).parent)
    return [str(SOURCES[0].parent), str(place)]


def release(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "tools/release.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_built_packages_have_every_file_and_work_in_an_empty_environment(tmp_path: Path) -> None:
    release("build", str(tmp_path))
    for name, source in zip(ORDER, SOURCES, strict=True):
        (wheel,) = tmp_path.glob(f"{name.replace('-', '_')}-*.whl")
        inside = {entry for entry in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in entry}
        tracked = subprocess.run(["git", "ls-files", str(source)], cwd=ROOT, capture_output=True, text=True, check=True)
        relative = {str((ROOT / line).relative_to(source.parent)) for line in tracked.stdout.splitlines()}
        assert {entry for entry in inside if not entry.endswith("/")} == relative, name
    release("try", str(tmp_path), f"{sys.version_info[0]}.{sys.version_info[1]}")


def test_workflows_run_every_python_that_the_metadata_name() -> None:
    """No version is claimed that nothing runs."""
    named = {
        name: {
            one.rpartition(" ")[2]
            for one in project["classifiers"]
            if one.startswith("Programming Language :: Python :: 3.")
        }
        for name, project in PROJECTS.items()
    }
    for workflow in ("ci.yml", "nightly.yml", "release.yml"):
        (tried,) = set(re.findall(r"python: \[(.+)\]", (ROOT / ".github/workflows" / workflow).read_text()))
        assert {name: set(re.findall(r"[\d.]+", tried)) for name in ORDER} == named, workflow


def test_a_tag_of_another_version_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/release.py", "build", str(tmp_path), "v9.9.9"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the tag v9.9.9 does not name the version" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_changes_begin_with_the_version_that_is_published() -> None:
    check = runpy.run_path(str(ROOT / "tools" / "release.py"))["check_changes"]
    check(antiphon.__version__)
    with pytest.raises(SystemExit, match=r"9\.9\.9 and its date were expected"):
        check("9.9.9")


@pytest.mark.slow
def test_workflows_pass_their_audit() -> None:
    """Actions pinned by hash, least permissions, no text of an event in a script."""
    done = subprocess.run(
        [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress", ".github/workflows"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_action_is_pinned_by_its_hash() -> None:
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (\S+)", workflow.read_text()):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), f"{workflow.name}: {action}"
