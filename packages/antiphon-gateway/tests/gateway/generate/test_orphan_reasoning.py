"""Codex after a cut stream: its next request has a reasoning item without the item that should follow it."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.wire import formats
from gateway.rig import rig
from providers.scripted_server import Reply

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "abc",
}
ITEMS: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}, REASONING, {"role": "user", "content": "Again"}]
REFUSAL = "Item 'rs_1' of type 'reasoning' was provided without its required following item."


def test_reasoning_without_a_following_item_is_not_written() -> None:
    wire = formats["openai-responses"]
    body, losses = wire.write_request(wire.read_request({"model": "gpt-5", "input": ITEMS}))
    assert [item.get("type", "message") for item in body["input"]] == ["message", "message"]
    assert [loss.path for loss in losses] == ["messages[1]"]
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    body, losses = wire.write_request(
        wire.read_request({"model": "gpt-5", "input": [ITEMS[0], REASONING, call, result]})
    )
    assert ([item.get("type") for item in body["input"]][1:], losses) == (
        ["reasoning", "function_call", "function_call_output"],
        [],
    )


def test_request_that_is_refused_for_it_is_sent_again_without_it() -> None:
    with rig(models={"gpt-5": ["openai-responses/gpt-5"]}) as running, running.client() as client:
        upstream = running.upstreams["openai-responses"]

        def refuse_orphans(reply: Reply) -> Reply:
            sent = upstream.bodies[-1]["input"]
            refused = any(item.get("type") == "reasoning" for item in sent)
            return upstream.error(400, "invalid_request", REFUSAL) if refused else reply

        upstream.faults.extend([refuse_orphans, refuse_orphans])
        got = client.ask("openai-responses", "gpt-5", {"input": ITEMS, "store": False}, streams=False)
        assert got.status == 200
        assert [len(body["input"]) for body in upstream.bodies] == [3, 2]
        assert "messages[1]" in got.headers["x-antiphon-losses"]
        assert msgspec.json.decode(got.body)["status"] == "completed"
