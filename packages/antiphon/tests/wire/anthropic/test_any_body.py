"""Any body of the Messages API is read, and comes back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.wire import (
    Loss,
)
from support.examples import scaled
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import (
    json_values,
    normalised,
    sent,
)

read_request = ANTHROPIC.read_request
write_request = ANTHROPIC.write_request
check_request = ANTHROPIC.check_request

# Reading is total: whatever a body holds, it is read, and it is written again.

ids = st.sampled_from(["toolu_1", "call-2"]) | json_values.filter(lambda value: not isinstance(value, str))

blocks: st.SearchStrategy[Any] = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["text", "image", "document", "tool_use", "tool_result", "thinking", "search_result", "server_tool_use"]
            )
        },
        optional={
            "text": json_values,
            "source": json_values
            | st.fixed_dictionaries(
                {"type": st.sampled_from(["base64", "url", "file", "text", "content"])},
                optional={
                    "data": json_values,
                    "media_type": st.sampled_from(["image/png", "text/plain", 3]),
                    "url": json_values,
                },
            ),
            "id": ids,
            "tool_use_id": ids,
            "name": st.sampled_from(["weather", "x-y"]) | st.just(5),
            "input": st.dictionaries(st.text(max_size=3), json_values, max_size=2)
            | json_values.filter(lambda value: not value),
            "content": json_values
            | st.lists(json_values | st.fixed_dictionaries({"type": st.just("text"), "text": json_values})),
            "is_error": st.booleans() | json_values,
            "thinking": json_values,
            "signature": json_values,
            "citations": json_values,
            "title": json_values,
            "of_tomorrow": json_values,
        },
    ),
)

turns = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "bard"]) | json_values},
        optional={"content": st.lists(blocks, max_size=3) | json_values, "name": json_values},
    ),
)

PARAMETER_NAMES = [
    "model", "max_tokens", "system", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata",
    "service_tier", "tools", "tool_choice", "thinking", "output_config", "output_format", "container", "x",
]  # fmt: skip

bodies = st.builds(
    lambda messages, parameters: {**parameters, "messages": messages},
    st.lists(turns, max_size=4),
    st.dictionaries(st.sampled_from(PARAMETER_NAMES), json_values, max_size=5)
    | st.fixed_dictionaries(
        {},
        optional={
            "tools": st.lists(
                json_values
                | st.fixed_dictionaries(
                    {"name": st.sampled_from(["a", "b"])},
                    optional={
                        "type": st.sampled_from(["custom", "bash_20250124"]),
                        "input_schema": json_values,
                        "strict": json_values,
                    },
                ),
                max_size=3,
            ),
            "tool_choice": st.fixed_dictionaries(
                {"type": st.sampled_from(["auto", "any", "tool", "none", "x"])}, optional={"name": ids}
            ),
            "thinking": st.fixed_dictionaries(
                {"type": st.sampled_from(["enabled", "adaptive", "disabled"])},
                optional={"budget_tokens": json_values, "display": json_values},
            ),
            "output_config": st.fixed_dictionaries({}, optional={"effort": json_values, "format": json_values}),
            "system": st.lists(blocks, max_size=2),
        },
    ),
)


@example({"system": False, "messages": [{"role": "system", "content": [None]}, None]})
@given(bodies)
@settings(
    max_examples=scaled(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_any_body_comes_back(body: dict[str, Any]) -> None:
    before = repr(body)
    read = read_request(body)
    losses: list[Loss] = []
    again = sent(write_request(read, losses))
    assert repr(body) == before
    if not losses:
        expected = normalised(sent(body))
        expected.setdefault("max_tokens", again["max_tokens"])
        assert normalised(again) == expected
    more: list[Loss] = []
    third = sent(write_request(read_request(again), more))
    assert normalised(third) == normalised(again)
    assert {loss.path for loss in more} <= {loss.path for loss in losses}


@given(st.dictionaries(st.text(max_size=5) | st.just("messages"), json_values, max_size=3))
@settings(max_examples=scaled(25), deadline=None)
def test_only_wire_errors_are_raised(body: dict[str, Any]) -> None:
    try:
        read_request(body)
    except WireError:
        assert not isinstance(body.get("messages"), list)
