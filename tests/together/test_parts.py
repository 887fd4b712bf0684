"""Parts: the arguments of a call, read from whatever text a model wrote; media by their type."""

from __future__ import annotations

import pytest

from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry
from antiphon.parts import Audio, Document, Image, ToolCallRequest, media_part
from antiphon_devtools.trajectories import TrajectoryExport

TOO_DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def test_arguments_nested_too_deeply_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="the arguments of look are nested too deeply"):
        ToolCallRequest("look", "call_1", TOO_DEEP).parse_arguments()


def test_free_text_is_the_input_of_the_arguments_object() -> None:
    assert ToolCallRequest("patch", "call_1", "*** Begin", freeform=True).arguments_object() == {"input": "*** Begin"}
    assert ToolCallRequest("look", "call_1", '{"city":"Oslo"}').arguments_object() == {"city": "Oslo"}


def test_a_medium_at_a_url_is_the_part_of_its_type() -> None:
    assert media_part("image/png", url="https://a.example/x") == Image("image/png", url="https://a.example/x")
    assert media_part("audio/wav", url="https://a.example/x") == Audio("audio/wav", url="https://a.example/x")
    document = media_part("application/pdf", url="https://a.example/x", name="x.pdf")
    assert document == Document("application/pdf", url="https://a.example/x", name="x.pdf")


@pytest.mark.parametrize("format_name", ["atif", "sharegpt", "openai-finetune"])
def test_a_trajectory_with_arguments_nested_too_deeply_is_written(format_name: str) -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Look."))
    history.append(ModelOutputEntry((ToolCallRequest("look", "call_1", TOO_DEEP),)))
    (written,) = TrajectoryExport(format_name).write(history)
    assert written.body is not None
