"""Laws over generated requests, for every format: what is written is legal (L4), the same each time (L9), and read back (L2)."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.wire import FORMATS, ModelRequest, formats
from support.examples import scaled
from support.interactions_spec import request_problems
from support.request_strategies import requests
from wire.anthropic import bodies as anthropic
from wire.openai_chat import bodies as openai_chat
from wire.openai_responses import bodies as openai_responses

MODELS = {
    "openai-chat": ("", "gpt-4o", "gpt-5", "o3", "o1-mini", "claude-x", "gpt-4.1-mini"),
    "openai-responses": ("", "gpt-5", "o3-mini", "gpt-4.1"),
    "anthropic": (
        "", "claude-3-5-haiku-latest", "claude-3-7-sonnet-20250219", "claude-opus-4-1", "claude-sonnet-4-5",
        "claude-opus-4-7", "claude-sonnet-5", "claude-opus-5-5", "other",
    ),
    "gemini": (
        "", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro-preview", "gemini-3.6-flash", "gemini-3-pro-image",
    ),
    "gemini-interactions": ("m", "gemini-2.5-flash", "gemini-3-pro-preview", "gemini-3.6-flash"),
}  # fmt: skip
JUDGES = {"gemini-interactions": request_problems}
"""A second judge beside our own rules: the published specification."""

NORMALISED = {
    "openai-chat": openai_chat.normalised,
    "openai-responses": openai_responses.normalised,
    "anthropic": anthropic.normalised,
}
"""Where one meaning has two spellings: a text alone or in a list, and others."""


def write_options(name: str, request: ModelRequest) -> st.SearchStrategy[dict[str, Any]]:
    """What a caller states beside the request."""
    if name == "gemini":
        return st.just({"model": request.model})
    return st.sampled_from([{}, {"version": "2026-10-21"}]) if name == "anthropic" else st.just({})


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(
    max_examples=scaled(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_any_request_gives_a_legal_body_that_is_read_back(name: str, data: st.DataObject) -> None:
    request = data.draw(requests(name, *MODELS[name]))
    options = data.draw(write_options(name, request))
    wire, before = formats[name], copy.deepcopy(request)
    encoded, losses = wire.encode_request(request, **options)
    body = msgspec.json.decode(encoded)
    assert wire.check_request(body, **options) == []
    assert list(JUDGES.get(name, lambda _: ())(body)) == []
    assert all(loss.path and loss.what and loss.why for loss in losses)
    assert wire.encode_request(request, **options) == (encoded, losses)
    assert wire.write_request(request, **options) == (body, losses)
    assert repr(request) == repr(before)
    again, more = wire.write_request(wire.read_request(body), **options)
    normalise = NORMALISED.get(name, copy.copy)
    assert (normalise(again), more) == (normalise(body), [])
