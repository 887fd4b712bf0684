"""Upload tickets: accepted for their client and upload until they expire, and for nothing else."""

from __future__ import annotations

import pytest

from antiphon.http.client.client import HttpClient
from antiphon.providers.cloud.signers import Authentication
from antiphon_gateway.access import client_keys
from antiphon_gateway.access.client_keys import TICKET, UPLOAD_ID, hash_key, new_ticket, ticket_client
from antiphon_gateway.config.settings import ClientKeySettings, Config, ProviderSettings
from antiphon_gateway.runtime.loaded import LoadedConfig

CLIENT = "笔记本 / 1"
UPLOAD = "u1"
CLOUD = ProviderSettings(name="vertex", project="p", keys=("google:",))
WITH_KEY = ProviderSettings(name="gemini", keys=("env:KEY",))


def loaded_with(secret: str, *names: str, providers: tuple[ProviderSettings, ...] = (WITH_KEY,)) -> LoadedConfig:
    keys = tuple(ClientKeySettings(name=name, key=hash_key(name)) for name in names)
    return LoadedConfig(Config(keys=keys, providers=providers), HttpClient({}), environ={"KEY": secret})


LOADED = loaded_with("the-secret-of-the-provider", CLIENT)


def name_of(ticket: str, loaded: LoadedConfig = LOADED, upload_id: str = UPLOAD) -> str | None:
    found = ticket_client(loaded, {TICKET: ticket, UPLOAD_ID: upload_id})
    return None if found is None else found.name


def test_another_host_with_the_same_secrets_accepts_it_and_others_do_not() -> None:
    ticket = new_ticket(LOADED, CLIENT, UPLOAD)
    assert name_of(ticket) == CLIENT
    assert name_of(ticket, loaded_with("the-secret-of-the-provider", CLIENT, "more")) == CLIENT
    assert name_of(ticket, loaded_with("another-secret-of-a-provider", CLIENT)) is None
    assert name_of(ticket, loaded_with("the-secret-of-the-provider", "without this client")) is None


def test_a_gateway_with_nothing_but_token_sources_signs_with_a_random_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a token comes from is not secret: everybody who knows the configuration could sign."""
    loaded = loaded_with("", CLIENT, providers=(CLOUD,))
    ticket = new_ticket(loaded, CLIENT, UPLOAD)
    assert name_of(ticket, loaded) == CLIENT
    monkeypatch.setattr(client_keys, "_PROCESS_KEY", b"another")
    assert name_of(ticket, loaded) is None


def test_a_fetched_token_changes_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_with("the-secret-of-the-provider", CLIENT, providers=(CLOUD, WITH_KEY))
    ticket = new_ticket(loaded, CLIENT, UPLOAD)
    monkeypatch.setattr(Authentication, "secrets", ("ya29.fetched",))
    assert "ya29.fetched" in loaded.secrets
    assert name_of(ticket, loaded) == CLIENT


def test_expired_and_changed_tickets_are_refused() -> None:
    assert name_of(new_ticket(LOADED, CLIENT, UPLOAD, seconds=-1)) is None
    ticket = new_ticket(LOADED, CLIENT, UPLOAD)
    name, expires, signed = ticket.split(".")
    changed = [f"{name}.{int(expires) + 1}.{signed}", f"{name}x.{expires}.{signed}", f"{name}.{expires}.{signed[:-1]}"]
    for wrong in (*changed, "", ".", "..", f"{name}.{signed}", f"{ticket}.x", "é.1.\udcff"):
        assert name_of(wrong) is None, wrong
    assert ticket_client(LOADED, {}) is None


def test_a_ticket_is_for_one_upload() -> None:
    ticket = new_ticket(LOADED, CLIENT, UPLOAD)
    assert name_of(ticket, upload_id="u2") is None
    assert name_of(ticket, upload_id="") is None
