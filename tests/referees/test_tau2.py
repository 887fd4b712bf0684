"""tau2's customer service desks (tasks, databases and tools as `inspect-evals` ships them), killed at every step.

`make referees` installs what it needs; `killed_tasks` says what is done with a task.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from referees.killed_tasks import Action, kill_everywhere

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("inspect_evals") is None, reason="inspect-evals is not installed: make referees"),
    pytest.mark.filterwarnings("ignore"),
]

DOMAINS = {"retail": "RetailAgentTools", "airline": "AirlineAgentTools"}
OUTSIDE = ("calculate", "transfer_to_human_agents")
"""Actions that change no database."""


class ServiceDesk:
    def __init__(self, tools: Any, actions: Sequence[Action]) -> None:
        self.tools = tools
        self.actions = actions

    def act(self, action: Action) -> str:
        if action.name in OUTSIDE:
            return "done"
        try:
            return str(getattr(self.tools, action.name)(**action.arguments))
        except Exception as error:
            return f"refused: {error}"

    def digest(self) -> str:
        return str(self.tools.db.get_hash())

    def is_read(self, name: str) -> bool:
        return name.startswith(("get_", "find_", "list_", "search_", *OUTSIDE))

    def schema(self, name: str) -> dict[str, Any]:
        return {"type": "object"}


def tools_of(domain: str) -> Any:
    """tau2's tools over its database."""
    name = DOMAINS[domain]
    tools = getattr(import_module(f"inspect_evals.tau2.{domain}.{name}"), name)()
    tools.initialize()
    return tools


def tasks(domain: str) -> dict[str, list[Action]]:
    """The actions of each task that has any."""
    folder = Path(import_module("inspect_evals.tau2.utils").TAU2_DATA_DIR) / "domains" / domain
    packed, plain = folder / "tasks.json.gz", folder / "tasks.json"
    listed = json.loads(plain.read_text() if plain.exists() else gzip.decompress(packed.read_bytes()))
    found = {
        str(task["id"]): [
            Action(action["name"], action["arguments"])
            for action in task["evaluation_criteria"].get("actions") or ()
            if action.get("requestor", "assistant") == "assistant"
        ]
        for task in listed
    }
    return {name: actions for name, actions in found.items() if actions}


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.timeout(3_000)
def test_every_task_survives_a_kill_at_every_step(domain: str, tmp_path: Path) -> None:
    tools, found = tools_of(domain), tasks(domain)
    assert len(found) >= 40
    kills = sum(
        kill_everywhere(ServiceDesk(tools, actions), tmp_path / name.replace("/", "_"))
        for name, actions in found.items()
    )
    print(f"\n  tau2 {domain}: {len(found)} tasks, {kills} kills")
