"""Signed tokens: accepted for their client, purpose and upload until they expire, and for nothing else."""

from __future__ import annotations

import time

import pytest

from antiphon.http.client.client import HttpClient
from antiphon.http.messages import ClientRequest
from antiphon.providers.cloud.authentication import Authentication
from antiphon_gateway.access import signed_tokens
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.access.signed_tokens import (
    TICKET,
    UPLOAD_ID,
    new_ticket,
    new_token,
    signature,
    ticket_client,
    token_client,
)
from antiphon_gateway.config.settings import ClientKeySettings, Config, ProviderSettings
from antiphon_gateway.runtime.loaded import LoadedConfig

CLIENT = "笔记本 / 1"
LATER = time.time() + 86_400  # from when this module was imported, which may be long before its tests run


def loaded_with(secret: str, *names: str) -> LoadedConfig:
    keys = tuple(ClientKeySettings(name=name, key=hash_key(name)) for name in names)
    config = Config(keys=keys, providers=(ProviderSettings(name="gemini", keys=("env:KEY",)),))
    return LoadedConfig(config, HttpClient({}), environ={"KEY": secret})


LOADED = loaded_with("the-secret-of-the-provider", CLIENT)


def name_of(token: str, loaded: LoadedConfig = LOADED, purpose: str = "a", bound_to: str | None = None) -> str | None:
    found = token_client(loaded, purpose, token, bound_to=bound_to)
    return None if found is None else found.name


def test_a_token_names_its_client() -> None:
    assert name_of(new_token(LOADED, "a", CLIENT, LATER)) == CLIENT
    assert name_of(new_token(LOADED, "a", CLIENT, LATER, nonce="0f")) == CLIENT
    assert new_token(LOADED, "a", CLIENT, LATER, nonce="0f") != new_token(LOADED, "a", CLIENT, LATER, nonce="1f")


def test_another_host_with_the_same_secrets_accepts_it_and_others_do_not() -> None:
    token = new_token(LOADED, "a", CLIENT, LATER)
    assert name_of(token, loaded_with("the-secret-of-the-provider", CLIENT, "more")) == CLIENT
    assert name_of(token, loaded_with("another-secret-of-a-provider", CLIENT)) is None
    assert name_of(token, loaded_with("the-secret-of-the-provider", "without this client")) is None


def loaded_for(*providers: ProviderSettings) -> LoadedConfig:
    return LoadedConfig(Config(providers=providers), HttpClient({}), environ={"KEY": "the-secret-of-the-provider"})


CLOUD = ProviderSettings(name="vertex", project="p", keys=("google:",))
WITH_KEY = ProviderSettings(name="gemini", keys=("env:KEY",))


def test_a_gateway_with_nothing_but_token_sources_signs_with_a_random_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a token comes from is not secret: everybody who knows the configuration could sign."""
    before = signature(loaded_for(CLOUD), "a", "x")
    monkeypatch.setattr(signed_tokens, "_PROCESS_KEY", b"another")
    assert signature(loaded_for(CLOUD), "a", "x") != before


def test_a_fetched_token_changes_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_for(CLOUD, WITH_KEY)
    before = signature(loaded, "a", "x")
    assert before == signature(loaded_for(CLOUD, WITH_KEY), "a", "x")
    monkeypatch.setattr(Authentication, "secrets", ("ya29.fetched",))
    assert "ya29.fetched" in loaded.secrets
    assert signature(loaded, "a", "x") == before


@pytest.mark.parametrize(("purpose", "bound_to"), [("b", "x"), ("a", "y"), ("a", ""), ("a", None)])
def test_a_token_is_for_one_purpose_and_one_thing(purpose: str, bound_to: str | None) -> None:
    token = new_token(LOADED, "a", CLIENT, LATER, bound_to="x")
    assert name_of(token, bound_to="x") == CLIENT
    assert name_of(token, purpose=purpose, bound_to=bound_to) is None


def test_expired_and_changed_tokens_are_refused() -> None:
    assert name_of(new_token(LOADED, "a", CLIENT, time.time() - 1)) is None
    name, expires, signed = new_token(LOADED, "a", CLIENT, LATER).split(".")
    changed = [f"{name}.{int(expires) + 1}.{signed}", f"{name}x.{expires}.{signed}", f"{name}.{expires}.{signed[:-1]}"]
    alone = signature(LOADED, "a", name)
    for wrong in (*changed, "", ".", "..", f"{name}.{signed}", f"{name}.{alone}", "é.1.\udcff"):
        assert name_of(wrong) is None, wrong


def test_a_ticket_is_for_one_upload() -> None:
    ticket = new_ticket(LOADED, CLIENT, "u1")
    for upload_id, name in (("u1", CLIENT), ("u2", None)):
        request = ClientRequest(method="PUT", path="/upload/v1beta/files", query={TICKET: ticket, UPLOAD_ID: upload_id})
        found = ticket_client(LOADED, request)
        assert (None if found is None else found.name) == name
    assert ticket_client(LOADED, ClientRequest(method="PUT", path="/upload/v1beta/files")) is None
