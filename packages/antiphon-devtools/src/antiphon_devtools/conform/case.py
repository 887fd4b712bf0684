"""A case: a conversation, what the provider does, and for which formats it applies. The files in `cases/` hold them as TOML.

A file is a group. `docs/devtools/conformance.md` lists the fields; an unknown one is an error that names the file and the case.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon_devtools.conform.conversation import Answer, Dialogue, Settings, Turn
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.upstream import Fault

GROUPS = ("clean", "answers", "broken", "models", "streams", "disconnects", "faults")
CLIENT_GROUPS = ("errors",)
"""Groups that are judged with `--client-only` alone."""
_FOLDER = Path(__file__).parent / "cases"
_TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city."}},
        "required": ["city"],
    },
    "clock": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "book_table": {
        "type": "object",
        "properties": {
            "guests": {"type": "integer", "minimum": 1},
            "at": {"type": "array", "items": {"type": "string"}},
            "notes": {"type": "object", "properties": {"quiet": {"type": "boolean"}}, "additionalProperties": False},
        },
        "required": ["guests"],
        "additionalProperties": False,
    },
}


class CaseError(AntiphonError):
    """A file of cases cannot be read."""


class ClientOnly(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be judged without a mock provider, where the content of the answer is not known."""

    expects: Literal["answer", "usage", "call", "json", "length", "error", "served"] = "answer"
    refusable: bool = False
    """Whether a 4xx in the client's shape is right as well: not every model takes images or schemas."""


class Case(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One case, as its file has it. `group` is the name of the file."""

    id: str
    title: str
    group: str = ""
    turns: tuple[Turn, ...] = ()
    system: str = ""
    tools: tuple[str, ...] = ()
    tool_choice: str = ""
    schema: dict[str, Any] | None = None
    settings: Settings = Settings()
    has_limit: bool = True
    """Whether a request without a limit of tokens gets one: APIs that require it would otherwise refuse every case."""
    not_sent: tuple[str, ...] = ()
    """Settings that the model does not take, so that they must not arrive."""
    bodies: dict[str, dict[str, Any]] = {}
    """Fields that replace those of the written request, by client format."""
    body_texts: tuple[str, ...] = ()
    """Texts of `bodies` that must arrive."""
    answer: Answer = Answer()
    fault: Fault = Fault()
    statuses: tuple[int, ...] = ()
    """The statuses that the client may get for a fault; empty if the request must succeed."""
    cut: Literal["", "after", "inside", "ended"] = ""
    """Cut the stream after every event, inside every event, or end the body properly after every event."""
    leave: Literal["", "head", "stream"] = ""
    """The client leaves before the head, or in the stream."""
    mode: Literal["both", "whole", "stream"] = "both"
    model: Literal["", "newer"] = ""
    clients: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    native: str = ""
    """The format that the signatures of this case come from."""
    refusable: bool = False
    """Whether a 4xx is a right answer although the client's own API accepts the request: the model does not."""
    client_only: ClientOnly | None = None
    """What is judged without a mock provider; `None` if the case needs one."""
    mistake: Literal["", "json", "model", "key", "path"] = ""
    """What is wrong with the request itself: its JSON is cut, or its model, key or path does not exist."""
    omitted: dict[str, str] = {}
    """A field that is left out of the written request, by client format."""

    @property
    def dialogue(self) -> Dialogue:
        """What the client sends."""
        settings = self.settings
        if self.has_limit and settings.max_tokens is None:
            settings = msgspec.structs.replace(settings, max_tokens=1024)
        return Dialogue(
            turns=self.turns,
            system=self.system,
            tools={name: _TOOLS[name] for name in self.tools},
            tool_choice=self.tool_choice,
            schema=self.schema,
            settings=settings,
        )

    @property
    def modes(self) -> tuple[bool, ...]:
        """Whether to stream: one run each."""
        return {"both": (False, True), "whole": (False,), "stream": (True,)}[self.mode]


def load_cases(folders: Iterable[Path] = ()) -> list[Case]:
    """The cases of the suite, and those of more folders of TOML files; raises `CaseError`."""
    found: dict[str, Case] = {}
    files = [_FOLDER / f"{group}.toml" for group in (*GROUPS, *CLIENT_GROUPS)]
    for folder in folders:
        extra = sorted(folder.glob("*.toml")) if folder.is_dir() else []
        if not extra:
            raise CaseError(f"{folder} has no .toml files; name a folder with files of cases")
        files += extra
    for file in files:
        for case in _read(file):
            if case.id in found:
                raise CaseError(f"{file.name}: the case id {case.id!r} is used twice; ids must be unique")
            found[case.id] = case
    return list(found.values())


def _read(file: Path) -> list[Case]:
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise CaseError(f"cannot read {file}: {error}") from None
    if file.stem not in (*GROUPS, *CLIENT_GROUPS):
        known = ", ".join((*GROUPS, *CLIENT_GROUPS))
        raise CaseError(f"{file}: a file of cases must be named after a group: {known}")
    cases = []
    for place, entry in enumerate(entries.get("case", [])):
        name = entry.get("id", f"number {place + 1}")
        try:
            case = msgspec.convert({**entry, "group": file.stem}, Case)
        except msgspec.ValidationError as error:
            raise CaseError(f"{file.name}: case {name}: {error}") from None
        names = {*case.clients, *case.upstreams, *case.bodies, *case.omitted, *([case.native] if case.native else [])}
        if unknown := sorted(names - FORMATS.keys()):
            raise CaseError(f"{file.name}: case {name}: unknown format {unknown[0]!r}; known: {', '.join(FORMATS)}")
        if unknown := sorted(set(case.tools) - _TOOLS.keys()):
            raise CaseError(f"{file.name}: case {name}: unknown tool {unknown[0]!r}; known: {', '.join(_TOOLS)}")
        if file.stem in CLIENT_GROUPS and case.client_only is None:
            raise CaseError(
                f'{file.name}: case {name}: client_only is missing; write client_only = {{ expects = "error" }}'
            )
        cases.append(case)
    return cases
