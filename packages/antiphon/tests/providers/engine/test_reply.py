"""`ResponseReader`: what a body is shows in its first byte that is not blank, however many come before it."""

from __future__ import annotations

import time

import pytest

from antiphon.providers.engine.reply import ResponseReader
from antiphon.wire import formats
from antiphon.wire.delta import Assembler
from providers.sample_answers import STREAMS

CHAT = formats["openai-chat"]


@pytest.mark.parametrize("blank", [b" ", b"\n", b"\r\n", b"\xef\xbb\xbf"])
def test_blanks_that_keep_a_connection_alive_are_no_part_of_an_answer(blank: bytes) -> None:
    reader, assembler = ResponseReader(CHAT), Assembler()
    body = blank * 3 + STREAMS["openai-chat"]
    for at in range(len(body)):
        for delta in reader.feed(body[at : at + 1]):
            assembler.add(delta)
    assert assembler.is_finished
    assert reader.is_event_stream


def test_many_blanks_take_time_that_grows_as_they_do() -> None:
    """It was the square of it: 24 MB in pieces took minutes, in which nothing else ran."""
    reader, began = ResponseReader(CHAT), time.process_time()
    for _ in range(2000):
        assert reader.feed(b" " * 8192) == []
    assert time.process_time() - began < 10
