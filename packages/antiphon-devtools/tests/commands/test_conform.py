"""`antiphon conform`: the whole suite against Antiphon's own gateway, the files it writes, and its answers to bad input."""

from __future__ import annotations

import json
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from antiphon.cli import main
from antiphon_devtools.conform.conversation import Answer
from antiphon_devtools.conform.gateways import GATEWAYS, KEY, PORTS, setup
from antiphon_devtools.conform.upstream import MockProviders, Script
from gateway.served import served_gateway
from support.waiting import free_port


class Target:
    """A gateway that is pointed at the mock providers of the suite."""

    def __init__(self, url: str, ports: str) -> None:
        self.url, self.ports = url, ports

    def conform(self, *options: str) -> int:
        return main(["conform", self.url, "--key", KEY, "--upstream-ports", self.ports, *options])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    ports = [free_port() for _ in PORTS]
    config = tmp_path_factory.mktemp("conform") / "conform.toml"
    config.write_text(setup("antiphon", dict(zip(PORTS, ports, strict=True))))
    with served_gateway(config, environ={"CONFORM_KEY": KEY}) as running:
        yield Target(f"http://127.0.0.1:{running.port}", ",".join(map(str, ports)))


def test_our_gateway_repairs_and_never_completes_a_cut_stream(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    only = [word for group in ("broken", "models", "streams") for word in ("--only", f"{group}/*")]
    assert target.conform(*only) == 0, capsys.readouterr().out
    shown = capsys.readouterr().out
    assert "FAILED" not in shown
    [total] = [line.split() for line in shown.splitlines() if line.startswith("total")]
    passed, refused, failed, _ = map(int, total[1:])
    assert passed > 650
    assert (refused, failed) == (0, 0)


@pytest.mark.slow
def test_our_gateway_passes_everything(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    assert target.conform() == 0, capsys.readouterr().out


def test_results_are_written_as_json_junit_and_badge(target: Target, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("r.json", "r.xml", "r.svg")]
    options = [
        word
        for file in files
        for word in (f"--{ {'json': 'json', 'xml': 'junit'}.get(file.suffix[1:], 'badge') }", str(file))
    ]
    pair = ("--client-formats", "anthropic", "--upstream-formats", "gemini")
    assert target.conform("--only", "text", "--only", "stop", "--only", "thinking-gemini", *pair, *options) == 0
    value = json.loads(files[0].read_text())
    assert value["totals"] == {"passed": 2, "refused": 0, "failed": 0, "not applicable": 1}
    assert value["results"][-1]["reason"] == "cannot be written as anthropic"
    suites = ElementTree.fromstring(files[1].read_text())
    assert [suite.attrib["tests"] for suite in suites] == ["3"]
    assert len(suites.findall(".//skipped")) == 1
    assert "2/2" in files[2].read_text()
    ElementTree.fromstring(files[2].read_text())


def test_a_failure_is_shown_with_its_difference(
    target: Target, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "faults.toml").write_text(
        '[[case]]\nid = "mine"\ntitle = "an impossible wish"\nmode = "whole"\nfault = { status = 500 }\nstatuses = [418]\n'
        'turns = [{ user = "Hello." }]\n'
    )
    pair = ("--client-formats", "openai-chat", "--upstream-formats", "openai-chat")
    assert target.conform("--cases", str(tmp_path), "--only", "mine", *pair) == 1
    shown = capsys.readouterr().out
    assert "FAILED faults/mine openai-chat -> openai-chat: an impossible wish" in shown
    assert "- expected: an error with status 418" in shown
    assert "+ got:      " in shown


def test_a_hosted_api_is_judged_from_the_client_side_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with MockProviders(dict.fromkeys(PORTS, 0)) as api:
        address = f"http://127.0.0.1:{api.ports['anthropic']}"
        options = ["--client-only", "--model", "claude-sonnet-4-5", "--client-formats", "anthropic,openai-chat"]
        options += ["--only", "answer-text"]
        assert main(["conform", address, *options]) == 0
        shown = capsys.readouterr().out
        assert "no route from openai-chat to the API: 404" in shown
        api.begin(Script(Answer(text="")))
        assert main(["conform", address, *options]) == 1
        assert "expected: some text" in capsys.readouterr().out


def test_our_gateway_passes_the_client_side_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "offline.toml"
    config.write_text('[gateway]\nclient_keys = ["env:CONFORM_KEY"]\n[[providers]]\nname = "offline"\n')
    with served_gateway(config, environ={"CONFORM_KEY": KEY}) as running:
        address = f"http://127.0.0.1:{running.port}"
        assert main(["conform", address, "--key", KEY, "--client-only", "--model", "offline/plain"]) == 0, (
            capsys.readouterr().out
        )
    [total] = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("total")]
    passed, refused, failed, _ = map(int, total[1:])
    assert passed > 200
    assert (refused, failed) == (0, 0)


def test_the_cases_of_the_client_side_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--list", "--client-only"]) == 0
    shown = capsys.readouterr().out
    assert "errors/wrong-key" in shown
    assert "faults/" not in shown
    assert main(["conform", "--list"]) == 0
    assert "errors/" not in capsys.readouterr().out


def test_an_address_without_a_server_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["conform", f"http://127.0.0.1:{port}", "--only", "text"]) == 2
    shown = capsys.readouterr()
    assert f"nothing answers at http://127.0.0.1:{port}: Connection refused; start the gateway first" in shown.err
    assert not shown.out


@pytest.mark.parametrize("name", GATEWAYS)
def test_setup_prints_a_configuration_with_the_ports(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--setup", name, "--upstream-ports", "5001,5002,5003,5004"]) == 0
    shown = capsys.readouterr().out
    assert f"antiphon conform http://127.0.0.1:{''}" in shown
    assert name == "portkey" or "127.0.0.1:5001" in shown
    if name in ("antiphon", "tensorzero"):
        tomllib.loads(shown)
    assert ("127.0.0.1:4715" in shown) is (name == "antiphon")  # four ports: the fifth is the default


@pytest.mark.parametrize("name", [name for name in GATEWAYS if name != "antiphon"])
def test_other_gateways_have_no_interactions(name: str) -> None:
    gateway = GATEWAYS[name]
    assert gateway.missing("gemini-interactions", "openai-chat") == "no endpoint of the format gemini-interactions"
    assert "no provider of the format gemini-interactions" in gateway.missing("openai-chat", "gemini-interactions")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the address of the gateway"),
        (["ftp://x"], "'ftp://x' is not an http:// or https:// address"),
        (["http://127.0.0.1:99999"], "is not an http:// or https:// address"),
        (["http://x", "--only", "nothing"], "no case is like nothing; see --list"),
        (["http://x", "--client-only", "--only", "faults/*"], "no case of --client-only is like faults/*"),
        (["http://x", "--client-formats", "cohere"], "unknown format 'cohere'; known: openai-chat"),
        (["http://x", "--upstream-ports", "1,2"], "write 5 ports separated by commas"),
        (["http://x", "--upstream-ports", "1,2,3,4,5,6"], "write 5 ports separated by commas"),
        (["http://x", "--gateway", "mine"], "unknown gateway; known: antiphon"),
        (["http://x", "--model", "gpt"], "write FORMAT=NAME"),
        (["http://x", "--client-only"], "--client-only needs --model NAME"),
        (["http://x", "--timeout-total", "0"], "must be a positive number of seconds"),
        (["http://x", "--cases", "/nowhere"], "has no .toml files"),
        (["--setup", "mine"], "--setup mine: unknown gateway"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[case]\n", "cannot read"),
        ('[[case]]\ntitle = "x"\n', "case number 1: Object missing required field `id`"),
        ('[[case]]\nid = "x"\ntitle = "x"\nturn = []\n', "case x: Object contains unknown field `turn`"),
        ('[[case]]\nid = "x"\ntitle = "x"\nclients = ["cohere"]\n', "case x: unknown format 'cohere'"),
        ('[[case]]\nid = "x"\ntitle = "x"\ntools = ["hammer"]\n', "case x: unknown tool 'hammer'"),
        ('[[case]]\nid = "text"\ntitle = "x"\n', "the case id 'text' is used twice"),
    ],
)
def test_a_bad_file_of_cases_is_explained(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clean.toml").write_text(text)
    assert main(["conform", "http://x", "--cases", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_a_case_of_the_client_side_must_say_what_it_expects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "errors.toml").write_text('[[case]]\nid = "x"\ntitle = "x"\n')
    assert main(["conform", "http://x", "--cases", str(tmp_path)]) == 2
    assert 'case x: client_only is missing; write client_only = { expects = "error" }' in capsys.readouterr().err


def test_a_taken_port_is_explained(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = [port, *(free_port() for _ in list(PORTS)[1:])]
        assert main(["conform", target.url, "--upstream-ports", ",".join(map(str, ports))]) == 2
    assert "choose others with --upstream-ports" in capsys.readouterr().err


def test_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--list"]) == 0
    assert "broken/missing-result" in capsys.readouterr().out
