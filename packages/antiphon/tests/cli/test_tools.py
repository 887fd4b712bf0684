"""`antiphon tools stats`, run as a user runs it, over conversations whose tools really ran."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.history import SqliteStore
from support.antiphon_process import run_antiphon


@ap.tool(effect="read", cache_seconds=60)
def search_web(query: str) -> str:
    "Search the web."
    return f"found {query}"


@ap.tool
def fetch(address: str) -> str:
    "Fetch a page."
    raise ValueError(f"{address} does not answer")


def converse(store: SqliteStore, *answers: Any) -> ap.AgentHistory:
    history = store.create()
    ap.ToolLoop(
        ap.Conversation(ap.ScriptedModel(*answers, "Done."), tools=[search_web, fetch], history=history)
    ).run_sync("Go.")
    return history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with two conversations: four searches, two of them from the cache, one failed fetch and an unknown tool."""
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        search, fetching = ap.call("search_web", query="IELTS"), ap.call("fetch", address="x")
        converse(store, search, [search_again(), fetching], [search_again(), ap.call("serach", query="y")])
        converse(store, ap.call("search_web", query="writing"))
    return path


def search_again() -> ap.ToolCallRequest:
    return ap.call("search_web", query="IELTS")


def stats(*arguments: str | Path) -> Any:
    code, out, error = antiphon("tools", "stats", *arguments, "--json")
    assert (code, error) == (0, "")
    return {tool["tool"]: tool for tool in msgspec.json.decode(out)}


def antiphon(*arguments: str | Path) -> tuple[int, str, str]:
    run = run_antiphon(*map(str, arguments), env={**os.environ, "COLUMNS": "160", "TZ": "UTC"})
    return run.returncode, run.stdout.decode(), run.stderr.decode()


def test_calls_failures_time_and_cache_hits_by_tool(path: Path) -> None:
    tools = stats("--store", path)
    assert list(tools) == ["search_web", "fetch", "serach"]
    search = tools["search_web"]
    assert (search["calls"], search["failed"], search["cached"], search["conversations"]) == (4, 0, 2, 2)
    assert search["timed"] == 4
    assert 0 < search["mean_seconds"] <= search["slowest"] <= search["seconds"]
    assert (tools["fetch"]["calls"], tools["fetch"]["failed"], tools["fetch"]["failure_rate"]) == (1, 1, 1.0)
    assert tools["serach"]["failed"] == 1


def test_table_of_one_conversation(path: Path) -> None:
    code, out, _ = antiphon("tools", "stats", "last", "--store", path)
    heads, row = out.splitlines()
    assert code == 0
    assert heads.split()[:4] == ["TOOL", "LAST", "CALLS", "FAILED"]
    assert row.split()[0] == "search_web"
    assert row.split()[3:5] == ["1", "0"]
    assert row.split()[-1] == "1"


def test_time_and_forks(path: Path) -> None:
    with SqliteStore(path) as store:
        first = store.list()[-1].id
        store.fork(first)
    assert stats("--store", path)["search_web"]["calls"] == 4
    assert stats("--store", path, "--since", "1d")["search_web"]["calls"] == 4
    assert stats("--store", path, "--since", "2999-01-01") == {}
    code, out, _ = antiphon("tools", "stats", "--store", path, "--since", "2999-01-01")
    assert (code, out) == (0, f"no tool calls in {path} for that time\n")
    code, _, error = antiphon("tools", "stats", "--store", path, "--since", "yesterday")
    assert code == 1
    assert "--since 'yesterday' is not a time" in error
