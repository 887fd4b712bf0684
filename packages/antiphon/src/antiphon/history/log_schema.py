"""The JSON Schema of the log format: every line that an export of this version may have, made from the classes of the entries.

`antiphon history schema` prints it. The rules of the format are in `docs/log-format.md`.
"""

from __future__ import annotations

from inspect import cleandoc
from typing import Any, get_args

import msgspec

from antiphon.history.codec import SCHEMA
from antiphon.history.entries import KnownEntry
from antiphon.history.export import AttachmentLine, ExportHead

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ENTRY_NAMES = {kind.__name__ for kind in get_args(KnownEntry)}


def log_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one line of an export: its head, an attachment, or an entry."""
    (head, attachment, entry), definitions = msgspec.json.schema_components(
        [ExportHead, AttachmentLine, KnownEntry], ref_template="#/$defs/{name}"
    )
    for name, definition in definitions.items():
        definition["description"] = cleandoc(definition.get("description", "")).split("\n\n")[0].replace("\n", " ")
        if name in _ENTRY_NAMES:  # what the history gives every entry when it is appended
            definition["properties"]["sequence_number"] = {"type": "integer", "minimum": 1}
            definition["required"] += ["sequence_number"]
    definitions["ExportHead"]["required"] = ["antiphon", *definitions["ExportHead"]["required"]]
    definitions["Entry"] = {"description": "One thing that happened.", **entry}
    return {
        "$schema": _DIALECT,
        "title": f"Antiphon log format {SCHEMA}",
        "description": "A line of an exported conversation: first the head, then attachments, then the entries in order.",
        "anyOf": [head, attachment, {"$ref": "#/$defs/Entry"}],
        "$defs": dict(sorted(definitions.items())),
    }
