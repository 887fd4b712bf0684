"""L4 for every model family: whatever is asked, the model of the target accepts it, and every change is reported (L3).

Judged by our checker and by `model_judge`, which knows only what others state about the models.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations, islice
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Audio, Document, Image, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.repair import repair
from antiphon.wire import FORMATS, Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition, formats
from antiphon.wire.capabilities import EFFORTS, Family, capability_data
from support.corpus import accepted_requests, client_requests, in_collection, recorded
from support.examples import scaled
from support.model_judge import refusals

FAMILIES = capability_data().families
CALL = ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')
ASK = Message("user", (Text("Is it raining? Answer in json."),))
ANSWER = Message("assistant", (Text("It is"),))
CONVERSATIONS: tuple[tuple[Message, ...], ...] = (
    (ASK,),
    (Message("system", (Text("Be brief."),)), ASK),
    (ASK, ANSWER),
    (ASK, Message("assistant", (CALL,)), Message("user", (ToolCallResult.of(CALL, "Rain"),))),
    (
        ASK,
        Message("assistant", (Thinking("Hm."), CALL)),
        Message("tool", (ToolCallResult.of(CALL, "Rain"),)),
        ANSWER,
        ASK,
    ),
    (ASK, ANSWER, Message("system", (Text("Now in French."),)), ASK),
)
MEDIA = (
    Image("image/png", "iVBORw0KGgo="),
    Image("image/bmp", "Qk1GRkZG"),
    Document("application/pdf", "JVBERi0xLjQK", name="a.pdf"),
    Document("text/markdown", "IyBIaSB0aGVyZQ=="),
    Audio("audio/wav", "UklGRgAAAABXQVZF"),
    Audio("audio/midi", "TVRoZAAA"),
    Document("video/mp4", "AAAAGGZ0eXBpc29t"),
)
MEDIA_CONVERSATIONS: tuple[tuple[Message, ...], ...] = (
    *((Message("user", (Text("See."), part)),) for part in MEDIA),
    (Message("user", (Text("See."), *MEDIA)),),
    (ASK, Message("assistant", (CALL,)), Message("user", (ToolCallResult.of(CALL, "Seen", *MEDIA[:3]),))),
)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "l": {"type": "array", "items": {}, "minItems": 3}},
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.2},
    {"temperature": 0, "top_p": 1},
    {"top_p": 0.5},
    {"temperature": 1.7, "top_p": 0.3},
    {"top_k": 5},
    {"presence_penalty": 1.0, "frequency_penalty": -1.0},
    {"logprobs": True, "top_logprobs": 5},
    {"stop": ("END", " ", "a", "b", "c", "d")},
    {"seed": 2**40},
    {"candidates": 12},
    {"max_output_tokens": 2_000_000},
    {"max_output_tokens": 3},
    *({"reasoning": Reasoning(effort)} for effort in EFFORTS),
    *({"reasoning": Reasoning(budget_tokens=tokens)} for tokens in (0, 100, 3000, 30_000, 200_000)),
    {"reasoning": Reasoning(enabled=True, shown="auto")},
    {"reasoning": Reasoning(enabled=False)},
    {"tools": (ToolDefinition("weather", None, SCHEMA, strict=True),)},
    {"tools": (ToolDefinition("weather", None, SCHEMA),), "tool_choice": ToolChoice("required")},
    {"tools": (ToolDefinition("weather", None, SCHEMA),), "tool_choice": ToolChoice("tool", ("weather",))},
    {"tools": (ToolDefinition("weather", None, SCHEMA),), "parallel_tool_calls": False},
    {"output_format": OutputFormat("json_schema", SCHEMA, name="out")},
    {"output_format": OutputFormat("json_object")},
    {"verbosity": "low", "user": "u" * 600, "service_tier": "flex", "metadata": {"a": 1}},
)
REPORTED = {
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "top_k": ("top_k", "topK"),
    "presence_penalty": ("presence_penalty", "presencePenalty"),
    "frequency_penalty": ("frequency_penalty", "frequencyPenalty"),
    "seed": ("seed",),
    "candidates": ("n", "candidateCount"),
    "max_output_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"),
}
DEFAULTS: dict[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "candidates": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}


def requests_of_settings() -> Iterator[ModelRequest]:
    """Every setting in every conversation, and random combinations of them."""
    for messages in CONVERSATIONS:
        for setting in SETTINGS:
            yield ModelRequest(messages=messages, **setting)
    for messages in MEDIA_CONVERSATIONS:
        yield ModelRequest(messages=messages)
    chance = random.Random(16)
    pairs = [{**first, **second} for first, second in combinations(SETTINGS, 2)]
    for setting in chance.sample(pairs, min(scaled(40), len(pairs))):
        yield ModelRequest(messages=chance.choice(CONVERSATIONS), **setting)
    for _ in range(scaled(20)):
        several = chance.sample(SETTINGS, 5)
        merged = {name: value for setting in several for name, value in setting.items()}
        yield ModelRequest(messages=chance.choice(CONVERSATIONS), **merged)


def problems(request: ModelRequest, family: Family, model: str, target: str) -> list[str]:
    """What a model refuses in the body of a request, and what was changed without a report."""
    fixed, _ = repair(structs.replace(request, model=model), target)
    written, losses = formats[target].write_request(fixed)
    body = msgspec.json.decode(msgspec.json.encode(written))
    options: dict[str, Any] = {"model": model} if target == "gemini" else {}
    found = [str(violation) for violation in formats[target].check_request(body, **options)]
    found += refusals(model, family.name, target, body)
    paths = {loss.path for loss in losses}
    sent = {**body, **body.get("generationConfig", {}), **body.get("generation_config", {})}
    for field, keys in REPORTED.items():
        value = getattr(request, field)
        if value in (None, DEFAULTS.get(field)) or field in paths:
            continue
        if not any(sent.get(key) == value for key in keys):
            found.append(f"{field}: {value!r} was changed without a report")
    return [*found, *lost_media(request, body, paths)]


def lost_media(request: ModelRequest, body: dict[str, Any], paths: set[str]) -> Iterator[str]:
    """The media of `MEDIA_CONVERSATIONS` that are not in a body, without a loss that names their own path."""
    text = msgspec.json.encode(body).decode()
    for index, message in enumerate(request.messages):
        for position, part in enumerate(message.parts):
            place = f"messages[{index}].parts[{position}]"
            inside = part.content if isinstance(part, ToolCallResult) else ()
            for path, medium in ((place, part), *((f"{place}.content[{n}]", one) for n, one in enumerate(inside))):
                if medium in MEDIA and medium.data not in text and not {path, f"{path}.media_type"} & paths:
                    yield f"{path}: {medium.media_type} was lost without a report"


SHARE = pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)], ids=["a quarter", "all"])
"""In the everyday run a family gets a quarter of the requests, and the next family another quarter."""


@SHARE
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_setting_is_accepted_by_every_family(family: Family, share: int) -> None:
    count, found = 0, []
    for model in family.examples:
        for target in family.home:
            for request in islice(requests_of_settings(), FAMILIES.index(family) % share, None, share):
                count += 1
                found += [f"{model} in {target}: {problem}" for problem in problems(request, family, model, target)]
    assert count > 200 // share
    assert sorted(set(found))[:10] == []


@cache
def sampled_requests(source: str) -> tuple[dict[str, Any], ...]:
    """Some of the recorded requests in a format."""
    return (*islice(accepted_requests(source), 0, None, 12), *islice(client_requests(source), 0, None, 3))


@SHARE
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_recorded_requests_are_accepted_by_every_family(family: Family, share: int) -> None:
    found, model = [], family.examples[-1]
    for target in family.home:
        for source in FORMATS:
            for body in sampled_requests(source)[FAMILIES.index(family) % share :: share]:
                if source == target and "anthropic_version" in body:
                    continue  # of a host that names the model in the URL, where no alias is possible
                request = formats[source].read_request(body)
                if source == target and request.model != model:
                    request = structs.replace(request, model=model)  # an alias in the same format
                found += [f"{source} to {model}: {problem}" for problem in problems(request, family, model, target)]
    assert sorted(set(found))[:10] == []


RECENT = [
    family
    for family in FAMILIES
    if re.match(r"claude-(?:opus-)?(?:4\.[5-9]|[5-9]|\w+-[5-9]|newer)|gpt-[5-9]|gemini-[3-9]", family.name)
]


def captured_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request captured from a real program, and those that were sent to Copilot's servers, with their formats."""
    for source in FORMATS:
        yield from ((source, body) for body in client_requests(source))
    for name in ("openai_compatible", "openai-responses"):
        source = "openai-chat" if name == "openai_compatible" else name
        records = (record for record in recorded(name) if record["vendor"] == "copilot")
        yield from ((source, record["request"]) for record in records if isinstance(record["request"], dict))


@SHARE
@pytest.mark.parametrize("family", RECENT, ids=lambda family: family.name)
def test_every_captured_request_is_accepted_by_recent_models(family: Family, share: int) -> None:
    captured, found = list(captured_requests()), []
    assert len(captured) >= in_collection(140)
    for model in family.examples:
        for target in family.home:
            for source, body in captured[RECENT.index(family) % share :: share]:
                if source == target and "anthropic_version" in body:
                    continue  # of a host that names the model in the URL, where no alias is possible
                request = structs.replace(formats[source].read_request(body), model=model)
                found += [f"{source} to {model}: {problem}" for problem in problems(request, family, model, target)]
    assert sorted(set(found))[:10] == []


REFUSED = {
    "openai-chat": ("0d187c0e6510dc56", "382f7cacaca97ada", "82c407b772281b05", "a2a2cbdb7c94341a", "a877beb33ff64a23"),
    "openai-responses": ("1d7edaa7c934e421", "fe10967f2d5c9e92"),
    "anthropic": ("c7480a7501b9ff64", "199d8ecd2120eda9"),
    "gemini": ("d4207d0a6b82f453",),
}
"""Recorded refusals because of the model's own limits, by id."""


@pytest.mark.parametrize(("name", "identifier"), [(name, one) for name, ids in REFUSED.items() for one in ids])
def test_recorded_refusals_are_found_and_made_legal(name: str, identifier: str) -> None:
    (record,) = [one for one in recorded(name) if one["id"] == identifier]
    assert record["status"] == 400
    model, options = record["model"], {"model": record["model"]} if name == "gemini" else {}
    assert formats[name].check_request(record["request"], **options)
    request = formats[name].read_request(record["request"])
    fixed, _ = repair(request, name)
    body, losses = formats[name].write_request(fixed, **options)
    assert formats[name].check_request(msgspec.json.decode(msgspec.json.encode(body)), **options) == []
    assert refusals(model, "", name, body) == []
    assert losses or identifier in ("382f7cacaca97ada", "82c407b772281b05")  # a system message becomes a user's
