"""Tools: what a model may call, and what runs the calls."""

from antiphon.errors import InvalidArguments, InvalidTool, ToolError
from antiphon.tools.cache import ResultCache
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.outcome import CallObserver, CallOutcome
from antiphon.tools.registry import ToolRegistry, ToolSource
from antiphon.tools.tool import Effect, FunctionTool, Tool, ToolSettings, tool

__all__ = [
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
    "tool",
]
