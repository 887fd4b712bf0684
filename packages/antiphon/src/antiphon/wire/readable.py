"""Blocks that only one format has, as text and images that every model reads.

Hosted tools (searches, shells, patches, MCP servers, computers) have blocks that only their own format accepts. Other formats
get what the model did and what came back as text, and screenshots as images, instead of nothing. The result depends on the block
alone, so earlier turns keep their bytes (L9). What cannot be put into words (encrypted state, references) stays a loss.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from antiphon.parts import Audio, Image, Native, Text, Thinking
from antiphon.wire.loss import Loss, foreign_block
from antiphon.wire.media import inline_base64, is_web_url
from antiphon.wire.request import Message, ModelRequest

P = TypeVar("P")
_Block = dict[str, Any]
_Reader = Callable[[_Block], Iterator[str | Image]]


def readable_parts(native: Native, losses: list[Loss], path: str, target: str) -> list[Text | Image]:
    """The parts that carry a block to another format, with the loss of everything else in it; none if nothing is readable."""
    block = native.data
    kind = block.get("type") if isinstance(block, dict) else None
    name = kind if isinstance(kind, str) else "native"
    reader = _READERS.get(native.origin, {}).get(_gemini_kind(block) if native.origin == "gemini" else name)
    try:
        pieces = list(reader(block)) if reader is not None else []
    except (RecursionError, UnicodeError):  # nested too deeply, or not Unicode
        pieces = []
    if not pieces:
        losses.append(foreign_block(path, name, native.origin))
        return []
    losses.append(Loss(path, name, f"{target} has no such block; sent as text"))
    texts = "\n".join(piece for piece in pieces if isinstance(piece, str))
    images = [piece for piece in pieces if isinstance(piece, Image)]
    return [*([Text(texts)] if texts else []), *images]


def transcribe(part: P, losses: list[Loss], path: str) -> P | Text:
    """Audio as its transcript, with the loss of the audio itself; any other part as it is."""
    if not isinstance(part, Audio):
        return part
    for extras in (part.native or {}).values():
        if isinstance(extras.get("transcript"), str) and extras["transcript"]:
            losses.append(Loss(path, "audio", "audio is not supported here; sent its transcript"))
            return Text(extras["transcript"])
    return part


def with_reasoning_as_text(request: ModelRequest, target: str) -> ModelRequest:
    """The request with readable reasoning of other formats as labelled text; the same object if it has none."""
    messages = [_reasoning_as_text(message, target) for message in request.messages]
    if all(map(operator.is_, messages, request.messages)):
        return request
    return structs.replace(request, messages=tuple(messages))


def _reasoning_as_text(message: Message, target: str) -> Message:
    parts = tuple(
        Text(f"[earlier reasoning]\n{part.text}\n[end of reasoning]")
        if isinstance(part, Thinking) and part.text and target not in (part.native or ())
        else part
        for part in message.parts
    )
    return message if all(map(operator.is_, parts, message.parts)) else structs.replace(message, parts=parts)


def _text(value: Any) -> str:
    """Text as it is; lists of text blocks joined; other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            filter(None, (_text(entry.get("text") if isinstance(entry, dict) else entry) for entry in value))
        )
    return "" if value is None else msgspec.json.encode(value).decode()


def _texts(value: Any, separator: str) -> str:
    """The texts of a list, or one text."""
    return separator.join(map(_text, value)) if isinstance(value, list) else _text(value)


def _label(name: Any, about: Any) -> str:
    text = _text(about)
    return f"[{name}: {text}]" if text else f"[{name}]"


def _object(value: Any) -> _Block:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[_Block]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _sources(results: Any) -> Iterator[str]:
    """Search results: the title or file, the address, and the text found."""
    for result in _list(results):
        title = result.get("title") or result.get("filename") or ""
        address = result.get("url") or result.get("source") or ""
        heading = " - ".join(str(piece) for piece in (title, address) if piece)
        text = _text(result.get("text") or result.get("content"))
        yield "\n".join(filter(None, (heading, text)))


def _web_search_call(item: _Block) -> Iterator[str]:
    action = _object(item.get("action"))
    query = action.get("query") or _texts(action.get("queries"), "; ") or action.get("url")
    yield _label("web search", query)
    yield from _sources(item.get("results") or action.get("sources"))


def _file_search_call(item: _Block) -> Iterator[str]:
    yield _label("file search", _texts(item.get("queries"), "; "))
    yield from _sources(item.get("results"))


def _code_interpreter_call(item: _Block) -> Iterator[str]:
    yield f"[code run]\n{_text(item.get('code'))}"
    for output in _list(item.get("outputs")):
        yield f"[output]\n{_text(output.get('logs') or output.get('url'))}"


def _shell_call(item: _Block) -> Iterator[str]:
    action = _object(item.get("action"))
    commands = action.get("commands") or action.get("command")
    separator = " " if item["type"] == "local_shell_call" else "\n"  # the words of one command, or several commands
    yield f"[shell]\n{_texts(commands, separator)}"


def _shell_output(item: _Block) -> Iterator[str]:
    output = item.get("output")
    if isinstance(output, str):
        yield f"[shell output]\n{output}"
    for result in _list(output):
        yield from _process_output(result)


def _process_output(result: _Block) -> Iterator[str]:
    output = "\n".join(filter(None, (_text(result.get("stdout")), _text(result.get("stderr")))))
    code = result.get("return_code", _object(result.get("outcome")).get("exit_code"))
    yield "[output" + (f", exit code {code}" if code is not None else "") + f"]\n{output}"


def _apply_patch_call(item: _Block) -> Iterator[str]:
    operation = _object(item.get("operation"))
    yield _label(str(operation.get("type") or "patch").replace("_", " "), operation.get("path"))
    if operation.get("diff"):
        yield _text(operation["diff"])


def _apply_patch_output(item: _Block) -> Iterator[str]:
    yield f"[patch {_text(item.get('status')) or 'applied'}]"
    if item.get("output"):
        yield _text(item["output"])


def _mcp_call(item: _Block) -> Iterator[str]:
    yield _label(f"{item.get('server_label', 'mcp')}.{item.get('name')}", item.get("arguments"))
    if item.get("error"):
        yield f"Error: {_text(item['error'])}"
    if item.get("output"):
        yield _text(item["output"])


def _computer_call(item: _Block) -> Iterator[str]:
    for action in [item["action"]] if isinstance(item.get("action"), dict) else _list(item.get("actions")):
        details = {name: value for name, value in action.items() if name != "type"}
        yield _label(f"computer {action.get('type')}", details or None)


def _computer_output(item: _Block) -> Iterator[str | Image]:
    output = _object(item.get("output"))
    url = output.get("image_url")
    if isinstance(url, str) and (image := _image_at(url)) is not None:
        yield "[screenshot]"
        yield image


def _image_at(url: str) -> Image | None:
    inline = inline_base64(url)
    if inline is not None and inline.data:
        return Image(inline.media_type, inline.data)
    return Image(url=url) if is_web_url(url) else None


def _image_generation_call(item: _Block) -> Iterator[str]:
    yield _label("image generated", item.get("revised_prompt"))  # a model's turn holds no images elsewhere


def _server_tool_use(block: _Block) -> Iterator[str]:
    about = _object(block.get("input"))
    only = next(iter(about.values())) if len(about) == 1 else about or None
    server = f"{block['server_name']}." if isinstance(block.get("server_name"), str) else ""
    yield _label(f"{server}{block.get('name')}".replace("_", " "), only)


def _tool_result(block: _Block) -> Iterator[str]:
    """The result of one of Anthropic's own tools: search results, a fetched page, the output of code, or an error."""
    content = block.get("content")
    if isinstance(content, list):
        if all(isinstance(entry, dict) and entry.get("type") == "text" for entry in content):
            yield f"{'Error: ' if block.get('is_error') else ''}{_text(content)}"
        else:
            yield from _sources(content)
        return
    result = _object(content)
    if isinstance(result.get("error_code"), str):
        yield f"Error: {result['error_code']}"
    elif "stdout" in result or "stderr" in result:
        yield from _process_output(result)
    elif isinstance(result.get("url"), str):
        source = _object(_object(result.get("content")).get("source"))
        text = source.get("data") if source.get("type") == "text" else None
        yield "\n".join(filter(None, (f"[{result['url']}]", _text(text))))
    elif isinstance(result.get("content"), str):
        yield result["content"]


def _search_result(block: _Block) -> Iterator[str]:
    yield from _sources([block])


def _gemini_kind(part: Any) -> str:
    names = ("executableCode", "codeExecutionResult") if isinstance(part, dict) else ()
    return next((name for name in names if isinstance(part.get(name), dict)), "")


def _executable_code(part: _Block) -> Iterator[str]:
    yield f"[code run]\n{_text(part['executableCode'].get('code'))}"


def _code_execution_result(part: _Block) -> Iterator[str]:
    yield f"[output]\n{_text(part['codeExecutionResult'].get('output'))}"


def _google_call(step: _Block) -> Iterator[str]:
    """A call of one of Google's tools: what it was given."""
    arguments = _object(step.get("arguments"))
    if isinstance(arguments.get("code"), str):
        yield f"[code run]\n{arguments['code']}"
        return
    about = next(iter(arguments.values())) if len(arguments) == 1 else arguments or None
    tool = f"{step['server_name']}." if isinstance(step.get("server_name"), str) else ""
    name = step.get("name") if isinstance(step.get("name"), str) else str(step["type"]).removesuffix("_call")
    yield _label(f"{tool}{name}".replace("_", " "), about)


def _google_result(step: _Block) -> Iterator[str]:
    """What one of Google's tools returned: text, sources, or any other JSON."""
    result = step.get("result")
    prefix = "Error: " if step.get("is_error") is True else ""
    if isinstance(result, str):
        yield f"{prefix}[output]\n{result}"
    elif isinstance(result, list) and all(isinstance(entry, dict) and entry.get("type") == "text" for entry in result):
        yield f"{prefix}{_text(result)}"
    elif result:
        yield f"{prefix}[output]\n{msgspec.json.encode(result).decode()}"


_GOOGLE_TOOLS = ("google_search", "google_maps", "url_context", "code_execution", "file_search", "mcp_server_tool")
_READERS: dict[str, dict[str, _Reader]] = {
    "gemini-interactions": {
        **{f"{tool}_call": _google_call for tool in (*_GOOGLE_TOOLS, "retrieval", "processing")},
        **{f"{tool}_result": _google_result for tool in (*_GOOGLE_TOOLS, "retrieval", "processing")},
    },
    "openai-responses": {
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
    },
    "anthropic": {
        "server_tool_use": _server_tool_use,
        "mcp_tool_use": _server_tool_use,
        "mcp_tool_result": _tool_result,
        "web_search_tool_result": _tool_result,
        "web_fetch_tool_result": _tool_result,
        "code_execution_tool_result": _tool_result,
        "bash_code_execution_tool_result": _tool_result,
        "text_editor_code_execution_tool_result": _tool_result,
        "search_result": _search_result,
    },
    "gemini": {"executableCode": _executable_code, "codeExecutionResult": _code_execution_result},
}
