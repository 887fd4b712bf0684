"""Who may use the gateway: keys by their hashes, found in constant time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from antiphon.errors import CredentialError
from antiphon_gateway.access.client_keys import ClientKey, ClientKeys, hash_key, new_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, GatewaySettings

KEY, OTHER = "sk-antiphon-" + "k" * 32, "sk-antiphon-" + "o" * 32
CONFIG = Config(
    gateway=GatewaySettings(client_keys=("env:BARE", hash_key(OTHER))),
    keys=(
        ClientKeySettings(
            name="laptop", key=hash_key(KEY), models=("claude-*", "gpt-5"), requests_per_minute=3, strict=True
        ),
    ),
)
KEYS = ClientKeys(CONFIG, {"BARE": "a key of one's own"})


def test_a_new_key_is_long_random_and_plain() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    for key in keys:
        prefix, _, random = key.rpartition("-")
        assert prefix == "sk-antiphon"
        assert len(bytes.fromhex(random)) * 8 >= 160
    assert hash_key(KEY).startswith("sha256:")
    assert KEY not in hash_key(KEY)


@pytest.mark.parametrize(
    ("presented", "name"),
    [
        ({"authorization": f"Bearer {KEY}"}, "laptop"),
        ({"authorization": f"bearer  {KEY} "}, "laptop"),
        ({"x-api-key": KEY}, "laptop"),
        ({"x-goog-api-key": KEY}, "laptop"),
        ({"key": KEY}, "laptop"),
        ({"authorization": "Bearer a key of one's own"}, "BARE"),
        ({"authorization": "Bearer unknown", "x-api-key": KEY}, "laptop"),
        ({"x-api-key": OTHER}, hash_key(OTHER)[:15]),
        ({}, None),
        ({"authorization": KEY}, None),
        ({"authorization": f"Basic {KEY}"}, None),
        ({"authorization": "Bearer "}, None),
        ({"x-api-key": ""}, None),
        ({"x-api-key": KEY[:-1]}, None),
        ({"x-api-key": f"{KEY}0"}, None),
        ({"x-api-key": KEY.upper()}, None),
        ({"x-api-key": hash_key(KEY)}, None),
        ({"x-api-key": "\udcff\udc80 not text"}, None),
        ({"x-api-key": "é" * 10_000}, None),
    ],
)
def test_check(presented: dict[str, str], name: str | None) -> None:
    query = {name: value for name, value in presented.items() if name == "key"}
    found = KEYS.authenticate({name: value for name, value in presented.items() if name != "key"}, query)
    assert (found.name if found is not None else None) == name


def test_permissions_of_a_client_come_from_its_settings() -> None:
    laptop = KEYS.authenticate({"x-api-key": KEY}, {})
    assert laptop == ClientKey(
        name="laptop", models=("claude-*", "gpt-5"), strict=True, requests_per_minute=3, key_hash=hash_key(KEY)
    )
    assert [laptop.may_use(model) for model in ("claude-x", "gpt-5", "gpt-5.5", "Claude-x")] == [
        True,
        True,
        False,
        False,
    ]
    bare = KEYS.authenticate({"authorization": "Bearer a key of one's own"}, {})
    assert bare is not None
    assert bare.may_use("anything")


def test_no_key_is_shown() -> None:
    assert KEY not in repr(KEYS)
    assert "laptop" in repr(KEYS)
    assert not [name for name in vars(KEYS) if KEY in repr(getattr(KEYS, name))]


def test_a_key_that_cannot_be_read_is_an_error_that_names_its_place() -> None:
    with pytest.raises(CredentialError, match="GONE is not set"):
        ClientKeys(Config(gateway=GatewaySettings(client_keys=("env:GONE",))), {})


def test_names_of_keys_without_names_are_their_own() -> None:
    config = Config(
        gateway=GatewaySettings(client_keys=("env:A", "file:/dev/null/A", "env:B")),
        keys=(ClientKeySettings(name="A", key=hash_key(KEY)),),
    )
    with pytest.raises(CredentialError):
        ClientKeys(config, {"A": "1", "B": "2"})
    config = Config(
        gateway=GatewaySettings(client_keys=("env:A", "env:B")), keys=(ClientKeySettings(name="A", key=hash_key(KEY)),)
    )
    assert [client.name for client in ClientKeys(config, {"A": "1", "B": "2"}).clients] == ["A", "A #2", "B"]


def test_without_keys_only_this_machine_is_served() -> None:
    keys = ClientKeys(Config(), {})
    assert keys.allows_anonymous
    assert not KEYS.allows_anonymous
    assert keys.authenticate({"x-api-key": "anything"}, {}) is None


def test_a_lookup_does_not_depend_on_the_number_of_keys() -> None:
    class CountedDigest(bytes):
        compared = 0

        def __hash__(self) -> int:
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            CountedDigest.compared += 1
            return super().__eq__(other)

    keys = tuple(ClientKeySettings(name=f"k{number}", key=hash_key(f"sk-{number}")) for number in range(2000))
    known = ClientKeys(Config(keys=keys), {})
    known._known = {CountedDigest(digest): client for digest, client in known._known.items()}
    CountedDigest.compared = 0
    found = known.authenticate({"authorization": "Bearer sk-1999"}, {})
    assert found is not None
    assert found.name == "k1999"
    assert known.authenticate({"authorization": "Bearer sk-2000"}, {}) is None
    assert CountedDigest.compared <= 2


def test_expired_and_disabled_keys_are_not_accepted() -> None:
    now = datetime.now(UTC)
    keys = tuple(
        ClientKeySettings(name=name, key=hash_key(name), expires=expires)
        for name, expires in {"past": now - timedelta(seconds=1), "future": now + timedelta(days=1)}.items()
    )
    known = ClientKeys(Config(keys=keys), {})
    assert known.authenticate({"x-api-key": "past"}, {}) is None
    assert known.authenticate({"x-api-key": "future"}, {}) is not None
    past = known.find({"authorization": "Bearer unknown", "x-api-key": "past", "x-goog-api-key": "future"}, {})
    assert past is not None
    assert past.refusal().startswith("this API key expired at 2")
    assert ClientKey(name="off", is_disabled=True).refusal() == "this API key is disabled"


def test_is_limited_follows_from_the_limits() -> None:
    assert not ClientKey(name="free").is_limited
    assert ClientKey(name="slow", requests_per_minute=1).is_limited
    assert not ClientKey(name="slow", requests_per_minute=1).is_metered
    budget = ClientKey(name="budget", budget_per_day=1.5)
    assert (budget.is_limited, budget.has_budget, budget.is_metered, budget.has_money_budget) == (True,) * 4
    assert not ClientKey(name="tokens", tokens_per_month=5).has_money_budget
