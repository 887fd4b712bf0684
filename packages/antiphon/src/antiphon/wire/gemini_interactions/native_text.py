"""Steps of Google's own tools as text: their calls, and the results."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antiphon.wire.native_as_text import Block, Readers, label, object_of, text_of


def _google_call(step: Block) -> Iterator[str]:
    """A call of one of Google's tools: what it was given."""
    arguments = object_of(step.get("arguments"))
    if isinstance(arguments.get("code"), str):
        yield f"[code run]\n{arguments['code']}"
        return
    about = next(iter(arguments.values())) if len(arguments) == 1 else arguments or None
    tool = f"{step['server_name']}." if isinstance(step.get("server_name"), str) else ""
    name = step.get("name") if isinstance(step.get("name"), str) else str(step["type"]).removesuffix("_call")
    yield label(f"{tool}{name}".replace("_", " "), about)


def _google_result(step: Block) -> Iterator[str]:
    """What one of Google's tools returned: text, sources, or any other JSON."""
    result = step.get("result")
    prefix = "Error: " if step.get("is_error") is True else ""
    if isinstance(result, str):
        yield f"{prefix}[output]\n{result}"
    elif isinstance(result, list) and all(isinstance(entry, dict) and entry.get("type") == "text" for entry in result):
        yield f"{prefix}{text_of(result)}"
    elif result:
        yield f"{prefix}[output]\n{msgspec.json.encode(result).decode()}"


_TOOLS = (
    "google_search",
    "google_maps",
    "url_context",
    "code_execution",
    "file_search",
    "mcp_server_tool",
    "retrieval",
    "processing",
)
READERS: Readers = {f"{tool}_call": _google_call for tool in _TOOLS} | {
    f"{tool}_result": _google_result for tool in _TOOLS
}
