"""Generated neutral requests: calls and results in a legal sequence, and everything else as odd as it may be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from antiphon.wire.media import sniff_base64
from antiphon.wire.provenance import GENERATED_IMAGE

words = st.sampled_from(
    [
        "rain",
        "",
        " ",
        "Oslo 今天",
        "🙂",
        '{"a": 1}',
        "[1]",
        "Error: no",
        "JSON",
        "x" * 600,
        "\n",
        "\u2028",
        "<|im|>",
        "rain ",
    ]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(
    ["weather", "get weather", "a.b/c", "", "x" * 200, "天气", "a:b", "weather-2", "_", "9lives", "a_b", "a-b"]
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a b", "object"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
marks = st.sampled_from(
    [{"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
)
switches = st.none() | st.booleans()
counts = st.none() | st.integers(-5, 300) | st.sampled_from([1024, 3000, 2**40])
numbers = st.none() | st.floats() | st.integers(-5, 300)

data = st.sampled_from(["", "iVBORw0KGgo=", "/9j/4AAQ", "JVBERi0=", "YSxi", "UklGRg==", "<svg/>", "é", "data:x"])
media_types = st.sampled_from(
    ["", "image/png", "image/jpeg", "image/tiff", "image/bmp", "application/pdf", "text/plain", "text/csv", "audio/wav",
     "audio/mpeg", "audio/flac", "x/y"]
)  # fmt: skip
urls = st.sampled_from(
    ["", "https://example.com/a.png", "gs://bucket/a.png", "data:image/png;base64,AA", "data:,a", "a.png"]
)
file_ids = st.sampled_from(["", "", "file-1", "file_1"])
_BLOCKS = (
    Native("anthropic", {"type": "container_upload", "file_id": "f", "cache_control": {"type": "ephemeral"}}),
    Native("openai-responses", {"type": "item_reference", "id": "item_1"}),
    Native("gemini", {"executableCode": {"code": "1"}}),
    Native("unknown", {"type": "x"}),
)
_SIGNED: list[Any] = [
    {"anthropic": {"signature": "c2ln", "cache_control": {"type": "ephemeral"}}},
    {"gemini": {"thoughtSignature": "c2ln"}},
    {"gemini-interactions": {"signature": "c2ln"}},
]
sources_of_thoughts = st.sampled_from(
    [None, Source("openai-chat", ("reasoning_content",)), Source("openai-responses"), Source("gemini-interactions")]
)
UNTYPED = Source("gemini", ("untyped", "urlSafe"))
sources_of_images = st.sampled_from([None, GENERATED_IMAGE, UNTYPED, Source("openai-responses")])


def as_read(image: Image) -> Image:
    """The image without a source that no reader gives it: of nothing, of another kind, or of a type that its bytes are not."""
    is_odd = (
        (image.source == GENERATED_IMAGE and not (image.data or image.url))
        or (image.source == UNTYPED and sniff_base64(image.data) != image.media_type)
        or (image.media_type and not image.media_type.startswith("image/"))
    )
    return structs.replace(image, source=None) if is_odd else image


schemas: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.sampled_from(
        [
            {},
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            {"type": "string"},
            {"type": ["object", "null"], "properties": 3},
            {"anyOf": [{"type": "object"}]},
            {"anyOf": 5},
            {
                "oneOf": [{"type": "object", "properties": {"a": {}}}, {"$ref": "#/$defs/A"}],
                "$defs": {"A": {"type": "object"}},
            },
            {"type": "object", "properties": {"a b": {"type": "integer", "minimum": 3}}, "required": ["a b"]},
            {
                "type": "object",
                "definitions": {"A": {"$ref": "#/definitions/A"}},
                "properties": {"a": {"$ref": "#/definitions/A"}},
            },
            {"type": "object", "patternProperties": {"^a": {"oneOf": []}}, "items": [{"maxItems": 3}]},
        ]
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", None, 3])},
        optional={
            "properties": st.dictionaries(words, json_values, max_size=3),
            "allOf": json_values,
            "$ref": json_values,
        },
    ),
)


class Parts:
    """The parts of requests to one format. Its own extras and blocks are only where it accepts them: they are sent unchanged."""

    def __init__(self, target: str) -> None:
        extras = {"anthropic": marks, "openai": st.just({"detail": "low"}), "gemini": st.just({"thought": 1})}
        foreign = {origin: extra for origin, extra in extras.items() if not target.startswith(origin)}
        self.natives: st.SearchStrategy[Any] = st.none() | st.fixed_dictionaries({}, optional=foreign)
        own = {"anthropic": marks} if target == "anthropic" else {}
        natives: st.SearchStrategy[Any] = st.none() | st.fixed_dictionaries({}, optional={**foreign, **own})
        self.natives_of_parts = natives
        strangers = st.sampled_from([block for block in _BLOCKS if block.origin != target])
        own_blocks = st.sampled_from([block for block in _BLOCKS if block.origin in (target, "unknown")])
        texts = st.builds(Text, words, native=natives)
        images = st.builds(Image, media_types, data, urls, file_ids, native=natives, source=sources_of_images).map(
            as_read
        )
        documents = st.builds(Document, media_types, data, words, urls, file_ids, words, native=natives)
        sounds = st.builds(Audio, media_types, data, urls, native=self.natives)
        self.plain: st.SearchStrategy[Any] = st.one_of(texts, images, documents, sounds, strangers)
        self.inputs: st.SearchStrategy[Any] = self.plain | own_blocks
        self.outputs: st.SearchStrategy[Any] = st.one_of(
            texts,
            st.builds(Thinking, words, native=natives | st.sampled_from(_SIGNED), source=sources_of_thoughts),
            st.builds(Refusal, words, native=self.natives),
            images,
            strangers,
            own_blocks,
        )
        hosted = [Native("anthropic", {"type": "bash_20250124", "name": "bash"})] if target == "anthropic" else []
        definitions = st.builds(ToolDefinition, names, st.none() | words, schemas, switches, st.booleans(), natives)
        self.tools: st.SearchStrategy[Any] = st.one_of(definitions, strangers, *map(st.just, hosted))

    def lists(self, parts: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.lists(parts, max_size=most).map(tuple)


arguments = words | st.sampled_from(["{}", '{"city": "Oslo"}', "not json", "null", '{"a":', '"text"', "1"])
speakers = st.none() | st.sampled_from(["ada", "Ada Lovelace", "", "a<b>", "x" * 80])


@st.composite
def turns(draw: st.DrawFn, ids: Iterator[str], parts: Parts) -> list[Message]:
    """A question, rounds of calls that are all answered at once, in the manner of one format or another, and an answer."""
    turn = [Message("user", draw(parts.lists(parts.inputs, 3)), draw(speakers), draw(parts.natives))]
    for _ in range(draw(st.integers(0, 2))):
        calls = [
            ToolCallRequest(
                draw(names), next(ids), draw(arguments), draw(st.booleans()), native=draw(parts.natives_of_parts)
            )
            for _ in range(draw(st.integers(1, 3)))
        ]
        spoken = draw(parts.lists(parts.outputs, 3))
        turn.append(Message("assistant", tuple(draw(st.permutations([*spoken, *calls]))), draw(speakers)))
        results = [
            ToolCallResult(
                draw(st.sampled_from(["", call.tool_name])),
                call.tool_call_id,
                draw(st.sampled_from(ToolExecutionStatus)),
                draw(parts.lists(parts.plain, 2)),
                native=draw(parts.natives_of_parts),
            )
            for call in draw(st.permutations(calls))
        ]
        if draw(st.booleans()):
            turn.append(Message("user", (*results, *draw(parts.lists(parts.inputs, 2)))))
        elif draw(st.booleans()):
            turn.append(Message("tool", tuple(results)))
        else:
            turn += [Message("tool", (result,)) for result in results]
    if draw(st.booleans()):
        turn.append(Message("assistant", draw(parts.lists(parts.outputs, 3))))
    return turn


@st.composite
def conversations(draw: st.DrawFn, parts: Parts) -> tuple[Message, ...]:
    """A conversation in the order that the rules of every format demand."""
    odd_ids = draw(st.permutations(["call_", "toolu|", "é ", "x" * 70, "call_gm_", "call_gm_ab_"]))
    ids = iter([f"{odd}{number}" for number in range(99) for odd in odd_ids])
    messages = [
        Message(role, draw(parts.lists(parts.plain, 2)), draw(speakers))
        for role in draw(st.lists(st.sampled_from(["system", "developer"]), max_size=2))
    ]
    for _ in range(draw(st.integers(0, 2))):
        messages += draw(turns(ids, parts))
        if draw(st.integers(0, 3)) == 0:
            messages.append(Message("system", draw(parts.lists(parts.plain, 1))))
    return tuple(messages)


@cache
def requests(target: str, *models: str) -> st.SearchStrategy[ModelRequest]:
    """Requests to one of these models in a format."""
    parts = Parts(target)
    natives = parts.natives
    choices = st.builds(
        ToolChoice,
        st.sampled_from(["auto", "none", "required", "tool", "allowed"]),
        st.lists(names, max_size=2).map(tuple),
        st.booleans(),
        natives,
    )
    output_formats = st.builds(
        OutputFormat,
        st.sampled_from(["text", "json_object", "json_schema"]),
        schemas,
        st.none() | names,
        st.none() | words,
        switches,
        natives,
    )
    reasonings = st.builds(
        Reasoning,
        st.sampled_from([None, "none", "minimal", "low", "xhigh", "max", "?"]),
        st.sampled_from([None, -1, 0, 5, 2000, 90_000]),
        switches,
        st.sampled_from([None, "auto", "omitted", "raw"]),
        natives,
        st.sampled_from([None, Source("anthropic"), Source("gemini", ("level:small",))]),
    )
    return st.builds(
        ModelRequest,
        messages=conversations(parts),
        model=st.sampled_from(models),
        stream=switches,
        tools=parts.lists(parts.tools, 4),
        tool_choice=st.none() | choices,
        parallel_tool_calls=switches,
        output_format=st.none() | output_formats,
        reasoning=st.none() | reasonings,
        max_output_tokens=counts,
        stop=st.none() | st.lists(words, max_size=9).map(tuple),
        temperature=numbers,
        top_p=numbers,
        top_k=counts,
        seed=counts,
        presence_penalty=numbers,
        frequency_penalty=numbers,
        candidates=counts,
        logprobs=switches,
        top_logprobs=counts,
        verbosity=st.none() | st.just("low"),
        user=st.none() | words,
        metadata=st.none()
        | st.dictionaries(st.text(max_size=3) | st.just("k" * 70), words | st.integers(), max_size=20),
        service_tier=st.none() | st.just("flex") | words,
        cache_key=st.none() | words,
        store=switches,
        native=natives,
    )
