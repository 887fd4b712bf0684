"""Streams of the Messages API that we write, as the official SDK assembles them."""

from __future__ import annotations

import json
import sys

import pytest

from antiphon.wire import ProviderError
from antiphon.wire.delta import Failed
from support.local_server import LocalServer
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import streams, without_nulls
from wire.anthropic.stream_helpers import (
    assembled,
    events_of,
    meaning,
    output_of,
    read,
    written,
)
from wire.stream_grammar import FOREIGN

read_response = ANTHROPIC.read_response
StreamWriter = ANTHROPIC.stream_writer


def test_the_official_sdk_assembles_our_streams(capsys: pytest.CaptureFixture[str]) -> None:
    anthropic = pytest.importorskip("anthropic")
    count = 0
    # The SDK parses the arguments of a call again with every piece: the longest streams are left to the tests above.
    recorded = [data for _, data in streams() if len(data) < 12_000][::2]
    with LocalServer() as server, anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
        for deltas in [FOREIGN, *map(read, recorded)]:
            data, _ = written(deltas)
            server.answer(200, "text/event-stream", data)
            with client.beta.messages.stream(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            ) as stream:
                message = stream.get_final_message().to_dict(mode="json", warnings=False)
            stop_place, usage = assembled(events_of(data)), output_of(read(data)).usage
            if any(isinstance(part.get("input"), str) for part in stop_place["content"]):
                continue  # a call cut off by the limit of tokens: the SDK makes of it what it can
            assert without_nulls(message["content"]) == without_nulls(stop_place["content"])
            assert (message["id"], message["stop_reason"]) == (stop_place["id"], stop_place["stop_reason"])
            assert message["usage"]["output_tokens"] == (usage.completion_tokens if usage else 0)
            assert meaning(read_response(without_nulls(message)))["parts"] == meaning(output_of(read(data)))["parts"]
            assert json.loads(server.received)["stream"] is True
            count += 1
        server.answer(200, "text/event-stream", StreamWriter().write(Failed(ProviderError("Busy.", "overloaded"))))
        with (
            pytest.raises(anthropic.APIStatusError, match="Busy"),
            client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]) as stream,
        ):
            stream.get_final_message()
    with capsys.disabled():
        sys.stdout.write(f"\n{count} streams of ours assembled by the official SDK\n")
