"""Your own tools in a chat: those of a Python file (`--tools`) and those of MCP servers (`--mcp`). Approvals apply to them."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from antiphon.errors import InvalidTool
from antiphon.tools.registry import ToolLike
from antiphon.tools.tool import Tool

if TYPE_CHECKING:
    from antiphon.tools.mcp import McpServer


def load_tools(path: Path) -> list[Tool]:
    """The tools that a Python file defines with `@antiphon.tool`. Raises `InvalidTool`."""
    if not path.is_file():
        raise InvalidTool(f"--tools {path}: no such file")
    spec = importlib.util.spec_from_file_location(f"antiphon_tools_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InvalidTool(f"--tools {path}: not a Python file; expected a name that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidTool(f"--tools {path}: {type(error).__name__}: {error}{_line_of(error, path)}") from error
    tools = _tools_in(module)
    if not tools:
        raise InvalidTool(f"--tools {path}: no tools; define functions with @antiphon.tool")
    return tools


def _tools_in(module: ModuleType) -> list[Tool]:
    found = (value for name, value in vars(module).items() if not name.startswith("_"))
    return list({tool.name: tool for tool in found if isinstance(tool, Tool)}.values())


def _line_of(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text has the line
    trace, line = error.__traceback__, 0
    while trace is not None:
        line = trace.tb_lineno if Path(trace.tb_frame.f_code.co_filename) == path.resolve() else line
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def mcp_server(command: str) -> McpServer:
    """The MCP server of a command, or at an address. Raises `InvalidTool`."""
    from antiphon.tools.mcp import McpServer

    if command.startswith(("http://", "https://")):
        return McpServer.http(command, name=_name(command.split("//", 1)[1].partition("/")[0]))
    if not command.strip():
        raise InvalidTool("--mcp: the command is empty; give the command or the address of an MCP server")
    try:
        program, *arguments = shlex.split(command)
    except ValueError as error:
        raise InvalidTool(f"--mcp {command!r}: {error}") from None
    named = next((one for one in reversed(arguments) if not one.startswith("-")), program)
    return McpServer.stdio(program, arguments, name=_name(Path(named).stem))


def _name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in text)[:32] or "mcp"


def own_tools(files: Sequence[Path], commands: Sequence[str]) -> tuple[ToolLike, ...]:
    """The tools of these files and servers. A server is started when its tools are first needed."""
    return (*(tool for file in files for tool in load_tools(file)), *map(mcp_server, commands))
