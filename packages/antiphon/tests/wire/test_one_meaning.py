"""What is the same in every format: the model name of a stream, and the error for text that is not Unicode."""

from __future__ import annotations

import pytest

from antiphon.errors import WireError
from antiphon.parts import Text, ToolCallRequest
from antiphon.wire import FORMATS, Message, ModelOutput, ModelOutputDelta, ModelRequest, formats
from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartStarted, Started
from antiphon.wire.request_writer import RequestEncoder
from support.cases import each_case


def written(name: str, model: str) -> bytes:
    writer = formats[name].stream_writer(model)
    deltas: tuple[ModelOutputDelta, ...] = (
        Started(id="x", model="upstream-model", format=name),
        PartStarted(0, Text("")),
        PartDelta(0, "Yes."),
        PartEnded(0),
        Finished("end", model="upstream-model"),
    )
    return b"".join(map(writer.write, deltas)) + writer.close()


@pytest.mark.parametrize("name", FORMATS)
def test_the_requested_model_is_written_in_a_stream(name: str) -> None:
    data = written(name, "requested-model")
    assert b"requested-model" in data
    assert b"upstream-model" not in data


@pytest.mark.parametrize("name", FORMATS)
def test_without_one_the_providers_model_is_written(name: str) -> None:
    assert b"upstream-model" in written(name, "")


BROKEN = Message("user", (Text("fine"), Text("a\ud800b")))


@pytest.mark.parametrize("name", FORMATS)
def test_a_lone_surrogate_is_a_clear_error(name: str) -> None:
    request = ModelRequest(model="m", messages=(Message("user", (Text("fine"),)), BROKEN))
    expected = r"messages\[1\]\.parts\[1\] has a lone surrogate"
    with pytest.raises(WireError, match=expected):
        formats[name].encode_request(request)
    with pytest.raises(WireError, match=expected):
        RequestEncoder(formats[name]).write(request)
    with pytest.raises(WireError, match=r"messages\[0\]\.parts\[0\] has a lone surrogate"):
        formats[name].encode_response(ModelOutput(parts=(Text("a\udfff"),), id="x", model="m"))


@each_case("half", ["\ud800", "\\ud800"])
@each_case("name", ["anthropic", "gemini", "gemini-interactions"])
def test_a_lone_surrogate_in_arguments_is_replaced_where_they_are_an_object(name: str, half: str) -> None:
    call = ToolCallRequest("look", "call_1", f'{{"city": "Os{half}lo"}}')
    request = ModelRequest(model="m", messages=(Message("user", (Text("go"),)), Message("assistant", (call,))))
    data, losses = formats[name].encode_request(request)
    assert "Os\ufffdlo".encode() in data
    assert [loss.path for loss in losses if loss.what == "characters"] == ["messages[1].parts[0].arguments"]


@each_case("half", [b"\\ud800", b"\\udc00", b"\\uD83D x", b"\\ud83d\\ude00 \\ud800", b"\\ud800, and more"])
@each_case("name", FORMATS)
def test_an_escaped_lone_surrogate_in_a_body_is_a_clear_error(name: str, half: bytes) -> None:
    key = formats[name].spec.messages_key.encode()
    with pytest.raises(
        WireError, match=r"^not valid JSON: .u[dD][0-9a-fA-F]{3} at byte \d+ is a lone surrogate; send both"
    ):
        formats[name].read_request(b'{"' + key + b'":[{"role":"user","content":"' + half + b'"}]}')


def test_other_invalid_json_is_not_called_a_surrogate() -> None:
    with pytest.raises(WireError, match="truncated"):
        formats["openai-chat"].read_request(b'{"messages":[{"role":"user","content":"\\ud83d\\ude00')
