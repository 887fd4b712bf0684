"""A conversation to read elsewhere: as Markdown, as JSON, or as one HTML file that can be shared.

The HTML file is self-contained and read-only. Everything in it that a person, a model or a tool wrote is text: tags come from the
tree of `chat/markdown.py` and an allow-list here, addresses by scheme. Its policy allows one style sheet, named by its digest,
and images inside the file: no script runs, and nothing is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from antiphon.history import (
    AgentHistorySnapshot,
    CompactionEntry,
    ConversationInfo,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import Image, Refusal, Text, Thinking, ToolCallRequest, text_of
from antiphon.text import one_line
from antiphon.wire.rules import name_set
from antiphon_chat.shared.markdown import MATH_ATTRIBUTES, MATH_TAGS, Node, blocks_of
from antiphon_chat.shared.uploads import IMAGE_TYPES

ExportFormat: TypeAlias = Literal["markdown", "json", "html"]
ENDINGS: Mapping[ExportFormat, str] = MappingProxyType({"markdown": ".md", "json": ".json", "html": ".html"})
"""How the name of a file in each format ends."""

_TAGS = name_set("p span h2 h3 h4 h5 h6 ul ol li blockquote table thead tbody tr th td em strong del br hr code sup")
_VOID = frozenset(("br", "hr"))
_SCHEMES = frozenset(("http", "https", "mailto"))

TEXTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "en": {"you": "You", "answer": "Answer", "thought": "Thought", "call": "Tool call", "result": "Result"},
        "zh": {"you": "你", "answer": "回答", "thought": "思考过程", "call": "工具调用", "result": "结果"},
    }
)

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 46rem; padding: 2rem 1.25rem 4rem; font: 16px/1.6 system-ui, sans-serif;
  background: light-dark(#faf8f4, #1d1b18); color: light-dark(#2a251f, #ece6dc); overflow-wrap: anywhere; }
h1 { font: 500 1.7rem/1.25 ui-serif, Georgia, serif; }
article { margin-top: 1.6rem; }
article > h2 { margin: 0 0 0.3rem; font-size: 0.82rem; font-weight: 600; color: light-dark(#6f665a, #a49b8f); }
.input > div { padding: 0.65rem 1rem; border-radius: 14px; background: light-dark(#f7ebe5, #33241d); white-space: pre-wrap; }
details { margin: 0.6rem 0; font-size: 0.9rem; }
summary { cursor: pointer; color: light-dark(#6f665a, #a49b8f); }
pre { padding: 0.8rem 1rem; overflow-x: auto; border-radius: 10px; background: light-dark(#f1ede5, #26231f); }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.875em; }
table { border-collapse: collapse; }
th, td { padding: 0.3rem 0.7rem; border: 1px solid light-dark(#e4dfd5, #38332d); text-align: start; }
img { max-width: 100%; border-radius: 10px; }
blockquote { margin: 0; padding-left: 1rem; border-left: 3px solid light-dark(#cfc8bb, #524b42); }
"""
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; img-src data:; base-uri 'none'; form-action 'none'"


def export(kind: ExportFormat, info: ConversationInfo, snapshot: AgentHistorySnapshot, language: str = "en") -> bytes:
    """A conversation as a file; what was rolled back is left out."""
    writers: Mapping[str, Callable[[ConversationInfo, AgentHistorySnapshot, Mapping[str, str]], bytes]] = {
        "markdown": _markdown,
        "json": _json,
        "html": _html,
    }
    return writers[kind](info, snapshot, TEXTS.get(language, TEXTS["en"]))


def _json(info: ConversationInfo, snapshot: AgentHistorySnapshot, _: Mapping[str, str]) -> bytes:
    """The effective entries as stored, in one JSON object."""
    facts = {"id": info.id, "title": info.title, "created": info.created, "updated": info.updated}
    return msgspec.json.format(msgspec.json.encode(facts | {"entries": list(snapshot.effective)}), indent=2) + b"\n"


def _markdown(info: ConversationInfo, snapshot: AgentHistorySnapshot, texts: Mapping[str, str]) -> bytes:
    blocks = [f"# {one_line(info.title)}"]
    for entry in snapshot.effective:
        match entry:
            case ModelInputEntry(channel="user"):
                blocks += [f"## {texts['you']}", text_of(entry.content), *_attachments(entry)]
            case ModelOutputEntry():
                blocks += [f"## {_speaker(entry, texts)}", *_output_markdown(entry, texts)]
            case ToolCallResultsEntry():
                blocks += [
                    f"**{texts['result']}** `{result.tool_name}`\n\n{_fenced(result.result_markdown)}"
                    for result in entry.results
                ]
            case CompactionEntry():
                blocks.append("\n".join(f"> {line}" for line in entry.summary.splitlines()))
    return ("\n\n".join(block for block in blocks if block.strip()) + "\n").encode()


def _output_markdown(entry: ModelOutputEntry, texts: Mapping[str, str]) -> Iterator[str]:
    for part in entry.content:
        match part:
            case Text() | Refusal():
                yield part.text
            case Thinking() if part.text:
                yield "\n".join(f"> {line}" for line in [f"*{texts['thought']}*", "", *part.text.splitlines()])
            case ToolCallRequest():
                yield f"**{texts['call']}** `{part.tool_name}`\n\n{_fenced(part.arguments, 'json')}"


def _attachments(entry: ModelInputEntry) -> Iterator[str]:
    for part in entry.content:
        if not isinstance(part, Text):
            name = getattr(part, "name", "") or getattr(part, "media_type", "") or type(part).__name__
            yield f"({name})"


def _fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _speaker(entry: ModelOutputEntry, texts: Mapping[str, str]) -> str:
    return entry.origin.name if entry.origin else texts["answer"]


def _html(info: ConversationInfo, snapshot: AgentHistorySnapshot, texts: Mapping[str, str]) -> bytes:
    title = escape(info.title)
    language = "zh" if texts is TEXTS["zh"] else "en"
    head = (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="content-security-policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    )
    body = "".join(_article(entry, texts) for entry in snapshot.effective)
    return f"{head}{body}</main>\n</body>\n</html>\n".encode()


def _article(entry: HistoryEntry, texts: Mapping[str, str]) -> str:
    match entry:
        case ModelInputEntry(channel="user"):
            words = escape(text_of(entry.content))
            shown = f"<div>{words}</div>" if words else ""
            pictures = "".join(_picture(part) for part in entry.content if isinstance(part, Image))
            return f'<article class="input"><h2>{escape(texts["you"])}</h2>{shown}{pictures}</article>\n'
        case ModelOutputEntry():
            parts = "".join(_output_html(entry, texts))
            return f"<article><h2>{escape(_speaker(entry, texts))}</h2>{parts}</article>\n"
        case ToolCallResultsEntry():
            return "".join(
                _folded(f"{texts['result']} {result.tool_name}", f"<pre>{escape(result.result_markdown)}</pre>")
                for result in entry.results
            )
        case CompactionEntry():
            return f"<blockquote>{''.join(map(_tag, blocks_of(entry.summary)))}</blockquote>\n"
        case _:
            return ""


def _output_html(entry: ModelOutputEntry, texts: Mapping[str, str]) -> Iterator[str]:
    for part in entry.content:
        match part:
            case Text() | Refusal():
                yield "".join(map(_tag, blocks_of(part.text)))
            case Thinking() if part.text:
                yield _folded(texts["thought"], "".join(map(_tag, blocks_of(part.text))))
            case ToolCallRequest():
                yield _folded(f"{texts['call']} {part.tool_name}", f"<pre>{escape(part.arguments)}</pre>")
            case Image():
                yield _picture(part)


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>\n"


def _picture(part: Image) -> str:
    if part.media_type not in IMAGE_TYPES or not part.data:
        return ""
    return f'<p><img alt="{escape(getattr(part, "name", "") or "")}" src="data:{part.media_type};base64,{escape(part.data)}"></p>'


def _tag(node: Node) -> str:
    """A node of the tree as HTML: known tags, and text."""
    if isinstance(node, str):
        return escape(node)
    name, attributes, *children = node
    if name == "pre":
        return f"<pre><code>{escape(str(children[0]) if children else '')}</code></pre>"
    inner = "".join(map(_tag, children))
    if name == "a":
        address = _address(attributes.get("href", ""))
        return f'<a href="{address}" rel="noopener noreferrer nofollow">{inner}</a>' if address else inner
    if name in _VOID:
        return f"<{name}>"
    if name in MATH_TAGS:
        return f"<{name}{_math_attributes(attributes)}>{inner}</{name}>"
    if name == "li" and (state := attributes.get("task")):
        return f"<li>{'☑' if state == 'done' else '☐'} {inner}</li>"
    return f"<{name}>{inner}</{name}>" if name in _TAGS else inner


def _math_attributes(attributes: Mapping[str, Any]) -> str:
    return "".join(f' {name}="{escape(str(value))}"' for name, value in attributes.items() if name in MATH_ATTRIBUTES)


def _address(text: str) -> str:
    """The address, escaped, if a link may go there; else empty."""
    try:
        is_allowed = urlsplit(text.strip()).scheme.lower() in _SCHEMES
    except ValueError:
        is_allowed = False
    return escape(text.strip()) if is_allowed else ""


def file_name(title: str, kind: ExportFormat) -> str:
    """A name for the file, from the title."""
    plain: Iterable[str] = (letter if letter.isalnum() else " " for letter in title)
    return ("-".join("".join(plain).split())[:60] or "conversation") + ENDINGS[kind]
