"""The stored settings of MCP servers: what is accepted, where secrets are, and when a command must be confirmed again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from antiphon.errors import InvalidTool
from antiphon_chat.shared.mcp.settings import SECRETS, SETTINGS, McpSettings, ServerChange

SECRET = "sk-secret-of-a-person-7"


def test_a_command_is_stored_for_its_owner_alone_and_its_secrets_apart(tmp_path: Path) -> None:
    settings = McpSettings(tmp_path / "data")
    change = ServerChange(command="uvx 'my server' --x", folder=str(tmp_path), variables={"API_TOKEN": SECRET})
    server = settings.add("files", change)
    assert server.command == ("uvx", "my server", "--x")
    assert server.command_line == "uvx 'my server' --x"
    assert SECRET not in repr(change) + repr(server) + repr(settings.secrets)
    files = {path.name: path for path in (tmp_path / "data").iterdir()}
    assert set(files) == {SETTINGS, SECRETS}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
    assert SECRET not in files[SETTINGS].read_text()
    assert SECRET in files[SECRETS].read_text()
    again = McpSettings(tmp_path / "data")
    assert (again.servers, again.secrets) == (settings.servers, settings.secrets)
    again.remove("files")
    assert not files[SECRETS].exists()
    assert settings.reload()
    assert settings.servers == {}
    assert not settings.reload()


def test_the_query_of_an_address_is_a_secret(tmp_path: Path) -> None:
    settings = McpSettings(tmp_path)
    server = settings.add("remote", ServerChange(command=f"https://mcp.example/mcp?key={SECRET}"))
    assert server.url == "https://mcp.example/mcp"
    assert server.is_confirmed
    assert SECRET not in (tmp_path / SETTINGS).read_text()
    assert settings.secrets["remote"].query == f"key={SECRET}"
    settings.change("remote", ServerChange(command="https://mcp.example/mcp", headers={}))
    assert settings.secrets["remote"].query == f"key={SECRET}"
    settings.change("remote", ServerChange(command="https://other.example/mcp"))
    assert "remote" not in settings.secrets, "a secret is not sent to another address"


def test_a_command_is_confirmed_as_it_was_shown_and_again_after_each_change(tmp_path: Path) -> None:
    settings = McpSettings(tmp_path)
    server = settings.add("files", ServerChange(command="uvx server", variables={"TOKEN": "one"}, enabled=True))
    assert (server.is_confirmed, server.is_enabled) == (False, False)
    shown = server.digest
    assert settings.change("files", ServerChange(confirm=shown, enabled=True)).is_enabled
    for change in (
        ServerChange(command="uvx other"),
        ServerChange(folder=str(tmp_path)),
        ServerChange(variables={"TOKEN": None, "PATH": "/evil"}),
        ServerChange(variables={"TOKEN": "two", "PATH": None}),
    ):
        settings.change("files", ServerChange(confirm=settings.get("files").digest, enabled=True))
        changed = settings.change("files", change)
        assert (changed.is_confirmed, changed.is_enabled) == (False, False), change
    with pytest.raises(InvalidTool, match="look at the command again"):
        settings.change("files", ServerChange(confirm=shown))
    settings.change("files", ServerChange(confirm=settings.get("files").digest, enabled=True))
    kept = settings.change("files", ServerChange(approval="allow", tools={"files__x": "never"}))
    assert kept.is_enabled
    assert kept.approval_of("files__x") == "never"
    assert settings.change("files", ServerChange(tools={"files__x": None})).approval_of("files__x") == "allow"


def test_a_command_written_into_the_file_by_another_program_is_not_confirmed(tmp_path: Path) -> None:
    settings = McpSettings(tmp_path)
    settings.add("files", ServerChange(command="uvx server"))
    settings.change("files", ServerChange(confirm=settings.get("files").digest, enabled=True))
    path = tmp_path / SETTINGS
    path.write_text(path.read_text().replace('"uvx"', '"rm"'))
    assert settings.reload()
    assert settings.get("files").command[0] == "rm"
    assert not settings.get("files").is_confirmed


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("two words", ServerChange(command="x"), "cannot be called 'two words'"),
        ("a__b", ServerChange(command="x"), "cannot be called"),
        ("files", ServerChange(), "the command is empty"),
        ("files", ServerChange(command="'open"), "No closing quotation"),
        ("files", ServerChange(command="x\x1b[2J"), "control characters"),
        ("files", ServerChange(command="http://"), "expected an address"),
        ("files", ServerChange(command="http://h:99999/"), "cannot be read"),
        ("files", ServerChange(command=f"https://me:{SECRET}@h/mcp"), "give them as a header"),
        ("files", ServerChange(command="x", folder="/no/such/folder"), "no folder '/no/such/folder'"),
        ("files", ServerChange(command="x", folder="here"), "full path"),
        ("files", ServerChange(command="x", variables={"A B": "1"}), "invalid name of a variable: 'A B'"),
        ("files", ServerChange(command="x", variables={"A": None}), "the variable A has no value"),
        ("files", ServerChange(command="x", headers={"A": "1"}), "headers are for addresses"),
        ("files", ServerChange(command="http://h/", variables={"A": "1"}), "for commands"),
        ("files", ServerChange(command="http://h/", headers={"A": f"{SECRET}\r\nX: y"}), "not allowed"),
    ],
)
def test_unusable_server_settings_are_refused_with_the_reason(
    tmp_path: Path, name: str, change: ServerChange, words: str
) -> None:
    settings = McpSettings(tmp_path)
    with pytest.raises(InvalidTool) as refused:
        settings.add(name, change)
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_files_that_others_can_read_or_that_are_damaged_are_refused(tmp_path: Path) -> None:
    McpSettings(tmp_path).add("files", ServerChange(command="x", variables={"A": SECRET}))
    for file in (SETTINGS, SECRETS):
        os.chmod(tmp_path / file, 0o644)
        with pytest.raises(InvalidTool, match=f"chmod 600 .*{file}"):
            McpSettings(tmp_path)
        os.chmod(tmp_path / file, 0o600)
    (tmp_path / SECRETS).write_text(f'{{"files": "{SECRET}"}}')
    with pytest.raises(InvalidTool, match="correct or delete it") as refused:
        McpSettings(tmp_path)
    assert SECRET not in str(refused.value)
    (tmp_path / SECRETS).unlink()
    (tmp_path / SETTINGS).write_text('{"servers": [{"name": 3}]}')
    with pytest.raises(InvalidTool, match="Expected `str`, got `int`"):
        McpSettings(tmp_path)


def test_a_server_is_there_once_and_unknown_names_are_errors(tmp_path: Path) -> None:
    settings = McpSettings(tmp_path)
    settings.add("files", ServerChange(command="x"))
    with pytest.raises(InvalidTool, match="already"):
        settings.add("files", ServerChange(command="y"))
    for act in (settings.remove, lambda name: settings.change(name, ServerChange())):
        with pytest.raises(InvalidTool, match="no MCP server 'other'; the stored ones are: files"):
            act("other")
