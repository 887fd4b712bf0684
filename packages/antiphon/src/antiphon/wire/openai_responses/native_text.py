"""Items of hosted tools as text: searches, code, shells, patches, MCP servers and computers."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.parts import Image
from antiphon.wire.native_as_text import (
    Block,
    Readers,
    image_at,
    label,
    object_of,
    objects_of,
    process_output,
    sources,
    text_of,
    texts_of,
)


def _web_search_call(item: Block) -> Iterator[str]:
    action = object_of(item.get("action"))
    query = action.get("query") or texts_of(action.get("queries"), "; ") or action.get("url")
    yield label("web search", query)
    yield from sources(item.get("results") or action.get("sources"))


def _file_search_call(item: Block) -> Iterator[str]:
    yield label("file search", texts_of(item.get("queries"), "; "))
    yield from sources(item.get("results"))


def _code_interpreter_call(item: Block) -> Iterator[str]:
    yield f"[code run]\n{text_of(item.get('code'))}"
    for output in objects_of(item.get("outputs")):
        yield f"[output]\n{text_of(output.get('logs') or output.get('url'))}"


def _shell_call(item: Block) -> Iterator[str]:
    action = object_of(item.get("action"))
    commands = action.get("commands") or action.get("command")
    separator = " " if item["type"] == "local_shell_call" else "\n"  # the words of one command, or several commands
    yield f"[shell]\n{texts_of(commands, separator)}"


def _shell_output(item: Block) -> Iterator[str]:
    output = item.get("output")
    if isinstance(output, str):
        yield f"[shell output]\n{output}"
    for result in objects_of(output):
        yield from process_output(result)


def _apply_patch_call(item: Block) -> Iterator[str]:
    operation = object_of(item.get("operation"))
    yield label(str(operation.get("type") or "patch").replace("_", " "), operation.get("path"))
    if operation.get("diff"):
        yield text_of(operation["diff"])


def _apply_patch_output(item: Block) -> Iterator[str]:
    yield f"[patch {text_of(item.get('status')) or 'applied'}]"
    if item.get("output"):
        yield text_of(item["output"])


def _mcp_call(item: Block) -> Iterator[str]:
    yield label(f"{item.get('server_label', 'mcp')}.{item.get('name')}", item.get("arguments"))
    if item.get("error"):
        yield f"Error: {text_of(item['error'])}"
    if item.get("output"):
        yield text_of(item["output"])


def _computer_call(item: Block) -> Iterator[str]:
    for action in [item["action"]] if isinstance(item.get("action"), dict) else objects_of(item.get("actions")):
        details = {name: value for name, value in action.items() if name != "type"}
        yield label(f"computer {action.get('type')}", details or None)


def _computer_output(item: Block) -> Iterator[str | Image]:
    output = object_of(item.get("output"))
    url = output.get("image_url")
    if isinstance(url, str) and (image := image_at(url)) is not None:
        yield "[screenshot]"
        yield image


def _image_generation_call(item: Block) -> Iterator[str]:
    yield label("image generated", item.get("revised_prompt"))  # a model's turn holds no images elsewhere


READERS: Readers = {
    "web_search_call": _web_search_call,
    "file_search_call": _file_search_call,
    "code_interpreter_call": _code_interpreter_call,
    "local_shell_call": _shell_call,
    "local_shell_call_output": _shell_output,
    "shell_call": _shell_call,
    "shell_call_output": _shell_output,
    "apply_patch_call": _apply_patch_call,
    "apply_patch_call_output": _apply_patch_output,
    "mcp_call": _mcp_call,
    "computer_call": _computer_call,
    "computer_call_output": _computer_output,
    "image_generation_call": _image_generation_call,
}
