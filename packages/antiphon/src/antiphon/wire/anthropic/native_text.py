"""Blocks of Anthropic's own tools as text: their calls, and the results."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.wire.native_as_text import Block, Readers, label, object_of, process_output, sources, text_of


def _server_tool_use(block: Block) -> Iterator[str]:
    about = object_of(block.get("input"))
    only = next(iter(about.values())) if len(about) == 1 else about or None
    server = f"{block['server_name']}." if isinstance(block.get("server_name"), str) else ""
    yield label(f"{server}{block.get('name')}".replace("_", " "), only)


def _tool_result(block: Block) -> Iterator[str]:
    """The result of one of Anthropic's own tools: search results, a fetched page, the output of code, or an error."""
    content = block.get("content")
    if isinstance(content, list):
        if all(isinstance(entry, dict) and entry.get("type") == "text" for entry in content):
            yield f"{'Error: ' if block.get('is_error') else ''}{text_of(content)}"
        else:
            yield from sources(content)
        return
    result = object_of(content)
    if isinstance(result.get("error_code"), str):
        yield f"Error: {result['error_code']}"
    elif "stdout" in result or "stderr" in result:
        yield from process_output(result)
    elif isinstance(result.get("url"), str):
        source = object_of(object_of(result.get("content")).get("source"))
        text = source.get("data") if source.get("type") == "text" else None
        yield "\n".join(filter(None, (f"[{result['url']}]", text_of(text))))
    elif isinstance(result.get("content"), str):
        yield result["content"]


def _search_result(block: Block) -> Iterator[str]:
    yield from sources([block])


READERS: Readers = {
    "server_tool_use": _server_tool_use,
    "mcp_tool_use": _server_tool_use,
    "mcp_tool_result": _tool_result,
    "web_search_tool_result": _tool_result,
    "web_fetch_tool_result": _tool_result,
    "code_execution_tool_result": _tool_result,
    "bash_code_execution_tool_result": _tool_result,
    "text_editor_code_execution_tool_result": _tool_result,
    "search_result": _search_result,
}
