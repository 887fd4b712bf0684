"""The list of paths: where each is routed, and that the documentation has exactly these."""

from __future__ import annotations

import re

import pytest

from antiphon.http.messages import ClientRequest
from antiphon_gateway.access.client_keys import refuse_route
from antiphon_gateway.routes import ROUTES, Endpoint, NoRoute, error_format_for_path, match_route
from support.cases import each_case
from support.repository import ROOT

GUIDE = ROOT / "docs" / "gateway" / "apis.md"
CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"

PATHS: list[tuple[str, str, dict[str, str], Endpoint | NoRoute]] = [
    ("POST", "/v1/chat/completions", {}, Endpoint("generate", CHAT)),
    ("POST", "/chat/completions", {}, Endpoint("generate", CHAT)),
    ("POST", "/v1/chat/completions/", {}, Endpoint("generate", CHAT)),
    ("GET", "/v1/chat/completions", {}, NoRoute(("POST",))),
    ("POST", "/v1/responses", {}, Endpoint("generate", RESPONSES)),
    ("GET", "/v1/responses/resp_1", {}, Endpoint("get_response", RESPONSES, "resp_1")),
    ("DELETE", "/responses/resp_1", {}, Endpoint("delete_response", RESPONSES, "resp_1")),
    ("GET", "/v1/responses/resp_1/input_items", {}, Endpoint("list_items", RESPONSES, "resp_1")),
    ("POST", "/v1/messages", {}, Endpoint("generate", ANTHROPIC)),
    ("POST", "/v1/messages/count_tokens", {}, Endpoint("count", ANTHROPIC)),
    ("POST", "/v1beta/models/a/b:generateContent", {}, Endpoint("generate", GEMINI, "a/b", False)),
    ("POST", "/v1alpha/models/m:streamGenerateContent", {}, Endpoint("generate", GEMINI, "m", True)),
    ("POST", "/v1/models/m:countTokens", {}, Endpoint("count", GEMINI, "m")),
    ("POST", "/tunedModels/m:generateContent", {}, Endpoint("generate", GEMINI, "m", False)),
    ("POST", "/v1beta/models/m:unknownVerb", {}, NoRoute()),
    ("GET", "/v1beta/models", {}, Endpoint("list_models", GEMINI)),
    ("GET", "/v1alpha/models/m", {}, Endpoint("get_model", GEMINI, "m")),
    ("GET", "/v1/models", {}, Endpoint("list_models", CHAT)),
    ("GET", "/v1/models", {"anthropic-version": "2023-06-01"}, Endpoint("list_models", ANTHROPIC)),
    ("GET", "/models", {"x-goog-api-key": "k"}, Endpoint("list_models", GEMINI)),
    ("GET", "/v1/models/vendor/llama:8b", {}, Endpoint("get_model", CHAT, "vendor/llama:8b")),
    ("HEAD", "/healthz", {}, Endpoint("health", access="probe")),
    ("GET", "/v1/healthz", {}, Endpoint("health", access="probe")),
    ("POST", "/credentials", {}, Endpoint("switch_credential", access="operator")),
    ("POST", "/openai/deployments/prod/chat/completions", {}, Endpoint("generate", CHAT, "prod")),
    ("POST", "/openai/deployments/prod/embeddings", {}, Endpoint("embed", CHAT, "prod")),
    ("POST", "/openai/v1/responses", {}, Endpoint("generate", RESPONSES)),
    ("GET", "/openai/models", {"x-api-key": "k"}, Endpoint("list_models", CHAT)),
    ("POST", "/anthropic/v1/messages", {}, Endpoint("generate", ANTHROPIC)),
    ("GET", "/anthropic/v1/models", {}, Endpoint("list_models", ANTHROPIC)),
    ("POST", "/openai/openai/v1/chat/completions", {}, NoRoute()),
    ("POST", "/openai" * 2000 + "/v1/chat/completions", {}, NoRoute()),
    ("GET", "/", {}, NoRoute()),
    ("GET", "/nowhere", {}, NoRoute()),
]


@each_case(("method", "path", "headers", "expected"), PATHS)
def test_paths_and_their_endpoints(
    method: str, path: str, headers: dict[str, str], expected: Endpoint | NoRoute
) -> None:
    assert match_route(method, path, headers) == expected


def test_the_guide_lists_every_path() -> None:
    section = GUIDE.read_text().split("\n## ")[0]
    found = re.findall(r"`((?:(?:GET|POST|PUT|PATCH|DELETE) )+)(/[^`]*)`", section)
    listed = {f"{method} {path}" for methods, path in found for method in methods.split()}
    assert listed == {f"{route.method} {route.path}" for route in ROUTES}


def test_every_route_is_reached_by_its_own_path() -> None:
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", "x", route.path)
        endpoint = match_route(route.method, path, {})
        assert isinstance(endpoint, Endpoint), route
        assert endpoint.action == route.endpoint.action, route


@pytest.mark.parametrize(
    ("path", "headers", "format_name"),
    [
        ("/v1/completely/unknown", {}, CHAT),
        ("/v1/messages/threads", {}, ANTHROPIC),
        ("/v1/unknown", {"anthropic-version": "2023-06-01"}, ANTHROPIC),
        ("/anthropic/v1/unknown", {}, ANTHROPIC),
        ("/v1beta/unknown", {}, GEMINI),
        ("/v1beta/models", {}, GEMINI),
        ("/v1/responses/a/b", {}, RESPONSES),
    ],
)
def test_errors_have_the_shape_of_the_clients_of_a_path(path: str, headers: dict[str, str], format_name: str) -> None:
    assert error_format_for_path(path, headers) == format_name


def test_a_wrong_method_is_not_called_a_missing_model() -> None:
    refusal = refuse_route(ClientRequest(method="GET", path="/v1/chat/completions"), NoRoute(("POST",)))
    assert isinstance(refusal.body, bytes)
    assert (refusal.status, b"model_not_found" in refusal.body) == (405, False)
