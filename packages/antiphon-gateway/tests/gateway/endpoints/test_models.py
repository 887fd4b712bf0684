"""The list of models: what is in it, how it is paged, and that the official clients read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
import pytest

from antiphon.errors import WireError
from antiphon.providers.routes import Route
from antiphon_gateway.endpoints.models import get_model, list_models
from antiphon_gateway.errors import error_response
from antiphon_gateway.routes import Endpoint, match_route
from antiphon_gateway.runtime.model_names import ModelEntry, unknown_model_error, visible_models
from providers.scripted_server import Received, Reply, ScriptedServer

ROUTES = [
    Route("fast", ["groq/llama-4", "openai/gpt-5.5-mini"]),
    Route("claude-*", ["anthropic/claude-sonnet-5", "openai/gpt-5.5"]),
    Route("gpt-*", ["openai/*"]),
    Route("smart/*", ["router/smart/one"]),
    Route("o[13]", ["openai/other-name"]),
    Route("fast", ["openai/never"]),
]
MANY = tuple(ModelEntry(f"model-{number:02d}", "some") for number in range(53))


@pytest.mark.parametrize(
    ("routes", "names"),
    [
        ([], []),
        (ROUTES, ["fast", "claude-sonnet-5", "smart/one"]),
        ([Route("*", ["a/x", "b/y"])], ["x"]),
        ([Route("*", ["a/*"]), Route("plain", ["a/x"])], ["plain"]),
        # The short name matches an earlier route, and so not this model.
        ([Route("claude-*", ["a/*"]), Route("*", ["b/claude-5"])], ["b/claude-5"]),
        ([Route("b/*", ["b/one"])], ["b/one"]),
        ([Route("b/*", ["b"])], []),
    ],
)
def test_listed_models(routes: list[Route], names: list[str]) -> None:
    assert [model.name for model in visible_models(routes)] == names


def test_a_client_sees_what_it_may_use() -> None:
    assert visible_models(ROUTES, lambda name: name == "fast") == (ModelEntry("fast", "groq"),)


def names_of(body: dict[str, Any]) -> list[str]:
    return [model.get("id") or model["name"].removeprefix("models/") for model in body.get("data") or body["models"]]


@pytest.mark.parametrize("size", [1, 7, 52, 53, 54])
def test_pages_of_anthropic_are_everything_once_in_both_directions(size: int) -> None:
    names = [model.name for model in MANY]
    forward: list[str] = []
    page = list_models("anthropic", MANY, {"limit": str(size)})
    forward += names_of(page)
    while page["has_more"]:
        page = list_models("anthropic", MANY, {"limit": str(size), "after_id": page["last_id"]})
        assert page["first_id"] == page["data"][0]["id"]
        forward += names_of(page)
    assert forward == names
    backward: list[str] = [names[-1]]
    page = {"first_id": names[-1], "has_more": True}
    while page["has_more"]:
        page = list_models("anthropic", MANY, {"limit": str(size), "before_id": page["first_id"]})
        backward = names_of(page) + backward
    assert backward == names


@pytest.mark.parametrize("size", [1, 7, 52, 53, 54])
def test_pages_of_gemini_are_everything_once(size: int) -> None:
    found: list[str] = []
    query = {"pageSize": str(size)}
    while True:
        page = list_models("gemini", MANY, query)
        found += names_of(page)
        if "nextPageToken" not in page:
            break
        query["pageToken"] = page["nextPageToken"]
    assert found == [model.name for model in MANY]


@pytest.mark.parametrize(
    ("shape", "query", "field"),
    [
        ("anthropic", {"limit": "0"}, "limit"),
        ("anthropic", {"limit": "-1"}, "limit"),
        ("anthropic", {"limit": "²"}, "limit"),
        ("anthropic", {"limit": "9" * 5000}, "limit"),
        ("anthropic", {"after_id": "model-99"}, "after_id"),
        ("anthropic", {"after_id": "model-01", "before_id": "model-03"}, "after_id"),
        ("gemini", {"pageSize": "many"}, "pageSize"),
        ("gemini", {"pageToken": "!"}, "pageToken"),
        ("gemini", {"pageToken": "/w=="}, "pageToken"),
        ("gemini", {"pageToken": "bm9uZQ=="}, "pageToken"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(shape: str, query: dict[str, str], field: str) -> None:
    with pytest.raises(WireError, match=f"^{field}: "):
        list_models(shape, MANY, query)


def test_an_empty_list_has_every_field() -> None:
    assert list_models("openai-chat", ()) == {"object": "list", "data": []}
    assert list_models("anthropic", ()) == {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert list_models("gemini", ()) == {"models": []}


def test_an_unknown_name_error_lists_the_models() -> None:
    error = unknown_model_error("model-1", MANY)
    assert error.status == 404
    assert "`model-1`" in error.message
    assert "There are: model-51, model-41, model-31, model-00, model-01" in error.message
    assert error.message.endswith("and 33 more.")
    assert unknown_model_error("x", ()).message.endswith("No models are available to this key.")
    assert len(unknown_model_error("x" * 100_000, ()).message) < 400


def answered(models: tuple[ModelEntry, ...]) -> Callable[[Received], Reply]:
    """The two endpoints, as the gateway has them."""

    def answer(received: Received) -> Reply:
        path, _, query = received.target.partition("?")
        endpoint = match_route(received.method, unquote(path), received.headers)
        assert isinstance(endpoint, Endpoint)
        status = 200
        if endpoint.action == "list_models":
            body = msgspec.json.encode(list_models(endpoint.format, models, dict(parse_qsl(query))))
        else:
            model = next((model for model in models if model.name == endpoint.resource), None)
            if model is None:
                raised = error_response(endpoint.format, unknown_model_error(endpoint.resource, models))
                assert isinstance(raised.body, bytes)
                status, body = raised.status, raised.body
            else:
                body = msgspec.json.encode(get_model(endpoint.format, model))
        return Reply(status=status, body=body, content_type="application/json", has_length=True)

    return answer


@contextmanager
def serving(models: tuple[ModelEntry, ...] = MANY) -> Iterator[str]:
    with ScriptedServer(answered(models)) as server:
        yield server.url


def test_openai_reads_it() -> None:
    openai = pytest.importorskip("openai")
    with serving() as url, openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as client:
        models = list(client.models.list())
        assert [model.id for model in models] == [model.name for model in MANY]
        assert client.models.retrieve("model-07").owned_by == "some"
        with pytest.raises(openai.NotFoundError, match="There are: model-") as raised:
            client.models.retrieve("model-7x")
        assert raised.value.code == "model_not_found"


def test_anthropic_reads_every_page() -> None:
    anthropic = pytest.importorskip("anthropic")
    with serving() as url, anthropic.Anthropic(api_key="none", base_url=url, max_retries=0) as client:
        models = list(client.models.list(limit=10))
        assert [model.id for model in models] == [model.name for model in MANY]
        assert models[0].type == "model"
        assert models[0].created_at.year == 1970
        assert client.models.retrieve("model-07").display_name == "model-07"
        with pytest.raises(anthropic.NotFoundError, match="There are: model-"):
            client.models.retrieve("model-7x")


@pytest.mark.filterwarnings("ignore")
def test_gemini_reads_every_page() -> None:
    genai = pytest.importorskip("google.genai")
    with serving() as url:
        client = genai.Client(api_key="none", vertexai=False, http_options=genai.types.HttpOptions(base_url=url))
        models = list(client.models.list(config={"page_size": 10}))
        assert [model.name for model in models] == [f"models/{model.name}" for model in MANY]
        assert "generateContent" in models[0].supported_actions
        assert client.models.get(model="model-07").display_name == "model-07"
        with pytest.raises(genai.errors.ClientError, match="There are: model-"):
            client.models.get(model="model-7x")
        client.close()
