"""The request that is translated and forwarded: one of a coding agent, the same in every run.

201 messages and 20 tools, about 320 KB: a system prompt, ten tasks of a person, each with seven rounds of calls and results and
an answer; two of the rounds call three tools at once. Results vary: source code, JSON, a listing, a log with colours, text in
other scripts, one word. Arguments are mostly a path or a pattern, sometimes a page of code. The tools have realistic schemas.

Longer requests (`chat_request(10_001)`) have more tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

MESSAGES = 201
TOOLS = 20
_WIDTHS = (1, 1, 3, 1, 1, 3, 1)  # the rounds of a task: how many tools each calls
_PER_TASK = 2 + sum(1 + width for width in _WIDTHS)

_SOURCE = '''\
def read_settings(path: Path, *, strict: bool = False) -> Settings:
\t"""Read the settings of a project; unknown keys are kept, so that "newer" files survive."""
\ttry:
\t\tdata = tomllib.loads(path.read_text(encoding="utf-8"))
\texcept tomllib.TOMLDecodeError as error:
\t\traise SettingsError(f"{path}: not TOML ({error})\\n") from error
\tknown = {field.name: field for field in fields(Settings)}
\tif strict and (unknown := data.keys() - known):
\t\traise SettingsError(f"{path}: unknown keys {', '.join(sorted(unknown))}")
\treturn Settings(**{name: convert(known[name], value) for name, value in data.items() if name in known})
'''
_LOG = """\
\x1b[32mPASSED\x1b[0m tests/test_settings.py::test_reads_what_it_wrote[plain]
\x1b[31mFAILED\x1b[0m tests/test_settings.py::test_keeps_unknown_keys - AssertionError: assert {'a': 1} == {'a': 1, 'b': "2"}
  File "C:\\\\work\\\\project\\\\tests\\\\test_settings.py", line 41, in test_keeps_unknown_keys
"""
_PROSE = "Straßenzüge, naïve façades – 「設定ファイルは必ず閉じること」, «настройки по умолчанию», 🙂 und so weiter. "
_ISSUE = {
    "id": 918_273,
    "title": 'Settings lose keys after "save"',
    "labels": [{"name": "bug", "color": "d73a4a"}, {"name": "settings", "color": "0e8a16"}],
    "author": {"login": "ada", "id": 1815, "site_admin": False},
    "comments": 7,
    "closed_at": None,
    "ratio": 0.8125,
    "body": "Steps:\n1. open\n2. save\n3. `cat settings.toml`\n\nExpected: the key is kept.",
}
_ANSWER = (
    "The key was dropped because `Settings` was built from the known fields only. I kept the rest in `extra`, wrote it back on "
    'saving, and added a test for "newer" files:\n\n```python\nassert read(write(settings)) == settings\n```\n\n'
)


def chat_request(length: int = MESSAGES) -> dict[str, Any]:
    """A Chat Completions body with `length` messages, or as many as whole tasks give."""
    ids = count(1)
    messages = [{"role": "system", "content": _SYSTEM}]
    for task in range((length - 1) // _PER_TASK):
        messages += _messages(task, ids)
    return {
        "model": "gpt-4o",
        "messages": messages,
        "tools": [_tool(number) for number in range(TOOLS)],
        "tool_choice": "auto",
        "temperature": 0.5,
        "max_tokens": 4_000,
    }


_SYSTEM = (
    "You are a careful engineer who works in a repository with the tools given.\n\n# Rules\n"
    '- Read before you write; say "I do not know" when you do not.\n- Keep changes small, and run the tests after each.\n\n'
) * 12


def _messages(task: int, ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    """A task, from the question to the answer."""
    yield {"role": "user", "content": f"Task {task}: settings lose keys on saving. {_PROSE}\n\n```\n{_LOG}```\n"}
    for step, width in enumerate(_WIDTHS):
        calls = [_call(next(ids), task, step, lane) for lane in range(width)]
        comment = None if step % 2 else f"Step {step}: I look at what is there, then change the reader."
        yield {"role": "assistant", "content": comment, "tool_calls": calls}
        for lane, call in enumerate(calls):
            yield {"role": "tool", "tool_call_id": call["id"], "content": _result(task, step + lane)}
    yield {"role": "assistant", "content": _ANSWER * (1 + task % 3)}


def _call(number: int, task: int, step: int, lane: int) -> dict[str, Any]:
    path = f"src/project/settings_{task}_{lane}.py"
    arguments: dict[str, Any]
    match (step + lane) % 4:
        case 0:
            name, arguments = "read_file", {"path": path, "offset": 1 + 200 * step, "limit": 200}
        case 1:
            arguments = {"pattern": r'def (read|write)_\w+\("', "path": "src", "glob": "*.py", "context": [2, 4]}
            name = "search_text"
        case 2:
            edit = {"old": _SOURCE[:200], "new": _SOURCE * 2, "count": 1, "is_regex": False}
            name, arguments = "edit_file", {"path": path, "edits": [edit], "reason": _PROSE}
        case _:
            arguments = {"command": f"make test ONLY='{path}'", "timeout": 120.0, "env": {"CI": "1"}}
            name = "run_command"
    called = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=task % 2 == 0)}
    return {"id": f"call_{number:024d}", "type": "function", "function": called}


def _result(task: int, step: int) -> str:
    match step % 6:
        case 0:
            return _SOURCE * (2 + task % 4)
        case 1:
            return json.dumps([_ISSUE] * (3 + task % 3), indent=2)
        case 2:
            return "ok"
        case 3:
            return _LOG * (4 + task % 5)
        case 4:
            return _PROSE * (5 + task % 6)
        case _:
            return "\n".join(
                f"src/project/module_{number:03d}.py:{number * 7}: import settings" for number in range(40)
            )


def _tool(number: int) -> dict[str, Any]:
    names = ("read_file", "search_text", "edit_file", "run_command")
    name = names[number] if number < len(names) else f"{names[number % 4]}_{number}"
    description = (
        f"{name}: works on files below the root of the project, never outside of it.\n\n"
        'Use it when the text is known, and "search_text" when it is not. Paths are relative, with forward slashes. '
        "The result is the text itself, cut to 2,000 lines; say an offset to read on.\n"
    ) * (1 + number % 3)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": _schema(number)}}


def _schema(number: int) -> dict[str, Any]:
    edit = {
        "type": "object",
        "properties": {
            "old": {"type": "string", "description": "The text to replace; it must occur exactly `count` times."},
            "new": {"type": "string", "description": "What stands there afterwards."},
            "count": {"type": "integer", "description": "How often it occurs.", "minimum": 1, "default": 1},
            "is_regex": {"type": "boolean", "default": False},
        },
        "required": ["old", "new"],
        "additionalProperties": False,
    }
    properties: dict[str, Any] = {
        "path": {"type": "string", "description": "The file, relative to the root."},
        "offset": {"type": "integer", "description": "The first line to read, from 1.", "minimum": 1},
        "mode": {"type": "string", "enum": ["text", "binary", "lines"], "description": "How the file is read."},
        "reason": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Why, for the log."},
        "glob": {"type": "array", "items": {"type": "string"}, "description": "Patterns the names must match."},
    }
    if number % 2 == 0:
        properties["edits"] = {
            "type": "array",
            "items": edit,
            "minItems": 1,
            "description": "Done one after the other.",
        }
    if number % 3 == 0:
        properties["env"] = {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Variables to set.",
        }
    return {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
