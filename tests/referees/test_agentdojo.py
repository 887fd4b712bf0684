"""AgentDojo's assistants (mail, calendar and files; travel; a bank; Slack), killed at every step.

Every call may happen only once: here reading mail marks it as read, and a page that was fetched is remembered. The schemas of
the arguments are AgentDojo's. In the end the environment is that of AgentDojo's own runtime after the same calls, and its own
judge says that the task is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from referees.killed_tasks import Action, kill_everywhere

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("agentdojo") is None, reason="agentdojo is not installed: make referees"),
    pytest.mark.filterwarnings("ignore"),
]

BENCHMARK = "v1.2.2"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
"""Mail and files get the time at which they are written."""


class Office:
    """The environment of one task, and AgentDojo's runtime over it."""

    def __init__(self, suite: Any, task: Any) -> None:
        self.task = task
        self.before = task.init_environment(suite.load_and_inject_default_environment({}))
        self.environment = self.before.model_copy(deep=True)
        self.runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime(suite.tools)
        self.calls: Sequence[Any] = task.ground_truth(self.before.model_copy(deep=True))
        self.actions: Sequence[Action] = [Action(call.function, dict(call.args)) for call in self.calls]

    def act(self, action: Action) -> str:
        travel = import_module("time_machine").travel
        with travel(NOW, tick=False):
            answer, problem = self.runtime.run_function(self.environment, action.name, action.arguments)
        return f"refused: {problem}" if problem else str(answer)

    def digest(self) -> str:
        answer = self.task.GROUND_TRUTH_OUTPUT
        by_trace = self.task.utility_from_traces(answer, self.before, self.environment, self.calls)
        is_solved = self.task.utility(answer, self.before, self.environment) if by_trace is None else by_trace
        return f"solved: {is_solved}\n{self.environment.model_dump_json()}"

    def is_read(self, name: str) -> bool:
        return False

    def schema(self, name: str) -> dict[str, Any]:
        schema: dict[str, Any] = self.runtime.functions[name].parameters.model_json_schema()
        return schema


@pytest.mark.parametrize(("name", "least"), [("workspace", 40), ("travel", 20), ("banking", 16), ("slack", 21)])
@pytest.mark.timeout(3_000)
def test_every_task_survives_a_kill_at_every_step(name: str, least: int, tmp_path: Path) -> None:
    suite = import_module("agentdojo.task_suite.load_suites").get_suites(BENCHMARK)[name]
    kills, unsolved = 0, []
    for task in suite.user_tasks.values():
        office = Office(suite, task)
        folder = tmp_path / task.ID
        kills += kill_everywhere(office, folder)
        if not (folder / "digest").read_text().startswith("solved: True"):
            unsolved.append(task.ID)
    assert unsolved == []
    assert len(suite.user_tasks) >= least
    print(f"\n  AgentDojo {name}: {len(suite.user_tasks)} tasks, {kills} kills")
