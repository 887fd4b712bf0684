"""Tools: what a model may call, and what runs the calls."""

from antiphon.errors import InvalidArguments, InvalidTool, ToolError
from antiphon.tools.cache import ResultCache
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ApprovalPolicy, ToolExecutor, ask_before_changes, tool_policy
from antiphon.tools.outcome import CallObserver, CallOutcome
from antiphon.tools.registry import ToolRegistry, ToolSource
from antiphon.tools.tool import Effect, FunctionTool, Tool, ToolSettings, tool

__all__ = [
    "ApprovalPolicy",
    "CallObserver",
    "CallOutcome",
    "Effect",
    "FunctionTool",
    "InvalidArguments",
    "InvalidTool",
    "ResultCache",
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
