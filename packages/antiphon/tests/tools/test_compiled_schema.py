"""The official JSON Schema Test Suite: every case is decided right, and the words for a refusal agree with the decision."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from antiphon.tools.compiled_schema import CompiledSchema, InvalidSchema

SUITE = Path(__file__).parent / "json_schema_suite.jsonl.gz"
DRAFTS: dict[str, tuple[type[jsonschema_rs.Validator], int]] = {
    "draft4": (jsonschema_rs.Draft4Validator, 590),
    "draft6": (jsonschema_rs.Draft6Validator, 800),
    "draft7": (jsonschema_rs.Draft7Validator, 880),
    "draft2019-09": (jsonschema_rs.Draft201909Validator, 1_190),
    "draft2020-12": (jsonschema_rs.Draft202012Validator, 1_200),
}
# Documents that the suite serves on a local server. They are never fetched, so these schemas are refused.
REMOTE = "http://localhost:1234"


@functools.cache
def groups() -> list[dict[str, Any]]:
    with gzip.open(SUITE, "rb") as lines:
        return [msgspec.json.decode(line) for line in lines]


@pytest.mark.parametrize("name", DRAFTS)
def test_every_case_matches_the_suite(name: str) -> None:
    draft, least = DRAFTS[name]
    wrong: list[str] = []
    cases = 0
    for group in groups():
        if group["draft"] != name:
            continue
        schema = group["schema"]
        place = f"{group['file']}: {group['description']}"
        if isinstance(schema, dict) and str(schema.get("$schema", "")).startswith(REMOTE):
            continue  # a dialect of its own, whose rules would have to be fetched
        try:
            compiled = CompiledSchema(schema, draft=draft)
        except InvalidSchema as error:
            if REMOTE not in str(error) and "refRemote" not in group["file"]:
                wrong.append(f"{place}: {error}")
            continue
        for case in group["tests"]:
            cases += 1
            is_valid = compiled.is_valid(case["data"])
            if is_valid != case["valid"] or bool(compiled.problems(case["data"])) is is_valid:
                wrong.append(f"{place}: {case['description']}")
    assert not wrong
    assert cases > least
