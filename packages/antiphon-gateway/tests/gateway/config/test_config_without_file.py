"""The configuration that the environment gives where there is no file."""

from __future__ import annotations

import pytest

from antiphon.providers.keys.secret import read_headers
from antiphon.providers.presets import PRESETS
from antiphon_gateway.config.file import ConfigError, config_from_environment, fill_from_environment
from antiphon_gateway.config.settings import ProviderSettings

KEY = "sk-a-real-secret-that-must-not-show"
ENVIRON = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": f"{KEY}-2", "ANTIPHON_CLIENT_KEY": f"{KEY}-3"}


def test_an_empty_environment_gives_the_offline_provider() -> None:
    offer = config_from_environment({})
    assert offer.summary.startswith("no configuration file; using offline/plain: not a language model")
    assert "\n" not in offer.summary
    assert [provider.is_offline for provider in offer.config.providers] == [True]
    assert offer.config.models[-1].targets == ("offline/plain",)
    assert offer.config.gateway.client_keys == ()


def test_the_environment_offers_what_its_keys_open() -> None:
    environ = {
        **ENVIRON,
        "OPENAI_ORG_ID": "org-1",
        "OLLAMA_HOST": "127.0.0.1:11434",
        "ANTIPHON_MODEL": "anthropic/claude-x",
    }
    offer = config_from_environment(environ, overrides={"port": 9000})
    by_name = {provider.name: provider for provider in offer.config.providers}
    assert list(by_name) == ["openai", "openai-responses", "anthropic", "ollama"]
    assert by_name["openai"].keys == ("env:OPENAI_API_KEY",)
    assert read_headers(by_name["openai"].headers, environ) == ({"openai-organization": "org-1"}, ("org-1",))
    assert by_name["ollama"].base_url == "127.0.0.1:11434"
    routes = {model.name: model.targets for model in offer.config.models}
    assert routes["claude-*"] == ("anthropic/*",)
    assert list(routes).index("*-codex") < list(routes).index("gpt-*")
    assert routes["*"] == ("anthropic/claude-x",)
    assert offer.config.gateway.client_keys == ("env:ANTIPHON_CLIENT_KEY",)
    assert offer.config.gateway.port == 9000
    assert KEY not in repr(offer)


def test_a_bearer_token_is_sent_as_one() -> None:
    (provider,) = config_from_environment({"ANTHROPIC_AUTH_TOKEN": "t"}).config.providers
    assert (provider.keys, provider.effective_preset.auth) == (("env:ANTHROPIC_AUTH_TOKEN",), "bearer")


@pytest.mark.parametrize(
    ("name", "environ", "key"),
    [
        (
            "azure-openai",
            {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://h"},
            "env:AZURE_OPENAI_API_KEY",
        ),
        (
            "azure-openai",
            {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_OPENAI_ENDPOINT": "https://h"},
            "entra:",
        ),
        (
            "bedrock-mantle",
            {
                "AWS_BEARER_TOKEN_BEDROCK": KEY,
                "AWS_REGION": "us-east-1",
                "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": "https://h",
            },
            "env:AWS_BEARER_TOKEN_BEDROCK",
        ),
    ],
)
def test_a_host_in_a_cloud_gets_its_key_and_its_address(name: str, environ: dict[str, str], key: str) -> None:
    environ = {**environ, "OPENAI_API_VERSION": "2025-02-02"}
    found = fill_from_environment(ProviderSettings(name=name), environ)
    assert (found.keys, found.base_url) == ((key,), "https://h")
    assert found.effective_preset.auth == PRESETS[name].auth
    assert found.api_version == ("2025-02-02" if name == "azure-openai" else "")


def test_an_environment_that_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the environment: providers\[0\].base_url points to this gateway"):
        config_from_environment({"VLLM_BASE_URL": "http://localhost:8000/v1"})
    assert config_from_environment(
        {"VLLM_BASE_URL": "http://localhost:8000/v1"}, overrides={"port": 9000}
    ).config.providers
