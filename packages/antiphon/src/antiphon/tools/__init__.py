"""Tools: what a model may call, and what runs the calls."""

from antiphon.errors import InvalidArguments, InvalidTool, ToolError
from antiphon.tools.cache import ResultCache
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.hooks import CallObserver, CallOutcome, Hook, HookedModelCall
from antiphon.tools.registry import ToolRegistry, ToolSource
from antiphon.tools.settling import Settled
from antiphon.tools.tool import (
    ApprovalPolicy,
    Effect,
    FunctionTool,
    Tool,
    ToolSettings,
    ask_before_changes,
    tool,
    tool_policy,
)

__all__ = [
    "ApprovalPolicy",
    "CallObserver",
    "CallOutcome",
    "Effect",
    "FunctionTool",
    "Hook",
    "HookedModelCall",
    "InvalidArguments",
    "InvalidTool",
    "ResultCache",
    "Settled",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolExecutor",
    "ToolRegistry",
    "ToolSettings",
    "ToolSource",
    "ask_before_changes",
    "tool",
    "tool_policy",
]
