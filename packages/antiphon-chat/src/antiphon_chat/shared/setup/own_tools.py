"""Your own tools and agents in a chat: those of a Python file (`--tools`) and the tools of MCP servers (`--mcp`).

Approvals apply to them. A tool that an agent of the file has is that agent's alone; the others are for every agent.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.conversation import Agent
from antiphon.errors import InvalidTool
from antiphon.tools.registry import ToolLike
from antiphon.tools.tool import Tool

if TYPE_CHECKING:
    from antiphon.tools.mcp import McpServer


class OwnFile(Struct, frozen=True):
    """What a Python file defines: tools with `@antiphon.tool`, and `Agent` objects, the one that begins first."""

    tools: tuple[Tool, ...]
    agents: tuple[Agent, ...]


def load_tools(path: Path) -> list[Tool]:
    """The tools that a Python file defines. Raises `InvalidTool`."""
    return list(load_file(path).tools)


def load_file(path: Path) -> OwnFile:
    """The tools and agents that a Python file defines. Raises `InvalidTool`."""
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
    found = _public_values(module)
    agents = {agent.name: agent for agent in found if isinstance(agent, Agent)}
    of_agents = {id(tool) for agent in agents.values() for tool in agent.tools}
    tools = {tool.name: tool for tool in found if isinstance(tool, Tool) and id(tool) not in of_agents}
    if not tools and not agents:
        raise InvalidTool(f"--tools {path}: no tools; define functions with @antiphon.tool, or Agent objects")
    for agent in agents.values():
        if unknown := sorted(set(agent.hand_offs) - agents.keys()):
            raise InvalidTool(
                f"--tools {path}: the agent {agent.name} may hand off to {', '.join(unknown)}; "
                "give that agent a name of its own in the file"
            )
    return OwnFile(tuple(tools.values()), _first_begins(list(agents.values())))


def _public_values(module: ModuleType) -> list[Any]:
    """The values of the names of a module; those of a list, too."""
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [one for value in values for one in (value if isinstance(value, list | tuple) else (value,))]


def _first_begins(agents: list[Agent]) -> tuple[Agent, ...]:
    """The agent to which no other hands off begins: a file defines it after those it names."""
    targets = {name for agent in agents for name in agent.hand_offs if name != agent.name}
    return tuple(sorted(agents, key=lambda agent: agent.name in targets))


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


class OwnTools(Struct, frozen=True):
    """The tools and agents of the command line."""

    tools: tuple[ToolLike, ...]
    agents: tuple[Agent, ...] = ()


def own_tools(files: Sequence[Path], commands: Sequence[str]) -> OwnTools:
    """The tools and agents of these files and servers. A server is started when its tools are first needed."""
    loaded = [load_file(file) for file in files]
    tools: tuple[ToolLike, ...] = (*(tool for file in loaded for tool in file.tools), *map(mcp_server, commands))
    agents = [agent for file in loaded for agent in file.agents]
    names = [agent.name for agent in agents]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidTool(f"--tools: two files define the agent {', '.join(twice)}; names must be unique")
    return OwnTools(tools, tuple(agents))
