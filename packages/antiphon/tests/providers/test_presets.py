"""Presets: addresses and headers are those that the providers' own SDKs use, and the environment is read as they read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import ProviderSetupError, UnknownProvider
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.providers.keys.secret import Credential
from antiphon.providers.presets import PRESETS, Preset, get_preset, normalize_base_url
from antiphon.wire import formats
from antiphon.wire.openai_chat.dialects import DIALECTS
from providers.sample_answers import STREAMS, deltas_from, text_of
from providers.scripted_server import Received, Reply, ScriptedServer

KEY = "sk-canary-0000000000000000wxyz"


def test_every_dialect_has_a_preset_and_every_preset_a_dialect() -> None:
    spoken = {preset.dialect for preset in PRESETS.values() if preset.format == "openai-chat"}
    assert spoken == set(DIALECTS)
    assert all(preset.format in formats for preset in PRESETS.values())
    assert all(name == preset.name for name, preset in PRESETS.items())


def test_no_name_of_a_model_is_claimed_twice() -> None:
    claimed = [pattern for preset in PRESETS.values() for pattern in preset.models]
    assert len(claimed) == len(set(claimed))


@pytest.mark.parametrize(
    ("name", "base_url", "model", "expected"),
    [
        ("openai", "https://h/v1", "gpt", "https://h/v1/chat/completions"),
        ("openai", "https://h/v1/", "gpt", "https://h/v1/chat/completions"),
        ("openai", "https://h/v1?team=a", "gpt", "https://h/v1/chat/completions?team=a"),
        ("openai-responses", "https://h/v1", "gpt", "https://h/v1/responses"),
        ("anthropic", "https://h", "claude", "https://h/v1/messages"),
        ("anthropic", "https://h/v1", "claude", "https://h/v1/messages"),
        ("anthropic", "https://h/proxy/anthropic/", "claude", "https://h/proxy/anthropic/v1/messages"),
        ("gemini", "https://h", "gemini-x", "https://h/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("gemini", "https://h/v1beta", "models/gemini-x", "https://h/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("gemini", "https://h", "a b?c#d", "https://h/v1beta/models/a%20b%3Fc%23d:streamGenerateContent?alt=sse"),
        ("azure-openai", "https://h", "dep", "https://h/openai/deployments/dep/chat/completions?api-version=2024-10-21"),
        ("azure-openai", "https://h/openai", "d", "https://h/openai/deployments/d/chat/completions?api-version=2024-10-21"),
        ("azure-openai", "https://h/openai/v1/", "dep", "https://h/openai/v1/chat/completions"),
        (
            "azure-openai",
            "https://h/openai/deployments/mine",
            "ignored",
            "https://h/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        ),
        ("ollama", "http://h:11434", "llama", "http://h:11434/v1/chat/completions"),
        ("ollama", "http://h:11434/v1", "llama", "http://h:11434/v1/chat/completions"),
        ("groq", "https://h", "m", "https://h/openai/v1/chat/completions"),
        ("groq", "https://h/openai/v1", "m", "https://h/openai/v1/chat/completions"),
        ("mistral", "https://h", "m", "https://h/v1/chat/completions"),
        ("deepseek", "https://h", "m", "https://h/chat/completions"),
        ("volcengine", "https://h/api/v3", "ep-1", "https://h/api/v3/chat/completions"),
    ],
)  # fmt: skip
def test_addresses(name: str, base_url: str, model: str, expected: str) -> None:
    assert PRESETS[name].at_host(base_url).url_for(model) == expected


def test_the_version_of_azure_can_be_chosen() -> None:
    url = PRESETS["azure-openai"].at_host("https://h", "2025-01-01-preview").url_for("d")
    assert url.endswith("?api-version=2025-01-01-preview")


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("localhost:11434", "http://localhost:11434"),
        ("0.0.0.0:11434", "http://127.0.0.1:11434"),
        (" https://h/v1 ", "https://h/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_base_urls_as_people_write_them(given: str, plain: str) -> None:
    assert normalize_base_url(given, "p") == plain


@pytest.mark.parametrize("given", ["ftp://h", "https://", "://", "http://h:99999999", "file:///etc/passwd"])
def test_an_invalid_base_url_is_refused(given: str) -> None:
    with pytest.raises(ProviderSetupError, match="p: the base URL is not an http or https URL"):
        normalize_base_url(given, "p")


def test_a_password_in_a_base_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ProviderSetupError, match="contains a user name or password") as refused:
        normalize_base_url(f"https://me:{KEY}@h/v1", "p")
    assert KEY not in str(refused.value)


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(UnknownProvider, match=r"unknown provider 'antropic'. Did you mean anthropic\?"):
        get_preset("antropic")


@pytest.mark.parametrize(
    ("name", "environ", "message"),
    [
        ("openai", {}, r"openai needs a key: set OPENAI_API_KEY and use provider\('openai'\)"),
        ("openai", {"OPENAI_API_KEY": "  "}, "openai needs a key"),
        ("azure-openai", {"AZURE_OPENAI_API_KEY": KEY}, "needs a resource: .*base_url .AZURE_OPENAI_ENDPOINT"),
        ("compatible", {}, "has no default URL; pass base_url="),
    ],
)  # fmt: skip
def test_a_missing_setting_of_a_preset_is_named(name: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ProviderSetupError, match=message):
        provider(name, environ=environ)


def test_a_header_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ProviderSetupError, match="header 'x-mine' contains characters that HTTP does not allow"):
        HttpProviderClient("openai", keys=[KEY], headers={"X-Mine": f"a\r\nX-Evil: {KEY}"})


def sent(client: HttpProviderClient, server: ScriptedServer) -> Received:
    assert text_of(asyncio.run(deltas_from(client))) == "Rain."
    return server.received[-1]


@pytest.mark.parametrize(
    ("name", "environ", "path", "headers"),
    [
        (
            "openai",
            {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "{url}/v1", "OPENAI_ORG_ID": "org", "OPENAI_PROJECT_ID": "proj"},
            "/v1/chat/completions",
            {"authorization": f"Bearer {KEY}", "openai-organization": "org", "openai-project": "proj"},
        ),
        (
            "anthropic",
            {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "{url}"},
            "/v1/messages",
            {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
        ),
        (
            "anthropic",
            {"ANTHROPIC_AUTH_TOKEN": KEY, "ANTHROPIC_BASE_URL": "{url}"},
            "/v1/messages",
            {"authorization": f"Bearer {KEY}"},
        ),
        (
            "gemini",
            {"GEMINI_API_KEY": "other", "GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": "{url}"},
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            {"x-goog-api-key": KEY},
        ),
        (
            "azure-openai",
            {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "{url}", "OPENAI_API_VERSION": "2025-02-02"},
            "/openai/deployments/m/chat/completions?api-version=2025-02-02",
            {"api-key": KEY},
        ),
        ("ollama", {"OLLAMA_HOST": "{host}"}, "/v1/chat/completions", {}),
        (
            "codebuddy",
            {"CODEBUDDY_API_KEY": KEY, "CODEBUDDY_BASE_URL": "{url}/v2"},
            "/v2/chat/completions",
            {"authorization": f"Bearer {KEY}", "x-requested-with": "XMLHttpRequest"},
        ),
    ],
)
def test_the_environment_is_enough(name: str, environ: dict[str, str], path: str, headers: dict[str, str]) -> None:
    with ScriptedServer(Reply(body=STREAMS[PRESETS[name].format])) as server:
        host = f"127.0.0.1:{server.port}"
        filled = {variable: value.format(url=server.url, host=host) for variable, value in environ.items()}
        received = sent(provider(name, environ=filled), server)
    assert (received.method, received.target) == ("POST", path)
    assert headers.items() <= received.headers.items()
    if not headers:
        assert not {"authorization", "x-api-key", "api-key"} & received.headers.keys()


def test_explicit_settings_win_over_the_environment() -> None:
    environ = {"OPENAI_API_KEY": "sk-of-the-environment", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    with ScriptedServer(Reply(body=STREAMS["openai-chat"])) as server:
        client = provider(
            "openai",
            environ=environ,
            keys=[Credential(secret=KEY)],
            base_url=server.url,
            headers={"X-Mine": "1"},
            name="mine",
        )
        received = sent(client, server)
    assert client.name == "mine"
    assert received.target == "/chat/completions"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["x-mine"] == "1"


@pytest.mark.parametrize(
    "form", [str, lambda key: [key], lambda key: iter([key]), lambda key: [Credential(secret=key)]]
)
def test_keys_are_read_in_every_form_and_from_the_given_environment(form: Callable[[str], Any], tmp_path: Path) -> None:
    client = provider("openai", keys=form("env:MINE"), environ={"MINE": KEY})
    assert client.credentials is not None
    assert client.credentials.secrets == (KEY,)
    profile = "[profile work]\nregion = eu-west-1\naws_access_key_id = A\naws_secret_access_key = S\n"
    (tmp_path / "config").write_text(profile)
    environ = {"AWS_CONFIG_FILE": str(tmp_path / "config")}
    cloud = provider("bedrock", keys=form("aws:profile=work"), environ=environ)
    assert cloud.base_url == "https://bedrock-runtime.eu-west-1.amazonaws.com"
    assert cloud.credentials is not None
    assert cloud.credentials.secrets == ("aws:profile=work",)


def test_a_custom_preset_is_one_row() -> None:
    mine = Preset(
        name="mine", path="/ask", auth="x-api-key", headers=(("X-Team", "a"),), dialect="vllm", base_url="http://h"
    )
    with ScriptedServer(Reply(body=STREAMS["openai-chat"])) as server:
        received = sent(HttpProviderClient(mine, base_url=server.url, keys=KEY), server)
    assert received.target == "/ask"
    assert (received.headers["x-api-key"], received.headers["x-team"]) == (KEY, "a")


def openai_chat(url: str) -> None:
    import openai

    with openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:
        list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], stream=True))


def openai_responses(url: str) -> None:
    import openai

    with openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:
        list(client.responses.create(model="m", input="Hi", stream=True))


def azure(url: str) -> None:
    import openai

    with openai.AzureOpenAI(api_key=KEY, azure_endpoint=url, api_version="2024-10-21", max_retries=0) as client:
        list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], stream=True))


def anthropic(url: str) -> None:
    import anthropic

    with anthropic.Anthropic(api_key=KEY, base_url=url, max_retries=0) as client:
        list(client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}], stream=True))


def gemini(url: str) -> None:
    from google import genai

    client = genai.Client(api_key=KEY, http_options=genai.types.HttpOptions(base_url=url, api_version="v1beta"))
    list(client.models.generate_content_stream(model="m", contents="Hi"))
    client.close()


@pytest.mark.parametrize(
    ("name", "suffix", "module", "call"),
    [
        ("openai", "/v1", "openai", openai_chat),
        ("openai-responses", "/v1", "openai", openai_responses),
        ("azure-openai", "", "openai", azure),
        ("anthropic", "", "anthropic", anthropic),
        ("gemini", "", "google.genai", gemini),
    ],
)
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_we_send_where_the_official_sdk_sends_and_authenticate_as_it_does(
    name: str, suffix: str, module: str, call: Callable[[str], Any]
) -> None:
    pytest.importorskip(module)
    with ScriptedServer(Reply(body=STREAMS[PRESETS[name].format])) as server:
        call(server.url)
        official = server.received[-1]
        ours = sent(HttpProviderClient(name, base_url=server.url + suffix, keys=[KEY]), server)
    assert (ours.method, ours.target) == (official.method, official.target)
    if name == "anthropic":
        # From its version 2 on the SDK speaks a newer version of the API and sends every key as a bearer token. We speak the
        # version that all hosts know, with its own header.
        return
    carrying = [header for header, value in official.headers.items() if KEY in value]
    assert carrying
    assert {header: ours.headers.get(header) for header in carrying} == {
        header: official.headers[header] for header in carrying
    }
    assert [header for header, value in ours.headers.items() if KEY in value] == carrying


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_default_addresses_are_those_of_the_official_sdks() -> None:
    openai = pytest.importorskip("openai")
    anthropic = pytest.importorskip("anthropic")
    assert str(openai.OpenAI(api_key=KEY, base_url=None).base_url).rstrip("/") == PRESETS["openai"].base_url
    assert str(anthropic.Anthropic(api_key=KEY).base_url).rstrip("/") == PRESETS["anthropic"].base_url
