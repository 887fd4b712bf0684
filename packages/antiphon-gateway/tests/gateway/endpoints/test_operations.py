"""What only operators see, and how a gateway recovers from keys that a provider rejected."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.cli import main
from antiphon.parts import Text
from antiphon.wire.output import ErrorKind
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import ClientKeys, hash_key
from antiphon_gateway.config.file import config_from_environment, load_config
from antiphon_gateway.config.settings import ClientKeySettings, Config, GatewaySettings
from gateway.rig import KEY, MODELS, Client, Rig, rig, serving
from gateway.strict_upstream import StrictUpstream
from support.waiting import until

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
KEYS = [
    ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
    ClientKeySettings(name="client", key=hash_key("sk-client")),
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(keys=KEYS) as running:
        yield running


@pytest.mark.parametrize("path", ["/status", "/status?format=json", "/metrics"])
def test_only_an_admin_key_reads_status_and_metrics(gateway: Rig, path: str) -> None:
    expected = {"": 401, "sk-wrong": 401, "sk-client": 403, "sk-operator": 200}
    for key, status in expected.items():
        for port in (gateway.port, gateway.format_port):
            with gateway.client(key, port=port) as client:
                got = client.get(path)
                assert got.status == status, (key, got.body)
                assert status == 200 or b"client" not in got.body.replace(b"client_", b"")


def test_readiness_names_providers_only_to_an_admin(gateway: Rig) -> None:
    for key in ("", "sk-wrong", "sk-client"):
        with gateway.client(key) as client:
            assert client.get("/readyz").json == {"status": "ok"}
            assert client.get("/healthz").status == 200
    with gateway.client("sk-operator") as client:
        assert client.get("/readyz").json == {"status": "ok", "providers": list(gateway.upstreams), "unusable": {}}


def test_without_keys_this_machine_is_the_operator() -> None:
    with rig() as running, running.client() as client:
        assert client.get("/status").status == client.get("/metrics").status == 200
        assert client.get("/readyz").json["providers"] == list(running.upstreams)


def test_the_environment_can_name_an_admin_key() -> None:
    environ = {"ANTIPHON_CLIENT_KEY": "sk-client", "ANTIPHON_ADMIN_KEY": "sk-operator"}
    clients = {
        client.name: client.admin for client in ClientKeys(config_from_environment(environ).config, environ).clients
    }
    assert clients == {"admin": True, "ANTIPHON_CLIENT_KEY": False}


def rejected(upstream: StrictUpstream) -> None:
    upstream.faults.append(upstream.error(401, "authentication", "invalid x-api-key"))


def test_one_401_rests_one_model_and_a_second_model_the_provider() -> None:
    models = {name: [f"anthropic/{name}"] for name in ("claude-sonnet-4-5", "claude-opus-4-1", "claude-haiku-4-5")}
    with rig(models=models) as running, running.client() as client:
        upstream = running.upstreams["anthropic"]

        def status(model: str) -> int:
            return client.ask("anthropic", model, QUESTION, streams=False).status

        rejected(upstream)
        assert status("claude-sonnet-4-5") == 502
        assert status("claude-opus-4-1") == status("claude-haiku-4-5") == 200
        asked = len(upstream.received)
        assert status("claude-sonnet-4-5") == 502
        assert len(upstream.received) == asked  # it rests
        ready = client.get("/readyz").json
        assert ready["unusable"] == {}
        upstream.keys.clear()
        upstream.keys.add("another key")  # from now on every model is a 401
        assert [status(model) for model in models] == [502] * 3
        ready = client.get("/readyz").json
        assert "anthropic" not in ready["providers"]
        assert "is invalid; retry in 1" in ready["unusable"]["anthropic"]
        (row,) = [row for row in client.get("/status").json["credentials"] if row["provider"] == "anthropic"]
        assert row["state"] == "invalid"
        assert row["until"]


FILE = """
[gateway]
port = 0
format_port = 0
log_level = "warning"

[[providers]]
name = "anthropic"
base_url = "{url}"
keys = [{keys}]
retries = 0
rotations = 0

[[models]]
name = "claude-*"
targets = ["anthropic/*"]
"""


def test_a_saved_configuration_lets_a_rejected_key_be_probed_and_revives_no_sibling(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    first, second = KEY.format("first"), KEY.format("second")
    environ = {"FIRST": first, "SECOND": second}
    with StrictUpstream("anthropic", ["none of them"]) as upstream:
        path.write_text(FILE.format(url=upstream.base_url, keys='"env:FIRST"'))
        with serving(load_config(path, environ), environ, path) as (port, _):
            client = Client(port)

            def ask(model: str) -> int:
                return client.ask("anthropic", model, QUESTION, streams=False).status

            def states() -> list[str]:
                return [row["state"] for row in client.get("/status").json["credentials"]]

            def reload_with(keys: str) -> None:
                before = applied(client)
                path.write_text(FILE.format(url=upstream.base_url, keys=keys) + f"# {time.monotonic_ns()}\n")
                until(lambda: applied(client) > before, "the configuration is reloaded")

            assert [ask("claude-a"), ask("claude-b"), ask("claude-c")] == [502] * 3
            assert states() == ["invalid"]
            assert len(upstream.received) == 2  # the third found no usable key
            reload_with('"env:FIRST"')
            assert states() == ["half_open"]
            assert ask("claude-a") == 502  # probed, and rejected as before
            assert len(upstream.received) == 3
            assert states() == ["invalid"]
            upstream.keys.add(second)
            reload_with('"env:FIRST", "env:SECOND"')
            assert states() == ["half_open", "healthy"]
            assert sorted([ask("claude-d"), ask("claude-d")]) == [200, 502]
            assert states() == ["invalid", "healthy"]
            upstream.keys.add(first)
            reload_with('"env:FIRST", "env:SECOND"')
            assert [ask("claude-d"), ask("claude-d")] == [200, 200]
            assert states() == ["healthy", "healthy"]
            client.close()


REFUSALS: tuple[tuple[int, ErrorKind, str], ...] = (
    (401, "authentication", "invalid"),
    (402, "billing", "exhausted"),
    (429, "rate_limit", "cooling"),
    (403, "permission", "cooling"),
)


@pytest.mark.parametrize(("status", "kind", "state"), REFUSALS)
def test_one_health_state_of_a_key_is_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, kind: ErrorKind, state: str
) -> None:
    path, environ = tmp_path / "antiphon.toml", {"FIRST": KEY.format("first"), "SECOND": KEY.format("second")}
    with StrictUpstream("anthropic", environ.values()) as upstream:
        path.write_text(FILE.format(url=upstream.base_url, keys='"env:FIRST", "env:SECOND"'))
        with serving(load_config(path, environ), environ, path) as (port, _):
            client = Client(port)

            def shown() -> list[list[str]]:
                """The states of both keys, by each view, sorted."""
                lines = client.get("/metrics").body.decode().splitlines()
                counted = [re.findall(r'^antiphon_credentials\{.*state="(\w+)"\} (\d)', line) for line in lines]
                assert main(["key", "list", "--url", f"http://127.0.0.1:{port}"]) == 0
                listed = [line.split()[2].rstrip(";") for line in capsys.readouterr().out.splitlines()[1:]]
                views = [
                    [row["state"] for row in client.get("/status?format=json").json["credentials"]],
                    [row["state"] for row in client.get("/credentials").json["credentials"]],
                    [row["state"] for row in client.get("/admin/credentials").json["credentials"]],
                    [name for found in counted for name, number in found for _ in range(int(number))],
                    listed,
                ]
                return [sorted(view) for view in views]

            assert shown() == [["healthy", "healthy"]] * 5
            error = upstream.error(status, kind, "no", retry_after="600")
            upstream.faults.append(error)
            client.ask("anthropic", "claude-a", QUESTION, streams=False)
            assert shown() == [sorted(["healthy", state])] * 5
            assert client.post(
                "/credentials", {"provider": "anthropic", "credential": "env:FIRST", "enabled": False}
            ).json
            assert all("disabled" in view for view in shown())
            client.close()


def test_a_failure_is_booked_on_the_target_that_failed() -> None:
    first, second = f"anthropic/{MODELS['anthropic']}", f"openai-chat/{MODELS['openai-chat']}"
    with rig(models={"pair": [first, second]}) as gateway, gateway.client() as client:
        broken, other = gateway.upstreams["anthropic"], gateway.upstreams["openai-chat"]
        for _ in range(2):
            broken.faults.append(broken.error(500, "server", "our fault"))
            assert client.ask("anthropic", "pair", QUESTION, streams=False).status == 200
        assert client.ask("anthropic", "pair", QUESTION, streams=False).status == 200
        broken.faults.append(broken.error(500, "server", "our fault"))
        other.faults.append(other.error(500, "server", "our fault, too"))
        assert client.ask("anthropic", "pair", QUESTION, streams=False).status == 502
        stats = {row["target"]: row for row in client.get("/status?format=json").json["targets"]}
    assert {target: (row["requests"], row["failed"]) for target, row in stats.items()} == {
        first: (4, 3),
        second: (3, 1),
    }


def applied(client: Client) -> int:
    """How often a new configuration was applied."""
    lines = client.get("/metrics").body.decode().splitlines()
    return sum(
        int(float(line.split()[-1])) for line in lines if line.startswith('antiphon_reloads_total{outcome="applied"')
    )


def test_a_gateway_for_settings_has_no_admin_by_default() -> None:
    keys = ClientKeys(Config(gateway=GatewaySettings(client_keys=("env:K",))), {"K": "sk-anything"})
    assert [client.admin for client in keys.clients] == [False]


def test_a_new_admin_key_is_printed_with_the_lines_that_let_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "new", "--name", "operator", "--admin"]) == 0
    key, *lines = capsys.readouterr().out.splitlines()
    assert lines == ["[[keys]]", 'name = "operator"', f'key = "{hash_key(key)}"', "admin = true"]
    assert main(["key", "new", "--admin"]) != 0
