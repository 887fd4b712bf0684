"""The hot paths do no more than their budget says: counted, not timed, so a loaded machine changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from bench.budget import budget
from bench.budget.budget import Change, changes
from bench.budget.counts import Counts, counted
from bench.budget.hot_paths import hot_paths

from antiphon.history import AgentHistory, ModelInputEntry

ROOT = Path(__file__).parents[2]
NAME = "append"


@pytest.mark.slow
def test_the_hot_paths_stay_within_their_budget() -> None:
    if budget.VERSION not in budget.read():
        pytest.skip(f"there is no budget for Python {budget.VERSION}: `python -m bench budget --renew` writes one")
    command = [sys.executable, "-m", "bench", "budget"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\nif it has to be so: python -m bench budget --renew"


def test_the_budget_is_of_every_supported_version_and_names_every_path() -> None:
    budgets = budget.read()
    names = [path.name for path in hot_paths()]
    assert list(budgets) == ["3.11", "3.12", "3.13"]
    assert all(list(paths) == names for paths in budgets.values())
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("now", "is_over"),
    [
        (Counts(1_000, 100, 50.0), []),
        (Counts(1_090, 109, 54.0), [False, False, False]),
        (Counts(1_110, 100, 50.0), [True]),
        (Counts(1_000, 115, 60.0), [True, True]),
        (Counts(500, 20, 10.0), [False, False, False]),
    ],
)
def test_more_than_a_tenth_above_the_budget_is_over(now: Counts, is_over: list[bool]) -> None:
    found = list(changes({NAME: Counts(1_000, 100, 50.0)}, {NAME: now}))
    assert [change.is_over for change in found] == is_over


def test_small_counts_have_a_minimum_tolerance() -> None:
    assert not Change("snapshot", "calls", 2, 4).is_over
    assert Change("snapshot", "calls", 2, 6).is_over


def test_added_and_removed_paths_are_reported() -> None:
    found = list(changes({"gone": Counts(1, 1, 1.0)}, {"new": Counts(1, 1, 1.0)}))
    assert [str(change) for change in found] == [
        "new: not in the budget",
        "gone: in the budget, but there is no such path",
    ]
    assert all(change.is_over for change in found)


def test_counts_are_the_same_each_time_and_grow_with_the_work() -> None:
    def appends(number: int) -> Counts:
        def work() -> None:
            history = AgentHistory()
            for _ in range(number):
                history.append(ModelInputEntry.of("Is it raining?"))

        return counted(work)

    few, again, many = appends(10), appends(10), appends(100)
    assert (few.instructions, few.calls) == (again.instructions, again.calls)
    assert 9 * few.instructions < many.instructions < 11 * few.instructions
    assert few.calls > 10
    assert many.peak > few.peak > 0


def test_instructions_of_other_packages_are_not_counted() -> None:
    assert counted(lambda: [number**2 for number in range(1_000)]).instructions == 0


def test_the_file_changes_one_line_for_one_path(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    budgets = {
        "3.11": {"append": Counts(1, 2, 3.5), 'a "round"': Counts(4, 5, 6.0)},
        "3.13": {"append": Counts(7, 8, 9.0)},
    }
    budget.write(budgets, file)
    assert budget.read(file) == budgets
    assert '    "append": [1,2,3.5],\n' in file.read_text()
    assert msgspec.json.decode(file.read_bytes())["3.13"] == {"append": [7, 8, 9.0]}
