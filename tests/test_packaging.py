"""What is released: dependency ranges, a source distribution that can test itself, and what CI promises to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from antiphon.cli.gateway.doctor import _PACKAGES
from support.dependency_floors import requirements

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line and line[0] != "#"
)


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def test_every_dependency_has_a_range_that_holds_the_version_we_develop_with() -> None:
    for name, (floor, below) in requirements().items():
        pinned = CONSTRAINTS[name.split("[")[0]]
        assert numbers(floor) <= numbers(pinned), name
        assert numbers(pinned)[: len(numbers(below))] < numbers(below), name


def test_the_doctor_asks_for_the_same_floors() -> None:
    known = requirements()
    assert {package: ".".join(map(str, least)) for package, least in _PACKAGES} == {
        package: known[package][0] for package, _ in _PACKAGES
    }


def test_the_docs_name_the_same_ranges() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
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
    assert "ANTIPHON_BROWSER_TESTS=required" in run
    assert "ANTIPHON_BROWSER_TESTS: required" in nightly
    assert all(f'"{version}"' in pushed for version in ("3.11", "3.12", "3.13"))
    assert re.search(r"schedule:\s+- cron:", nightly)
    assert all(f"run: make {target}\n" in nightly for target in ("test-all", "budget", "floors", "test"))
    assert re.search(r'continue-on-error: true.*?"3\.14"', nightly, re.DOTALL)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"test", "test-all", "budget", "floors"} <= set(targets)


@pytest.mark.slow
def test_the_source_distribution_contains_what_its_own_tests_need(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode()
    missing = [
        name for name in tracked.split("\0") if name and (ROOT / name).exists() and not (unpacked / name).exists()
    ]
    assert missing == []

    def pytest_there(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(unpacked / "src")}
        done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    counts = re.findall(r"^tests/.*\.py: (\d+)$", pytest_there("--collect-only", "-q"), re.MULTILINE)
    assert sum(map(int, counts)) > 5_000
    some = [
        "tests/test_architecture.py",
        "tests/benchmarks/test_report.py",
        "tests/wire/test_sse.py",
        "tests/history/test_codec.py",
    ]
    pytest_there(*some, "tests/test_docs.py", "-k", "not demos and not performance")
