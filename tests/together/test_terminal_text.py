"""No text of a model, a tool, a file or a provider steers the terminal, whichever command prints it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.terminal import Styled, escape_control_chars, joined, styled, table
from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, SqliteStore, ToolCallResultsEntry
from antiphon.parts import Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.runs import Runs
from support.terminal import NASTY, is_control, on_a_terminal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def history(path: Path) -> AgentHistory:
    """A conversation with a title, tags and texts that would steer a terminal."""
    call = ToolCallRequest(f"look{NASTY}", "call_1", msgspec.json.encode({"city": NASTY}).decode())
    with SqliteStore(path) as store:
        history = store.create(f"Title {NASTY}", tags=[f"tag{NASTY}"])
        history.set_system_instruction(NASTY)
        history.append(ModelInputEntry.of(f"Rain {NASTY}?"))
        history.append(ModelOutputEntry((Thinking(NASTY), Text(NASTY), call)))
        history.append(ToolCallResultsEntry((ToolCallResult.of(call, f"Rain {NASTY}"),)))
        history.append(ModelOutputEntry.of(f"Rain it is {NASTY}"))
        Runs(store).submit(f"Go {NASTY}", kind=f"kind{NASTY}", title=f"Run {NASTY}", provider=NASTY, options={NASTY: 1})
        run = Runs(store).submit("Go.", kind="other")
        Runs(store).cancel(run.id, f"no {NASTY}")
    return history


@given(st.text() | st.text(alphabet=NASTY))
def test_escaping_leaves_no_control_characters_and_is_idempotent(text: str) -> None:
    escaped = escape_control_chars(text)
    assert not any(is_control(char) for char in escaped)
    assert escape_control_chars(escaped) == escaped
    assert joined(text, styled(text, "bold")) == escaped * 2
    assert escape_control_chars(Styled("\x1b[1mbold\x1b[0m")) == "\x1b[1mbold\x1b[0m"


@pytest.mark.parametrize(
    "command",
    [
        "history list",
        "history list --json",
        "history show {id}",
        "history show {id} --full --effective",
        "history show {id} --json",
        "history search Rain",
        "history search Rain --json",
        "history export {id}",
        "history fork {id}",
        "history delete {id}",
        "history copy {id} --to {folder}/other.db",
        "runs list",
        "runs list --json",
        "runs show last",
        "runs show last --json",
        "runs follow last",
        "runs follow last --json",
    ],
)
def test_stored_text_is_escaped(command: str, path: Path, history: AgentHistory) -> None:
    words = command.format(id=history.id, folder=path.parent).split()
    code, shown = on_a_terminal(path.parent, *words, ANTIPHON_STORE=str(path), typed="n\n", PAGER="")
    assert "Traceback" not in shown
    assert code in (0, 1)
    shown = shown.replace("\r\x1b[K", "")  # `copy` replaces its own line of progress
    assert not any(is_control(char) for char in shown), shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "show", NASTY],
        ["history", "list", "--tag", NASTY],
        ["history", "search", NASTY],
        ["history", "import", f"{NASTY}.jsonl"],
        ["history", "list", "--page", NASTY],
        ["check", "--format", "openai-chat", NASTY],
        ["check", "--format", NASTY],
        ["convert", "--from", "openai-chat", "--to", "gemini", "body.json"],
        ["repair", "--format", "openai-chat", "--explain", "body.json"],
        ["chat", "-m", NASTY, "-p", "Hello"],
        ["chat", "--resume", NASTY, "-p", "Hello"],
        ["chat", "--folder", NASTY, "-p", "Hello"],
        ["chat", "-p", f"say {NASTY}"],
        ["chat", "-p", f"say {NASTY}", "--json"],
        ["serve", "--check", "--config", NASTY],
        ["runs", "show", NASTY],
        ["worker", "--app", NASTY],
        ["worker", "--limit", NASTY],
    ],
    ids=lambda arguments: " ".join(word for word in arguments if word.isprintable()),
)
def test_arguments_and_files_are_escaped(arguments: list[str], path: Path, history: AgentHistory) -> None:
    messages = [
        {"role": "user", "content": NASTY},
        {
            "role": "assistant",
            "tool_calls": [{"id": NASTY, "type": "function", "function": {"name": NASTY, "arguments": NASTY}}],
        },
        {"role": "user", "content": NASTY},
    ]
    (path.parent / "body.json").write_bytes(msgspec.json.encode({"model": NASTY, NASTY: 1, "messages": messages}))
    _, shown = on_a_terminal(path.parent, *arguments, ANTIPHON_STORE=str(path))
    assert "Traceback" not in shown, shown
    assert not any(is_control(char) for char in shown), shown


def test_an_empty_pager_variable_means_no_pager(path: Path, history: AgentHistory) -> None:
    with SqliteStore(path) as store:
        store.open(history.id).append(ModelOutputEntry.of("\n".join(f"line {number}" for number in range(100))))
    for pager in ("", "  ", "'unfinished", "no-such-pager -x"):
        code, shown = on_a_terminal(
            path.parent, "history", "show", history.id, "--full", "--store", str(path), PAGER=pager
        )
        assert code == 0
        assert "line 99" in shown


def test_numbers_of_a_table_are_aligned_to_the_right_beside_wide_characters() -> None:
    lines = list(table(("key", "calls"), [("团队蓝", "7"), ("ops", "1,200")], right_from=1))
    assert lines == ["key     calls", "团队蓝      7", "ops     1,200"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_tables_are_shortened_on_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    details = "models=['to-*', 'gpt-5*'], tokens_per_day=5000000"
    line = list(table(("TARGET", "DETAILS"), [("team blue", details)]))[-1]
    assert (details in line) is not is_terminal
    assert not is_terminal or (len(line) <= 40 and line.endswith("…"))
