"""`antiphon prices` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.cli import main
from support.installed import needs_gateway


def test_shows_the_prices_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "anthropic/claude-opus-4-6"]) == 0
    shown = capsys.readouterr().out
    assert "input            5\n" in shown
    assert "since 2026-03-13: input 5" in shown


def test_an_unknown_price_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "mine"]) == 1
    assert "the price of mine is unknown; set it in [[prices]]" in capsys.readouterr().err


@needs_gateway
def test_prices_of_the_config_go_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "antiphon.toml"
    config.write_text('[[prices]]\nmodel = "mine*"\ninput = 0.5\noutput = 2\n')
    assert main(["prices", "mine-1", "--config", str(config)]) == 0
    assert "output           2" in capsys.readouterr().out
    config.write_text('[[prices]]\nmodel = "mine*"\ninput = -1\n')
    assert main(["prices", "mine-1", "--config", str(config)]) == 1
    assert "prices[0].input" in capsys.readouterr().err
    config.write_text('[[prices]]\nmodel = "mine*"\n')
    assert main(["prices", "mine-1", "--config", str(config)]) == 1
    assert "states no price" in capsys.readouterr().err


def test_lists_the_providers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices"]) == 0
    assert "anthropic" in capsys.readouterr().out
