"""The measured tables of `docs/devtools/conformance.md` say what `bench/results/conform.json` says."""

from __future__ import annotations

import msgspec
from bench.gateway.conform import FILE, NOT_MEASURED, PAGE, TITLES, Measured, main, summarize, table

from antiphon_devtools.conform.gateways import GATEWAYS
from antiphon_devtools.conform.judge import Finding
from antiphon_devtools.conform.run import Result


def kept() -> list[Measured]:
    return msgspec.json.decode(FILE.read_bytes(), type=list[Measured])


def test_the_page_shows_the_kept_results() -> None:
    by_name = {each.name: each for each in kept()}
    assert table([by_name[name] for name in TITLES if name in by_name]) in PAGE.read_text()


def test_at_least_four_other_gateways_were_measured() -> None:
    assert len({each.name for each in kept()} - {"antiphon"}) >= 4


def test_every_known_gateway_is_measured_or_explained() -> None:
    assert GATEWAYS.keys() == TITLES.keys() | NOT_MEASURED.keys()


def test_a_failure_is_kept_with_its_first_finding() -> None:
    finding = Finding("accepted", "a rule", "a violation", "OC-03", "a source")
    results = [
        Result("text", "clean", "one message", "anthropic", "gemini", "passed"),
        Result("text", "clean", "one message", "openai-chat", "gemini", "failed", findings=[finding]),
    ]
    measured = summarize("litellm", "1.2", results)
    assert measured.groups["clean"] == [1, 0, 1, 0]
    [failure] = measured.failures
    assert (failure.case, failure.client, failure.rule) == ("clean/text", "openai-chat", "OC-03")


def test_an_unknown_gateway_is_refused() -> None:
    assert main(["mine"]) == 2
