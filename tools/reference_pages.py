"""Write the reference pages that the program itself knows: commands, configuration, events, metrics, models.

python tools/reference_pages.py            write them
python tools/reference_pages.py --check    only compare; exit code 1 if one is out of date
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from document_capabilities import tables

import antiphon
from antiphon.cli import COMMANDS, load_command
from antiphon_gateway.config.settings import config_schema
from antiphon_gateway.observe.metrics import Metrics

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
_KINDS = {
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "datetime": "time",
    "NoneType": "null",
}
_MADE = "<!-- made by tools/reference_pages.py -->\n\n"
_INTRODUCTION = {
    "commands.md": """# Commands

Every command with its options. How they are used: [Command line](cli.md).
""",
    "configuration.md": """# Configuration

Every key of `antiphon.toml`. A file starts with a few of them: [Gateway](../gateway/gateway.md#configuration).
`antiphon serve --check` reports what is wrong in a file, with its line; `--schema` prints this as a JSON Schema for editors.
""",
    "events.md": """# Events

What a stream of the loop contains. As JSON, for instance in [server-sent events](../library/web.md#what-a-browser-gets), an event
has its name in the field `type`, and these fields. Guide: [Tool loop](../library/loop.md#events).
""",
    "metrics.md": """# Metrics

What `GET /metrics` of the gateway shows to Prometheus: [Monitoring](../gateway/monitoring.md).
""",
    "models.md": """# Models

What happens to a setting on a model, with the first model of each family: [Formats](../gateway/formats.md#models). *dropped* and
every changed value are reported as a loss, except where the model does the same without it. `antiphon models NAME` shows each
fact with its source.
""",
}


def pages() -> dict[str, str]:
    """The pages by name."""
    made = {
        "commands.md": _commands(),
        "configuration.md": _configuration(),
        "events.md": _events(),
        "metrics.md": _metrics(),
        "models.md": tables(),
    }
    return {name: f"{_INTRODUCTION[name]}\n{_MADE}{text.strip()}\n" for name, text in made.items()}


def _commands() -> str:
    parts = []
    for name in COMMANDS:
        parser = argparse.ArgumentParser(prog=f"antiphon {name}", add_help=False)
        load_command(name).configure(parser)
        parts += [f"## antiphon {name}", f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.", *_options(parser)]
    return "\n\n".join(part for part in parts if part)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The table of a parser, and those of its subcommands."""
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield f"### {command.prog}\n\n{_sentence(helps.get(name, ''))}"
                yield from _options(command)
        elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            rows.append(f"| {_names(action)} | {_cell(action.help or '')} |")
    if rows:
        yield "\n".join(["| option | |", "| --- | --- |", *rows])


def _names(action: argparse.Action) -> str:
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    shown = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"`{shown}`"
    return _cell(", ".join(f"`{name}{'' if action.nargs == 0 else ' ' + shown}`" for name in action.option_strings))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _configuration() -> str:
    tables = config_schema()["$defs"]
    parts = []
    for name, place in tables["Config"]["properties"].items():
        table = tables[(place.get("items") or place)["$ref"].rpartition("/")[2]]
        title = f"[[{name}]]" if place.get("type") == "array" else f"[{name}]"
        required = table.get("required", ())
        rows = [
            f"| `{key}` | {_default(key, field, required)} | {_about(field)} |"
            for key, field in table["properties"].items()
        ]
        parts.append(
            "\n".join(
                [
                    f"## {title}",
                    "",
                    inspect.cleandoc(table["description"]),
                    "",
                    "| key | default | |",
                    "| --- | --- | --- |",
                    *rows,
                ]
            )
        )
    return "\n\n".join(parts)


def _default(key: str, field: dict[str, Any], required: Any) -> str:
    if key in required:
        return "required"
    value = field.get("default")
    return "" if value in (None, "", [], {}) else f"`{json.dumps(value, ensure_ascii=False)}`"


def _about(field: dict[str, Any]) -> str:
    text = field.get("description", "")
    choices = field.get("enum") or [choice for one in field.get("anyOf", ()) for choice in one.get("enum", ())]
    if choices:
        text += " One of " + ", ".join(f"`{json.dumps(choice)}`" for choice in choices) + "."
    return _cell(text)


def _events() -> str:
    events = get_args(antiphon.LoopEvent)
    rows = []
    for event in events:
        fields = "; ".join(f"`{field.name}` {_kind(field.type)}" for field in msgspec.structs.fields(event))
        rows.append(f"| `{event.__name__}` | {fields} | {_cell(inspect.getdoc(event) or '')} |")
    names = ["LoopEvent", *(event.__name__ for event in events)]
    places = (f"antiphon.{name}" if hasattr(antiphon, name) else f"antiphon.conversation.{name}" for name in names)
    table = "\n".join(["| event | fields | when |", "| --- | --- | --- |", *rows])
    return "\n\n".join([table, "## In Python", *(f"::: {place}" for place in places)])


def _kind(annotation: Any) -> str:
    """What a field is in JSON. Objects have the name of their class, which the other pages describe."""
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"list of {_kind(get_args(annotation)[0])}"
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_kind, get_args(annotation)))
    if annotation is Any:
        return "any value"
    return _KINDS.get(annotation.__name__, annotation.__name__)


def _metrics() -> str:
    rows = []
    for family in Metrics().families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {_cell(family.help_text)} |")
    return "\n".join(["| metric | kind | labels | |", "| --- | --- | --- | --- |", *rows])


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    made = pages()
    if sys.argv[1:] != ["--check"]:
        for name, text in made.items():
            (REFERENCE / name).write_text(text, encoding="utf-8")
    stale = [name for name, text in made.items() if (REFERENCE / name).read_text(encoding="utf-8") != text]
    sys.exit(f"out of date: {', '.join(stale)}; run python tools/reference_pages.py" if stale else 0)
