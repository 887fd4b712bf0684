"""The files in deploy/: manifests against the Kubernetes schemas, configurations that the gateway accepts, metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from antiphon_gateway.config.file import load_config
from antiphon_gateway.ledger.database import ledger_address
from antiphon_gateway.observe.metrics import Histogram, Metrics
from antiphon_gateway.serve import DRAIN_SECONDS
from support.repository import PACKAGES, ROOT

yaml = pytest.importorskip("yaml")

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
LABEL = {"app.kubernetes.io/name": "antiphon"}


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def manifest(kind: str) -> Any:
    (found,) = [document for document in map(read_yaml, MANIFESTS) if document["kind"] == kind]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_follow_the_schema(path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(read_yaml(path), "1.37", strict=True)


@pytest.mark.slow
def test_the_schema_would_notice_a_mistake() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    wrong = manifest("Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_the_kustomization_lists_every_manifest_but_the_secret() -> None:
    listed = read_yaml(DEPLOY / "kubernetes" / "kustomization.yaml")["resources"]
    assert set(listed) == {path.name for path in MANIFESTS} - {"secret.example.yaml"}


def test_manifests_refer_to_each_other() -> None:
    deployment = manifest("Deployment")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    for selector in (
        deployment["selector"]["matchLabels"],
        deployment["template"]["metadata"]["labels"],
        manifest("Service")["spec"]["selector"],
        manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == LABEL
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in manifest("Service")["spec"]["ports"]} == ports
    assert {
        container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe", "startupProbe")
    } <= ports
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["envFrom"] == [{"secretRef": {"name": manifest("Secret")["metadata"]["name"]}}]
    assert pod["serviceAccountName"] == manifest("ServiceAccount")["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == manifest("ConfigMap")["metadata"]["name"]
    assert manifest("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == "antiphon"
    before_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_SECONDS + before_stop


def test_the_pod_is_confined() -> None:
    pod = manifest("Deployment")["spec"]["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def test_the_configuration_of_the_pods_is_served_with_the_keys_of_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(manifest("ConfigMap")["data"]["antiphon.toml"])
    keys = {name: f"{value}-{name}" for name, value in manifest("Secret")["stringData"].items()}
    config = load_config(file, keys)
    assert config.gateway.shared
    assert config.ledger.address == "env:LEDGER_ADDRESS"
    assert any(key.admin for key in config.keys)
    used = set(re.findall(r"env:(\w+)", file.read_text()))
    assert used == set(keys)


# Compose.


def test_compose_passes_every_variable_on() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    configured = (DEPLOY / "compose" / "antiphon.toml").read_text()
    assert set(re.findall(r"env:(\w+)", configured)) == set(services["gateway"]["environment"])
    example = (DEPLOY / "compose.env.example").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(re.findall(r"^(\w+)=", example, re.MULTILINE))


def test_the_configuration_of_compose_is_served() -> None:
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    filled = {
        name: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: f"some-value-{found[1]}", value)
        for name, value in services["gateway"]["environment"].items()
    }
    config = load_config(DEPLOY / "compose" / "antiphon.toml", filled)
    assert config.gateway.shared == "redis://valkey:6379/0"
    assert "@postgres:5432/" in filled["LEDGER_ADDRESS"]


def test_compose_is_confined_and_waits_for_its_stores() -> None:
    compose = read_yaml(DEPLOY / "compose.yaml")
    gateway = compose["services"]["gateway"]
    assert (DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]).is_file()
    assert (gateway["read_only"], gateway["cap_drop"]) == (True, ["ALL"])
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    assert int(gateway["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS
    for name in gateway["depends_on"]:
        assert compose["services"][name]["healthcheck"]["test"]
    named = {
        volume.partition(":")[0] for service in compose["services"].values() for volume in service.get("volumes", ())
    }
    assert {name for name in named if not name.startswith(".")} == set(compose["volumes"])
    assert (DEPLOY / "compose" / "antiphon.toml").is_file()


def test_the_image_has_what_the_examples_use() -> None:
    container = (DEPLOY / "Containerfile").read_text()
    extras = re.search(r"^ARG EXTRAS=(\S+)$", container, re.MULTILINE)
    assert extras is not None
    known = tomllib.loads((PACKAGES / "antiphon-gateway" / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {"postgres", "redis"} <= set(extras[1].split(",")) <= set(known)


# The unit.


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "antiphon.service").read_text()
    unit = tmp_path / "antiphon.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in verified.stderr.splitlines() if "antiphon.service" in line]
    assert (verified.returncode, complaints) == (0, [])
    wrong = tmp_path / "wrong.service"
    wrong.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSistem=strict"))
    noticed = subprocess.run(["systemd-analyze", "verify", str(wrong)], capture_output=True, text=True, timeout=60)
    assert "ProtectSistem" in noticed.stderr


def test_the_unit_stores_everything_in_its_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "antiphon.service").read_text(), re.MULTILINE))
    folder = f"/var/lib/{unit['StateDirectory']}"
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/")  # that of a dynamic user
    for name, value in re.findall(r"(\w+)=(\S+)", unit.get("Environment", "")):
        monkeypatch.setenv(name, value)
    keys = {name: f"a-key-{name}" for name in ("ANTIPHON_CLIENT_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY")}
    ledger = ledger_address(load_config(DEPLOY / "antiphon.toml", keys))
    assert ledger.startswith(f"{folder}/"), "everything else is read-only"


def test_the_steps_of_the_documentation_make_a_configuration_for_the_unit(tmp_path: Path) -> None:
    steps = (
        (ROOT / "docs" / "gateway" / "deploy.md")
        .read_text()
        .partition("## systemd")[2]
        .partition("```sh\n")[2]
        .partition("```")[0]
    )
    folder = tmp_path / "credentials"
    places = {"/etc/antiphon": tmp_path / "etc", "/run/credentials/antiphon.service": folder}
    folder.mkdir()
    loaded = re.findall(r"^LoadCredential=(\w+):(\S+)$", (DEPLOY / "antiphon.service").read_text(), re.MULTILINE)
    for name, _ in loaded:
        (tmp_path / f"{name}.key").write_text(f"the-key-of-{name}")
        (folder / name).write_text(f"the-key-of-{name}")
    for place, stand_in in places.items():
        steps = steps.replace(place, str(stand_in))
    script = "\n".join(line for line in steps.splitlines() if not line.startswith(("python3 ", "cp ", "systemctl ")))
    (tmp_path / "deploy").symlink_to(DEPLOY)
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, timeout=60)
    assert sorted(path.name for path in (tmp_path / "etc" / "keys").iterdir()) == sorted(name for name, _ in loaded)
    config = load_config(tmp_path / "etc" / "antiphon.toml", {})
    assert config.gateway.client_keys == (f"file:{folder}/client",)
    assert [provider.keys for provider in config.providers] == [
        (f"file:{folder}/anthropic",),
        (f"file:{folder}/openai",),
    ]


# Grafana.


def dashboard() -> Any:
    return json.loads((DEPLOY / "grafana.json").read_text())


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def known_series() -> dict[str, set[str]]:
    """Every series of /metrics with its labels."""
    series: dict[str, set[str]] = {}
    for family in Metrics([], version="1")._families.values():
        suffixes = ("_bucket", "_sum", "_count") if isinstance(family, Histogram) else ("",)
        for suffix in suffixes:
            series[family.name + suffix] = set(family.labels) | ({"le"} if suffix == "_bucket" else set())
    return series


def test_every_metric_and_label_of_the_dashboard_exists() -> None:
    known = known_series()
    assert len(expressions()) > 20
    for expression in expressions():
        names = re.findall(r"antiphon_\w+", expression)
        assert names, expression
        assert set(names) <= known.keys(), expression
        labels = set.intersection(*(known[name] for name in names)) | {"job"}
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            assert {label.strip() for label in grouping.split(",")} <= labels, expression
        for filters in re.findall(r"\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)\s*[=!]", filters)) <= labels, expression


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    identifiers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(identifiers) == len(set(identifiers))
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
