"""Coverage-guided fuzzing of everything that reads bytes from outside: `make fuzz`, or `python fuzz -max_total_time=60`.

Each input is given to every reader. A reader may refuse (with an error of ours) or keep what it does not understand; it may not
raise anything else, and what it read it must be able to write again. Needs atheris, which `make fuzz` installs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import atheris

with atheris.instrument_imports():
    import msgspec

    from antiphon.errors import AntiphonError
    from antiphon.history import SqliteStore, decode_entry, encode_entry
    from antiphon.repair import repair
    from antiphon.wire import Assembler, formats
    from antiphon.wire.streams.sse import SseReader

    for _name in formats:
        for _module in ("request", "response", "stream_reader", "stream_writer", "rules"):
            import_module(f"antiphon.wire.{_name.replace('-', '_')}.{_module}")

CHUNKS = (1, 7, 64)

SEEDS = {
    "chat": b'{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":'
    b'{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"x"}]}],"tools":[]}',
    "claude": b'{"model":"m","max_tokens":9,"system":"s","messages":[{"role":"user","content":[{"type":"tool_result",'
    b'"tool_use_id":"a","content":"x","is_error":true},{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}',
    "responses": b'{"model":"m","input":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call","call_id":"a",'
    b'"name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"x"}],"text":{"format":{"type":"text"}}}',
    "gemini": b'{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"AA=="}]},'
    b'{"parts":[{"functionResponse":{"name":"f","response":{"output":1}}}]}],"generationConfig":{"stopSequences":["x"]}}',
    "interactions": b'{"model":"m","system_instruction":"s","input":[{"type":"user_input","content":[{"type":"text","text":"x"},'
    b'{"type":"image","data":"AAAA","mime_type":"image/png"}]},{"type":"thought","signature":"AA==","summary":[]},'
    b'{"type":"function_call","id":"a","name":"f","arguments":{}},{"type":"function_result","call_id":"a","result":"x"}],'
    b'"generation_config":{"thinking_level":"low"},"steps":[{"type":"model_output","content":[]}],"status":"completed"}',
    "chat-stream": b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f",'
    b'"arguments":"{"}}]}}]}\n\ndata: {"choices":[{"delta":{},"finish_reason":"stop"}]}\r\n\r\ndata: [DONE]\n\n',
    "claude-stream": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\ndata: {"type":"message_stop"}\n\n',
    "responses-stream": b'data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}\n\n'
    b'data: {"type":"response.output_text.delta","output_index":0,"delta":"x"}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n',
    "interactions-stream": b'data: {"event_type":"interaction.created","interaction":{"id":"v1_1","status":"in_progress"}}\n\n'
    b'data: {"event_type":"step.start","index":0,"step":{"type":"function_call","id":"a","name":"f","arguments":{}}}\n\n'
    b'data: {"event_type":"step.delta","index":0,"delta":{"type":"arguments_delta","arguments":"{}"}}\n\n'
    b'data: {"event_type":"step.stop","index":0}\n\n'
    b'data: {"event_type":"interaction.completed","interaction":{"status":"requires_action","steps":[]}}\n\n',
    "gemini-stream": b'[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]},\n{"candidates":[{"finishReason":"STOP"}]}]',
    "entry": b'{"kind":"model_input","content":[{"type":"text","text":"x"}],"sequence_number":1}',
}


def try_bytes(data: bytes) -> None:
    """One input, everywhere."""
    _history(data)
    _sse(data)
    for wire in formats.values():
        for size in CHUNKS:
            _stream(wire.stream_reader(), data, size)
        wire.read_error(data, 400)
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return
    for wire in formats.values():
        wire.check_request(body, advisories=True)
        wire.read_error(body, None)
        if isinstance(body, dict):
            _body(body)


def _body(body: dict[str, object]) -> None:
    for source in formats.values():
        try:
            request = source.read_request(body)
        except AntiphonError:
            continue
        for name, target in formats.items():
            msgspec.json.encode(target.write_request(repair(request, name).request).body)
        try:
            output = source.read_response(body)
        except AntiphonError:
            continue
        for target in formats.values():
            msgspec.json.encode(target.write_response(output).body)


def _stream(reader: object, data: bytes, size: int) -> None:
    assembler = Assembler()
    deltas = [delta for start in range(0, len(data), size) for delta in reader.feed(data[start : start + size])]  # type: ignore[attr-defined]
    for delta in [*deltas, *reader.close()]:  # type: ignore[attr-defined]
        assembler.add(delta)
    assert assembler.error is not None or assembler.is_finished
    assert assembler.output is not None


def _sse(data: bytes) -> None:
    whole, pieces = SseReader(), SseReader()
    at_once = whole.feed(data) + whole.close()
    one_by_one = [event for byte in data for event in pieces.feed(bytes([byte]))] + pieces.close()
    assert at_once == one_by_one


def _history(data: bytes) -> None:
    try:
        entry = decode_entry(data)
        assert decode_entry(encode_entry(entry)) == entry
    except AntiphonError:
        pass
    with SqliteStore(":memory:") as store:
        try:
            store.import_lines(data.splitlines(keepends=True))
        except AntiphonError:
            assert store.count() == 0


def plant(folder: Path) -> None:
    """Give the fuzzer something to begin with."""
    for name, seed in SEEDS.items():
        (folder / name).write_bytes(seed)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            plant(Path(argument))
    atheris.Setup(sys.argv, try_bytes)
    atheris.Fuzz()
