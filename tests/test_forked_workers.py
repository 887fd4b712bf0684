"""Tests in several processes are run once each, and reported as in one process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.forked_workers import Place, UntakenTests

SUPPORT = Path(__file__).parent
MODULES = {
    "test_one.py": """
import os, warnings, pytest

def test_passes():
    assert os.getppid() == int(os.environ["COLLECTED_BY"])

def test_fails():
    print("seen by a person")
    assert 1 == 2

@pytest.mark.skip(reason="not here")
def test_is_skipped(): ...

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail():
    assert False

def test_warns():
    warnings.warn("this is old")
""",
    "test_two.py": """
import os, pytest

@pytest.fixture(scope="module")
def number():
    yield os.getpid()
    print("closed", file=open("closed", "a"))

@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_in_one_process(number, name):
    assert number == os.getpid()

def test_dies():
    os._exit(7)

def test_after_that(number):
    assert number == os.getpid()
""",
    "conftest.py": """
import os
pytest_plugins = ["support.forked_workers"]
def pytest_collection_finish():
    os.environ["COLLECTED_BY"] = str(os.getpid())
""",
}


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_test_is_taken_once(modules: list[int], workers: int, chance: random.Random) -> None:
    names = [f"module{number}" for number in sorted(modules)]
    left = UntakenTests(names, [frozenset({"browser"}) if name == "module3" else frozenset() for name in names])
    places = [Place() for _ in range(workers)]
    taken: list[int] = []
    while places:
        place = chance.choice(places)
        number = left.take(place)
        if number is None:
            places.remove(place)
        elif number not in taken and chance.random() < 0.1:  # its worker died in the test before
            left.give_back(number, names[number])
        else:
            taken.append(number)
    assert sorted(taken) == list(range(len(names)))


def test_a_module_stays_with_its_worker() -> None:
    left = UntakenTests(["a", "a", "b", "b", "c"], [frozenset()] * 5)
    first, second = Place(), Place()
    assert [left.take(first), left.take(second), left.take(first), left.take(second)] == [0, 2, 1, 3]
    assert [left.take(second), left.take(first)] == [4, None]


def test_a_worker_without_work_takes_from_the_longest_module() -> None:
    left = UntakenTests(["a", "a", "b", "b", "b"], [frozenset()] * 5)
    first, second, third = Place(), Place(), Place()
    assert [left.take(first), left.take(second)] == [0, 2]
    assert left.take(third) == 4


def test_a_costly_fixture_is_started_again_only_where_nothing_else_is_left() -> None:
    browser = frozenset({"browser"})
    left = UntakenTests(["a", "b", "c", "d"], [browser, browser, frozenset(), frozenset()])
    first, second = Place(), Place()
    assert [left.take(first), left.take(second)] == [0, 2]
    assert [left.take(first), left.take(second)] == [1, 3]


def run_modules(folder: Path, *arguments: str) -> tuple[str, int]:
    """What is printed, and the exit code."""
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    environment = {
        "PYTHONPATH": str(SUPPORT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # the plugins of others take seconds
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120)
    return ended.stdout.decode() + ended.stderr.decode(), ended.returncode


def test_reports_are_those_of_one_process(tmp_path: Path) -> None:
    shown, code = run_modules(tmp_path, "--workers", "2", "-v")
    assert code == 1, shown
    assert "2 failed, 6 passed, 1 skipped, 1 xfailed, 1 warning" in shown
    assert "seen by a person" in shown
    assert "assert 1 == 2" in shown
    assert "UserWarning: this is old" in shown
    assert "the process that ran test_two.py::test_dies died, exit code 7" in shown
    assert (tmp_path / "closed").read_text().count("closed") == 1, "by the worker that went on after the death"


HANGING = """
import threading, time

def test_hangs():
    threading.Thread(target=time.sleep, args=(2,)).start()
    time.sleep(60)
"""


def test_a_test_that_takes_too_long_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    plugin = ("-p", "pytest_timeout", "--timeout", "1")
    shown, code = run_modules(tmp_path, "--workers", "2", *plugin, "test_hanging.py", "test_one.py")
    assert code == 1, shown
    assert "Failed: Timeout (>1.0s)" in shown
    assert "time.sleep(60)" in shown


def test_a_run_that_is_to_stop_at_the_first_failure_stops(tmp_path: Path) -> None:
    shown, code = run_modules(tmp_path, "--workers", "2", "-x", "test_one.py")
    assert code == 1, shown
    assert "1 failed" in shown
    assert "stopping after 1 failures" in shown
