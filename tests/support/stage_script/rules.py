"""The rules of a script: what an entry has, and that every cue is results of before the next line of the bot."""

from __future__ import annotations

from typing import Any

from antiphon.wire.format import WriteOptions
from antiphon.wire.rules import Violation


def check_request(body: Any, _options: WriteOptions, *, advisories: bool) -> list[Violation]:
    """The broken rules of a body."""
    del advisories
    if not isinstance(body, dict) or not isinstance(body.get("script"), list):
        return [Violation("ST-01", "script", "expected an array")]
    found: list[Violation] = []
    waiting: list[str] = []
    for index, entry in enumerate(body["script"]):
        if not isinstance(entry, dict) or entry.get("voice") not in ("stage", "person", "bot"):
            found.append(Violation("ST-02", f"script[{index}].voice", "expected stage, person or bot"))
            continue
        results = [result["tool"] for result in entry.get("results", [])]
        if results != waiting:
            found.append(
                Violation("ST-03", f"script[{index}].results", f"expected results of {waiting}, in this order")
            )
        waiting = [line["tool"] for line in entry.get("lines", []) if line.get("kind") == "cue"]
    if waiting:
        found.append(Violation("ST-03", "script", f"no results of {waiting}"))
    return found
