"""Every instruction that is printed runs: as a command that exists, and from where the person stands.

The texts are read from the source: each `antiphon …` between backticks in a text of Python that is not a docstring or in a text
of the pages, and each that the pages draw as code. The command and its options must exist. What a chat prints at its end and in
its tour is run in a shell of the same folder, without `antiphon` on its PATH.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.cli import COMMANDS, main
from support.repository import PACKAGES
from support.terminal import Terminal, environment_of

LEAVE = "\x04"
INSTRUCTION = re.compile(r"`antiphon ([a-z]+(?: [^`]*)?)`")
DRAWN = re.compile(r"""(?:"|<code>|: )(antiphon [a-z]+(?: [^"<]*)?)(?:"|</)""")
SUBCOMMANDS = {"history", "key", "runs", "spend", "tape"}


def texts(module: str) -> Iterator[str]:
    """The texts of a module without its docstrings; what is filled in is a word."""
    if "`antiphon " not in module:  # most of them, and parsing is what takes long
        return
    tree = ast.parse(module)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def page_texts() -> Iterator[str]:
    """What the pages say: their texts in each language, and the commands in their scripts and documents."""
    for table in PACKAGES.glob("*/src/**/page/**/[ez][nh].json"):
        yield from json.loads(table.read_text(encoding="utf-8")).values()
    for document in (*PACKAGES.glob("*/src/**/page/**/*.js"), *PACKAGES.glob("*/src/**/page/**/index.html")):
        yield from (f"`{found[1]}`" for found in DRAWN.finditer(document.read_text(encoding="utf-8")))


def instructions() -> set[str]:
    modules = (module.read_text(encoding="utf-8") for module in PACKAGES.glob("*/src/**/*.py"))
    printed = [text for module in modules for text in texts(module)]
    return {found[1] for text in (*printed, *page_texts()) for found in INSTRUCTION.finditer(text)}


@pytest.mark.parametrize("instruction", sorted(instructions()))
def test_an_instruction_names_a_command_that_exists(instruction: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *words = shlex.split(instruction.replace("…", "X"))
    assert name in COMMANDS
    with pytest.raises(SystemExit) as ended:
        main([name, *(words[:1] if name in SUBCOMMANDS else []), "--help"])
    assert not ended.value.code, capsys.readouterr().err
    shown = capsys.readouterr().out
    for option in (word for word in words if word.startswith("-")):
        assert re.search(rf"(?<![\w-]){re.escape(option)}\b", shown), f"{name} has no {option}"


def test_there_are_instructions() -> None:
    assert {"chat --resume", "doctor", "key new", "key new --admin --name operator", "chat"} <= instructions()


def test_the_command_that_is_printed_at_the_end_resumes_the_conversation(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", columns=200, environment={"PATH": "/usr/bin:/bin"}) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("who are you?")
        terminal.sees("1 round")
        terminal.send("2")
        terminal.sees("kill -9")
        in_tour = re.search(r"start it again with (\S+ chat --resume) \(or (\S+ chat --web --resume)\)", terminal.words)
        terminal.type("\x03")
        terminal.sees("stopped")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        printed = re.search(r"Resume with `([^`]+)`", terminal.words)
    assert printed is not None
    assert in_tour is not None
    assert printed[1] == in_tour[1]
    environment = environment_of(tmp_path, {"PATH": "/usr/bin:/bin"})
    for command in (printed[1], in_tour[1]):
        done = subprocess.run(
            ["sh", "-c", f"{command} -p 'list my plans'"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "There are no plans yet." in done.stdout
    shown = subprocess.run(["sh", "-c", f"{in_tour[2]} --help"], cwd=tmp_path, env=environment, check=False, timeout=60)
    assert shown.returncode == 0
