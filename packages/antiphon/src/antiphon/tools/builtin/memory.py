"""The memory tool: a model reads and edits its notebook. Each edit is a `SetMemoryNotebookEntry`, so the log has all of them.

It is off by default. The tools belong to one history; `with_memory` offers them beside the tools of a registry. They run in the
event loop, as the turn does, because a history has one writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from antiphon.errors import ToolError
from antiphon.history import AgentHistory, EntryMetadata, SetMemoryNotebookEntry
from antiphon.tools.context import Language, ToolContext
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool, tool

MAX_NOTEBOOK_CHARS = 50_000
_EMPTY: Mapping[Language, str] = MappingProxyType({"en": "(The notebook is empty.)", "zh": "（笔记是空的。）"})
_EMPTIED: Mapping[Language, str] = MappingProxyType({"en": "The notebook is empty now.", "zh": "笔记现在是空的。"})
_CHANGED: Mapping[Language, str] = MappingProxyType(
    {"en": "The notebook now reads:\n{text}", "zh": "笔记现在的内容：\n{text}"}
)


def memory_tools(history: AgentHistory) -> list[Tool]:
    """The tools `read_memory` and `edit_memory` over the notebook of `history`."""

    @tool(effect="read")
    async def read_memory(context: ToolContext) -> str:
        "Read your notebook: what you noted to remember in this conversation."
        return history.memory_notebook or _EMPTY[context.language()]

    @tool(effect="idempotent")
    async def edit_memory(
        context: ToolContext,
        action: Annotated[
            Literal["append", "replace", "rewrite"],
            Meta(description="append a note, replace one text by another, or rewrite the whole notebook"),
        ],
        text: Annotated[str, Meta(description="the note, the new text, or the whole notebook")],
        old: Annotated[str, Meta(description="with replace: the exact text to replace, which occurs once")] = "",
    ) -> str:
        "Edit your notebook. It is shown to you in every later turn, so note what must not be forgotten, briefly."
        before = history.memory_notebook
        after = _edit(before, action, text, old)
        if len(after) > MAX_NOTEBOOK_CHARS:
            raise ToolError(f"the notebook would have {len(after):,} characters; the limit is {MAX_NOTEBOOK_CHARS:,}")
        if after != before:
            history.append(SetMemoryNotebookEntry(after, metadata=EntryMetadata(source="tool:edit_memory")))
        language = context.language(text)
        return _CHANGED[language].format(text=after) if after else _EMPTIED[language]

    tools: list[Tool] = [read_memory, edit_memory]
    for each in tools:
        each.is_log_only = True
    return tools


def with_memory(tools: ToolRegistry, history: AgentHistory) -> ToolRegistry:
    """The tools of a registry and those of the notebook of `history`, as a registry of its own."""
    return ToolRegistry([*tools.own_tools, *tools.sources, *memory_tools(history)])


def _edit(before: str, action: str, text: str, old: str) -> str:
    if action == "rewrite":
        return text.strip()
    if action == "append":
        lines = before.splitlines()
        return before if text.strip() in lines else f"{before}\n{text.strip()}".strip()
    count = before.count(old) if old else 0
    if count == 0 and text and text in before:
        return before  # the same edit again
    if count != 1:
        raise ToolError(f"`old` must occur once in the notebook, and it occurs {count} times; read_memory shows it")
    return before.replace(old, text).strip()
