"""The published specification of the Interactions API, from the package llm-comply: a judge that knows nothing of our rules.

Its list of models is left out: it names those of one day. Bodies for the laws come from its samples and, since no traffic of
this API was recorded, from the recorded traffic of generateContent and Messages, carried over and judged here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from antiphon.repair import repair
from antiphon.wire import formats

FORMAT = "gemini-interactions"
REQUEST, INTERACTION, EVENT = "CreateModelInteractionParams", "Interaction", "InteractionSseEvent"
_BODY = re.compile(r"-d '(\{.*?\})'\s*(?:\\|\n|$|\|)", re.DOTALL)


@cache
def specification() -> dict[str, Any]:
    """The OpenAPI document."""
    pytest.importorskip("llm_comply")
    document: dict[str, Any] = json.loads((files("llm_comply") / "specs" / "google_interactions.json").read_text())
    for name in ("ModelOption", "AgentOption"):
        document["components"]["schemas"][name] = {"type": "string"}
    any_format = document["components"]["schemas"]["ResponseFormat"]
    any_format["anyOf"] = any_format.pop(
        "oneOf"
    )  # one alternative is any object, so that no other could be the only one
    return document


@cache
def _validator(name: str) -> jsonschema_rs.Validator:
    components = specification()["components"]
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": components})


def problems(name: str, value: Any) -> list[str]:
    """Where a value does not fit the schema of that name."""
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in _validator(name).iter_errors(value)
    ]


def request_problems(body: dict[str, Any]) -> list[str]:
    """What the specification refuses in a request body."""
    return problems("CreateAgentInteractionParams" if "agent" in body else REQUEST, body)


def sample_requests() -> Iterator[dict[str, Any]]:
    """The request bodies in the samples for the command line."""
    stack: list[Any] = [specification()["paths"], specification()["components"]["schemas"]]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
            if value.get("lang") == "sh" and "/interactions" in value["source"]:
                bodies = (json.loads(text) for text in _BODY.findall(value["source"]))
                yield from (body for body in bodies if "input" in body)


def sample_values(schema: str) -> list[Any]:
    """The example values of a schema."""
    examples = specification()["components"]["schemas"][schema].get("examples", [])
    return [entry["value"] for example in examples for entry in example.values()]


@cache
def carried_records() -> list[dict[str, Any]]:
    """Exchanges of this API, in the shape of recorded ones."""
    from support.corpus import recorded

    records = [
        {"id": f"sample-{number}", "status": 200, "request": body, "response": None, "sse": None}
        for number, body in enumerate(sample_requests())
    ]
    for source in ("gemini", "anthropic"):
        records += [_carried(source, record) for record in recorded(source) if record["status"] == 200]
    return records


def _carried(source: str, record: dict[str, Any]) -> dict[str, Any]:
    carried = {"id": f"{source}-{record['id']}", "status": 200, "vendor": "", "model": "gemini-2.5-flash"}
    carried |= {"request": None, "response": None, "sse": None}
    if isinstance(record["request"], dict):
        request = msgspec.structs.replace(formats[source].read_request(record["request"]), model="gemini-2.5-flash")
        body = formats[FORMAT].write_request(repair(request, FORMAT).request).body
        carried["request"] = msgspec.json.decode(msgspec.json.encode(body))
    if isinstance(record["response"], dict):
        carried["response"] = formats[FORMAT].write_response(formats[source].read_response(record["response"])).body
    if isinstance(record["sse"], str):
        reader, writer = formats[source].stream_reader(), formats[FORMAT].stream_writer()
        deltas = [*reader.feed(record["sse"].encode()), *reader.close()]
        carried["sse"] = (b"".join(writer.write(delta) for delta in deltas) + writer.close()).decode()
    return carried
