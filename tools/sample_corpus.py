"""`python tools/sample_corpus.py CORPUS`: writes `tests/corpus`, the sample of recorded traffic that comes with the repository.

A record is taken if it adds something: a status, a vendor, a tag (tools, thinking, ...) or a type of a block or event; then
as many others as fit. What is large, or looks like a credential or an address of a person, is left out. Long texts in
captured requests of programs are replaced by their length: their structure is what the tests need.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[1] / "tests" / "corpus"
LICENCES = {"MIT", "Apache-2.0", "BSD-3-Clause", "BSD-2-Clause"}
NOT_OPEN = {"claude-code"}
"""Programs without an open licence: their requests stay in the larger collection."""
BUDGETS = {"recorded": 180_000, "conversations": 60_000, "clients": 160_000}
"""Bytes of each file; of all captures."""
LARGEST = 12_000
LARGEST_STREAM = 30_000
STREAMS = 15
"""So many of the shortest whole streams of each file."""
NAMED = {"199d8ecd2120eda9"}
"""Records that a test asks for by their id."""
LONGEST_TEXT = 200
TEXTS = {"text", "content", "description", "instructions", "system", "systemInstruction", "output"}
FOLDER = re.compile(r"/(?:home|Users)/[\w.-]+")
PRIVATE = re.compile(
    r"sk-[A-Za-z0-9_-]{16}|AIza[\w-]{20}|gh[pousr]_\w{20}|xox[abp]-|AKIA[A-Z0-9]{12}|eyJhbGci|-----BEGIN|/home/\w|/Users/\w"
    r"|\b[\w.+-]{1,40}@(?!example\.)[\w-]+\.(?:com|org|net|io|ai|dev)\b"
)


def main(corpus: Path) -> None:
    for folder in ("recorded", "conversations"):
        for path in sorted((corpus / folder).glob("*.jsonl")):
            short = [line for line in path.read_text().splitlines() if len(line) <= LARGEST_STREAM]
            lines = [line for line in short if not PRIVATE.search(line)]
            records = [record for record in map(json.loads, sorted(lines, key=len)) if record["licence"] in LICENCES]
            whole = [record for record in records if isinstance(record.get("sse"), str) and record["status"] == 200]
            streams = [record for record in whole if isinstance(record["request"], dict)][:STREAMS]
            streams += [record for record in records if record["id"] in NAMED and record not in streams]
            others = [record for record in records if len(_line(record)) <= LARGEST and record not in streams]
            taken = [*streams, *select(others, BUDGETS[folder])]
            target = OUT / folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(_line(record) + "\n" for record in taken))
            print(f"{folder}/{path.name}: {len(taken)} of {len(records)}")
    captures = {
        path.name: shorten(json.loads(path.read_text())) for path in sorted((corpus / "clients").glob("*.json"))
    }
    usable = [
        {"file": name, **capture}
        for name, capture in captures.items()
        if len(_line(capture)) <= 3 * LARGEST
        and not PRIVATE.search(_line(capture))
        and capture.get("client") not in NOT_OPEN
    ]
    (OUT / "clients").mkdir(parents=True, exist_ok=True)
    for capture in select(usable, BUDGETS["clients"]):
        name = capture.pop("file")
        (OUT / "clients" / name).write_text(_line(capture) + "\n")


def select(records: list[dict[str, Any]], budget: int) -> Iterator[dict[str, Any]]:
    """Records that add something, smallest first; then others, while there is room."""
    seen: set[str] = set()
    left: list[dict[str, Any]] = []
    for record in sorted(records, key=lambda record: (len(_line(record)), _line(record))):
        new = features(record) - seen
        size = len(_line(record))
        if new and size <= budget:
            seen |= new
            budget -= size
            yield record
        else:
            left.append(record)
    for record in left:
        size = len(_line(record))
        if size <= budget:
            budget -= size
            yield record


def features(record: dict[str, Any]) -> set[str]:
    """What a record shows."""
    named = {f"{name}={record.get(name)}" for name in ("status", "vendor", "stream", "client", "kind", "wire")}
    types = set(re.findall(r'"type": ?"([\w.]+)"', json.dumps(record)))
    return named | {f"tag={tag}" for tag in record.get("tags", ())} | {f"type={name}" for name in types}


def shorten(value: Any, key: str = "") -> Any:
    """A captured request without its long texts."""
    if isinstance(value, dict):
        return {name: shorten(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [shorten(inner, key) for inner in value]
    if isinstance(value, str) and key in TEXTS and len(value) > LONGEST_TEXT:
        return f"[{len(value)} characters]"
    return FOLDER.sub("/project", value) if isinstance(value, str) else value


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
