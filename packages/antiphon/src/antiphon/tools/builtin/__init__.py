"""The built-in tools: plans, kept in SQLite, and a search over the web, a folder or a short guide."""

from __future__ import annotations

import os
from pathlib import Path

from antiphon.history.location import ensure_private_folder
from antiphon.tools.builtin.memory import memory_tools, with_memory
from antiphon.tools.builtin.plan_tools import plan_of, plan_tools, plans_of
from antiphon.tools.builtin.plans import Plan, PlanChange, PlanStore, PlanTask, TaskDraft, TaskUpdate
from antiphon.tools.builtin.search import search_tool
from antiphon.tools.tool import Tool

__all__ = [
    "Plan",
    "PlanChange",
    "PlanStore",
    "PlanTask",
    "TaskDraft",
    "TaskUpdate",
    "builtin_tools",
    "memory_tools",
    "plan_of",
    "plan_tools",
    "plans_of",
    "search_tool",
    "with_memory",
]


def builtin_tools(data_dir: str | os.PathLike[str] | None = None) -> list[Tool]:
    """The plan tools and `search_web`, ready to use without any setting.

    Plans are kept in `data_dir`, or in memory without one. The search asks the web if TAVILY_API_KEY is set; otherwise it
    reads the folder `documents` in `data_dir`, or the built-in guide if there is none.
    """
    key = os.environ.get("TAVILY_API_KEY", "")
    if data_dir is None:
        return [*plan_tools(PlanStore()), search_tool(key=key)]
    place = Path(data_dir)
    ensure_private_folder(place)
    documents = place / "documents"
    search = search_tool(documents if documents.is_dir() else None, key, index=place / "documents.index.db")
    return [*plan_tools(PlanStore(place / "plans.db")), search]
