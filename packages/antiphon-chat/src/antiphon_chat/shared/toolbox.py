"""`Toolbox`: the tools of one owner's conversations, and the plans they keep. Owners do not see each other's plans."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from antiphon.history.location import ensure_private_folder
from antiphon.tools.builtin import PlanStore, plan_tools, search_tool
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool
from antiphon_chat.offline.tour import TOUR_TOOLS
from antiphon_chat.shared.partial_answers import PartialAnswers


class Toolbox:
    """The tools on offer, and the plans."""

    def __init__(self, registry: ToolRegistry, plans: PlanStore) -> None:
        self.registry = registry
        self.plans = plans


class Toolboxes:
    """Makes the toolbox of each owner when it is first needed.

    Plans are kept in `data_dir` (in memory without one), documents are searched in `folder`; `tools` are offered beside these,
    or instead of them if `with_builtin` is off; `with_tour` adds
    the tool of the guided tour. Requests without an owner use the user's own plans.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        folder: Path | None = None,
        tools: Iterable[Any] = (),
        with_builtin: bool = True,
        with_tour: bool = False,
    ) -> None:
        self._data_dir = data_dir
        self._folder = folder
        self._tools = (*tools, *(TOUR_TOOLS if with_tour and with_builtin else ()))
        self._with_builtin = with_builtin
        self._search: Tool | None = None
        self._made: dict[str, Toolbox] = {}
        self.partial_answers = PartialAnswers(data_dir)

    def of(self, owner: str) -> Toolbox:
        """The toolbox of an owner."""
        if owner not in self._made:
            plans = PlanStore(self._plans_path(owner))
            builtin = [*plan_tools(plans), self._searching()] if self._with_builtin else []
            self._made[owner] = Toolbox(ToolRegistry([*builtin, *self._tools]), plans)
        return self._made[owner]

    async def aclose(self) -> None:
        """Close all toolboxes."""
        made, self._made = self._made, {}
        for toolbox in made.values():
            await toolbox.registry.aclose()
            toolbox.plans.close()

    def _plans_path(self, owner: str) -> str | Path:
        if self._data_dir is None:
            return ":memory:"
        ensure_private_folder(self._data_dir)
        # An owner's name may hold anything; its digest is a name for a file.
        suffix = f"-{hashlib.sha256(owner.encode()).hexdigest()[:16]}" if owner else ""
        return self._data_dir / f"plans{suffix}.db"

    def _searching(self) -> Tool:
        if self._search is None:
            folder = self._folder
            if folder is None and self._data_dir is not None and (self._data_dir / "documents").is_dir():
                folder = self._data_dir / "documents"
            key = os.environ.get("TAVILY_API_KEY", "") if self._folder is None else ""
            index = ":memory:" if self._data_dir is None or self._folder else self._data_dir / "documents.index.db"
            self._search = search_tool(folder, key, index=index)
        return self._search
