"""The stored settings of MCP servers: `mcp.json` in the data folder, and their secrets apart in `mcp-secrets.json`.

Both files can be read by their owner alone (mode 0600); one that others can read is refused. `mcp.json` has the names of
variables and headers, never their values, so it can be shown on the page and in the terminal (law L10).

A server that is started runs a command on this machine. It is started only if its owner has confirmed exactly this command,
folder and set of variables (`confirmed`); a change of one of them, here or in the file, requires another confirmation.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct, structs

from antiphon.errors import InvalidTool
from antiphon_chat.shared.private_json import PrivateJson

Approval = Literal["ask", "allow", "never"]
"""Whether calls run: after a person approved each, always, or never (the tool is not offered)."""

SETTINGS, SECRETS = "mcp.json", "mcp-secrets.json"
MAX_SERVERS = 50
_MAX_VALUE_CHARS = 10_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class StoredServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An MCP server: a command that is started, or an address that is reached."""

    name: str
    command: tuple[str, ...] = ()
    folder: str = ""
    variables: tuple[str, ...] = ()
    """The names of the environment variables it gets; their values are secrets."""
    url: str = ""
    """The address without its query, which may have a key in it."""
    headers: tuple[str, ...] = ()
    is_enabled: bool = False
    approval: Approval = "ask"
    tools: dict[str, Approval] = {}
    """What differs from `approval`, by the name of a tool."""
    confirmed: str = ""
    """The `digest` that the owner confirmed."""

    @property
    def command_line(self) -> str:
        """The exact command, quoted for a shell."""
        return shlex.join(self.command)

    @property
    def digest(self) -> str:
        """Identifies what would be run."""
        what = msgspec.json.encode([self.command, self.folder, sorted(self.variables)])
        return hashlib.sha256(what).hexdigest()[:32]

    @property
    def is_confirmed(self) -> bool:
        """Whether it may be started: an address runs nothing here."""
        return not self.command or self.confirmed == self.digest

    def approval_of(self, tool: str) -> Approval:
        """Whether calls of a tool run."""
        return self.tools.get(tool, self.approval)


class ServerSecrets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values that are never shown."""

    variables: dict[str, str] = {}
    headers: dict[str, str] = {}
    query: str = ""

    def __repr__(self) -> str:
        return "ServerSecrets(…)"


class ServerChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person enters about a server. None leaves a field as it is; None as a value keeps the stored secret."""

    command: str | None = None
    """A command line, read like one of a shell, or an `http(s)://` address."""
    folder: str | None = None
    variables: dict[str, str | None] | None = None
    headers: dict[str, str | None] | None = None
    enabled: bool | None = None
    approval: Approval | None = None
    tools: dict[str, Approval | None] | None = None
    """None as a value removes what differs."""
    confirm: str = ""
    """The digest of the command that the person saw and confirmed."""

    def __repr__(self) -> str:
        return f"ServerChange(command={self.command!r})"


class _SettingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    servers: tuple[StoredServer, ...] = ()


class McpSettings:
    """The two files of a folder; without one, settings are kept in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._file = self._secret_file = None
        if folder is not None:
            self._file = PrivateJson(folder / SETTINGS, _SettingsFile, InvalidTool, is_secret=False)
            self._secret_file = PrivateJson(folder / SECRETS, dict[str, ServerSecrets], InvalidTool)
        self._seen: object = None
        self.servers: dict[str, StoredServer] = {}
        self.secrets: dict[str, ServerSecrets] = {}
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed, perhaps by another process; whether it did. Raises `InvalidTool`."""
        stamp = self._stamp()
        if self._file is None or self._secret_file is None or stamp == self._seen:
            return False
        stored = self._file.read()
        servers = () if stored is None else stored.servers
        self.secrets = self._secret_file.read() or {}
        self.servers = {server.name: server for server in servers}
        self._seen = stamp
        return True

    def add(self, name: str, change: ServerChange) -> StoredServer:
        """Store a new server. Raises `InvalidTool` if the name is taken or something cannot be used."""
        from antiphon.tools.mcp.server import check_server_name

        check_server_name(name)
        if name in self.servers:
            raise InvalidTool(f"there is an MCP server {name!r} already; change it, or choose another name")
        if len(self.servers) >= MAX_SERVERS:
            raise InvalidTool(f"there are {MAX_SERVERS} MCP servers, the most that are stored; remove one")
        if not (change.command or "").strip():
            raise InvalidTool(f"MCP server {name!r}: the command is empty; give a command, or an http(s):// address")
        return self._apply(StoredServer(name=name), ServerSecrets(), change)

    def change(self, name: str, change: ServerChange) -> StoredServer:
        """Change a stored server. Raises `InvalidTool`."""
        return self._apply(self.get(name), self.secrets.get(name, ServerSecrets()), change)

    def remove(self, name: str) -> None:
        """Remove a server and its secrets."""
        self.get(name)
        servers = {other: server for other, server in self.servers.items() if other != name}
        self._write(servers, {other: secret for other, secret in self.secrets.items() if other != name})

    def get(self, name: str) -> StoredServer:
        """The server of that name. Raises `InvalidTool`."""
        if name not in self.servers:
            known = ", ".join(self.servers) or "none"
            raise InvalidTool(f"no MCP server {name[:40]!r}; the stored ones are: {known}")
        return self.servers[name]

    def _apply(self, server: StoredServer, secrets: ServerSecrets, change: ServerChange) -> StoredServer:
        if change.command is not None:
            command, url, query = parse_target(server.name, change.command)
            if url == server.url and not query:  # the form shows the address without its query
                query = secrets.query
            server = structs.replace(server, command=command, url=url)
            secrets = structs.replace(secrets, query=query)
        if change.folder is not None:
            server = structs.replace(server, folder=_folder(server.name, change.folder))
        changes_values = change.variables is not None and any(map(bool, change.variables.values()))
        if change.variables is not None:
            variables = _values("variable", _VARIABLE, change.variables, secrets.variables)
            server = structs.replace(server, variables=tuple(variables))
            secrets = structs.replace(secrets, variables=variables)
        if change.headers is not None:
            headers = _values("header", _HEADER, change.headers, secrets.headers)
            server = structs.replace(server, headers=tuple(headers))
            secrets = structs.replace(secrets, headers=headers)
        if server.url and (server.folder or server.variables):
            raise InvalidTool(f"MCP server {server.name!r} is an address; a folder and variables are for commands")
        if server.command and server.headers:
            raise InvalidTool(f"MCP server {server.name!r} is a command; headers are for addresses")
        if changes_values:  # a value such as PATH decides what is run, too
            server = structs.replace(server, confirmed="")
        if change.confirm:
            if change.confirm != server.digest:
                raise InvalidTool(f"MCP server {server.name!r} has changed; look at the command again and confirm it")
            server = structs.replace(server, confirmed=server.digest)
        if change.tools is not None:
            merged = {**server.tools, **change.tools}
            kept = {tool: approval for tool, approval in merged.items() if approval is not None}
            server = structs.replace(server, tools=kept)
        if change.approval is not None:
            server = structs.replace(server, approval=change.approval)
        if change.enabled is not None:
            server = structs.replace(server, is_enabled=change.enabled)
        if not server.is_confirmed:
            server = structs.replace(server, is_enabled=False)
        self._write({**self.servers, server.name: server}, {**self.secrets, server.name: secrets})
        return server

    def _write(self, servers: dict[str, StoredServer], secrets: dict[str, ServerSecrets]) -> None:
        kept = {name: secret for name, secret in secrets.items() if secret != ServerSecrets()}
        if self._file is not None and self._secret_file is not None:
            if kept or self.secrets:
                self._secret_file.write(kept)
            self._file.write(_SettingsFile(tuple(servers.values())))
            self._seen = self._stamp()
        self.servers, self.secrets = servers, kept

    def _stamp(self) -> object:
        if self._file is None:
            return None
        try:
            found = self._file.path.stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_ino, found.st_size)


def parse_target(name: str, text: str) -> tuple[tuple[str, ...], str, str]:
    """The command, or the address and its query, that a person entered. Raises `InvalidTool`."""
    text = text.strip()
    if not text.startswith(("http://", "https://")):
        try:
            command = tuple(shlex.split(text))
        except ValueError as error:
            raise InvalidTool(f"MCP server {name!r}: the command cannot be read: {error}") from None
        if not command or not all(part.isprintable() for part in command):
            raise InvalidTool(f"MCP server {name!r}: the command is empty or has control characters")
        return command, "", ""
    try:
        parts = urlsplit(text)
        has_port = parts.port != 0
    except ValueError as error:
        raise InvalidTool(f"MCP server {name!r}: the address cannot be read: {error}") from None
    if not parts.hostname or not has_port or not text.isprintable() or " " in text:
        raise InvalidTool(f"MCP server {name!r}: expected an address such as http://127.0.0.1:8000/mcp")
    if parts.username or parts.password:
        raise InvalidTool(f"MCP server {name!r}: the address has credentials; give them as a header")
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    return (), url, parts.query


def _folder(name: str, text: str) -> str:
    if not text.strip():
        return ""
    folder = Path(text.strip()).expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        raise InvalidTool(
            f"MCP server {name!r}: no folder {text.strip()[:200]!r}; give the full path of an existing one"
        )
    return str(folder)


def _values(
    what: str, pattern: re.Pattern[str], given: Mapping[str, str | None], known: Mapping[str, str]
) -> dict[str, str]:
    """The values to store: what was given, or the known value for None. No message has a value."""
    values: dict[str, str] = {}
    for name, value in given.items():
        if not pattern.fullmatch(name):
            raise InvalidTool(f"invalid name of a {what}: {name[:40]!r}")
        value = known.get(name) if value is None else value
        if value is None:
            raise InvalidTool(f"the {what} {name} has no value")
        if len(value) > _MAX_VALUE_CHARS or not value.isprintable() or (what == "header" and not value.isascii()):
            raise InvalidTool(f"the value of the {what} {name} is too long or has characters that are not allowed")
        values[name] = value
    return values
