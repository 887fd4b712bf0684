"""Media that are inline in a data URL reach every API as its own kind of inline data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Audio, Document, Image
from antiphon.wire import FORMATS, Message, ModelRequest, formats
from antiphon.wire.media import decode_text, inline_source

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQK"
WAV = "UklGRgAAAABXQVZF"
MODELS = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash", "gemini-interactions": "gemini-2.5-flash"}


def written(name: str, part: Image | Audio | Document, model: str = "gpt-4o") -> tuple[bytes, list[Any]]:
    request = ModelRequest(model=MODELS.get(name, model), messages=(Message("user", (part,)),))
    data, losses = formats[name].encode_request(request)
    assert formats[name].check_request(data) == []
    return data, losses


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("head", ["data:image/png;base64,", "data:image/png;charset=utf-8;base64,"])
def test_an_image_in_a_data_url(name: str, head: str) -> None:
    data, losses = written(name, Image(url=head + PNG))
    assert PNG.encode() in data
    assert b"image/png" in data
    assert losses == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_document_in_a_data_url(name: str) -> None:
    data, losses = written(name, Document(url=f"data:application/pdf;base64,{PDF}"))
    assert PDF.encode() in data
    assert b"file_url" not in data
    assert b"fileUri" not in data
    assert losses == []


@pytest.mark.parametrize("name", ["openai-chat", "gemini", "gemini-interactions"])
def test_audio_in_a_data_url(name: str) -> None:
    data, losses = written(name, Audio(url=f"data:audio/wav;base64,{WAV}"), model="gpt-4o-audio-preview")
    assert WAV.encode() in data
    assert losses == []


def test_the_parts_of_inline_data() -> None:
    assert inline_source("", "AAAA", "") == ("", "AAAA")
    assert inline_source("image/gif", "", "data:image/png;base64,AAAA") == ("image/gif", "AAAA")
    assert inline_source("image/png", "", "https://x.y/z.png") == ("", "")
    assert inline_source("image/svg+xml", "", "data:image/svg+xml,%3Csvg") == ("", "")


@pytest.mark.parametrize(("data", "text"), [("SGk=", "Hi"), ("/w==", ""), ("nothing!", "")])
def test_text_in_base64(data: str, text: str) -> None:
    assert decode_text(data) == text


def test_text_in_a_data_url_is_sent_as_text() -> None:
    body = msgspec.json.decode(written("anthropic", Document(url="data:application/yaml;base64,YTogMQ=="))[0])
    assert body["messages"][0]["content"][0]["source"]["data"] == "a: 1"
