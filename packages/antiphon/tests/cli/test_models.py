"""`antiphon models` shows what is known about a model, and from where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon.cli import main
from antiphon.wire.capabilities import capability_data
from support.installed import needs_gateway


def test_all_families_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    for family in capability_data().families:
        assert f"\n{family.name} " in f"\n{shown}"
    assert "efforts=minimal low medium high" in shown


def test_a_model_with_the_source_of_each_fact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "openai/gpt-5-mini"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "openai/gpt-5-mini in openai-chat: family gpt-5"
    efforts = next(line for line in lines if line.split()[0] == "efforts")
    assert "minimal low medium high" in efforts
    assert "pydantic-ai, litellm" in efforts
    assert any(
        (line.split()[:2] == ["max_output_tokens", "128,000"] and "litellm" in line) or "pi-ai" in line
        for line in lines
    )


def test_json_has_value_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "claude-sonnet-4-5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["family"], shown["format"]) == ("claude-4.5", "anthropic")
    assert shown["facts"]["temperature_with_top_p"] == {
        "value": False,
        "source": "rule AN-31; pydantic-ai (structured outputs)",
    }
    assert main(["models", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(capability_data().families)


def test_another_format_shows_only_what_holds_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "claude-sonnet-4-5", "--format", "openai-chat"]) == 0
    shown = capsys.readouterr().out
    assert "thinking " not in shown
    assert "temperature_with_top_p" in shown


def test_an_unknown_model_is_reported_as_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "my\x1b[31mmodel"]) == 0
    shown = capsys.readouterr()
    assert ": unknown" in shown.out
    assert "\x1b" not in shown.out
    assert "[[capabilities]]" in shown.err


@needs_gateway
def test_a_configuration_with_capabilities_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text('[[capabilities]]\nmodel = "prod"\nlike = "gpt-5"\nmax_output_tokens = 99\n', encoding="utf-8")
    assert main(["models", "prod", "--config", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "prod in openai-chat: family gpt-5" in shown
    assert any("99" in line and "[[capabilities]]" in line for line in shown.splitlines())
