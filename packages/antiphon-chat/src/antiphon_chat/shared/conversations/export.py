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
from contextvars import copy_context
from html import escape
from pathlib import Path
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
from antiphon.page.bundle import SHARED
from antiphon.parts import Image, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult, text_of
from antiphon.text import one_line, shorten
from antiphon.tools.builtin.plan_tools import plans_of
from antiphon.tools.builtin.plans import Plan
from antiphon.wire.rules import name_set
from antiphon_chat.language import current_language, translate, use_language
from antiphon_chat.shared.in_a_line import call_words
from antiphon_chat.shared.markdown import MATH_ATTRIBUTES, MATH_TAGS, Node, blocks_of
from antiphon_chat.shared.models import model_title
from antiphon_chat.shared.uploads import IMAGE_TYPES

ExportFormat: TypeAlias = Literal["markdown", "json", "html"]
ENDINGS: Mapping[ExportFormat, str] = MappingProxyType({"markdown": ".md", "json": ".json", "html": ".html"})
"""How the name of a file in each format ends."""

_TAGS = name_set("p span h2 h3 h4 h5 h6 ul ol li blockquote table thead tbody tr th td em strong del br hr code sup")
_MOST_WORDS = 100
_VOID = frozenset(("br", "hr"))
_SCHEMES = frozenset(("http", "https", "mailto"))

_TOKENS = re.search(r"^:root \{.*?^\}", (SHARED / "theme.css").read_text("utf-8"), re.MULTILINE | re.DOTALL)
assert _TOKENS is not None, "theme.css has the tokens of every page"
STYLE = f"\n{_TOKENS[0]}\n{Path(__file__).with_name('saved_page.css').read_text('utf-8')}"
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; img-src data:; base-uri 'none'; form-action 'none'"


def export(kind: ExportFormat, info: ConversationInfo, snapshot: AgentHistorySnapshot, language: str = "en") -> bytes:
    """A conversation as a file; what was rolled back is left out."""
    writers: Mapping[str, Callable[[ConversationInfo, AgentHistorySnapshot], bytes]] = {
        "markdown": _markdown,
        "json": _json,
        "html": _html,
    }

    def write() -> bytes:
        use_language("zh" if language == "zh" else "en")
        return writers[kind](info, snapshot)

    return copy_context().run(write)


def _json(info: ConversationInfo, snapshot: AgentHistorySnapshot) -> bytes:
    """The effective entries as stored, in one JSON object."""
    facts = {"id": info.id, "title": info.title, "created": info.created, "updated": info.updated}
    return msgspec.json.format(msgspec.json.encode(facts | {"entries": list(snapshot.effective)}), indent=2) + b"\n"


def _markdown(info: ConversationInfo, snapshot: AgentHistorySnapshot) -> bytes:
    blocks = [f"# {one_line(info.title)}"]
    for entry in snapshot.effective:
        match entry:
            case ModelInputEntry(channel="user"):
                blocks += [f"## {translate('You')}", text_of(entry.content), *_attachments(entry)]
            case ModelOutputEntry():
                blocks += [f"## {_speaker(entry)}", *_output_markdown(entry)]
            case ToolCallResultsEntry():
                blocks += [
                    f"**{translate('Result')}** `{result.tool_name}`\n\n{_fenced(result.result_markdown)}"
                    for result in entry.results
                ]
            case CompactionEntry():
                blocks.append("\n".join(f"> {line}" for line in entry.summary.splitlines()))
    return ("\n\n".join(block for block in blocks if block.strip()) + "\n").encode()


def _output_markdown(entry: ModelOutputEntry) -> Iterator[str]:
    for part in entry.content:
        match part:
            case Text() | Refusal():
                yield part.text
            case Thinking() if part.text:
                yield "\n".join(f"> {line}" for line in [f"*{translate('Thought')}*", "", *part.text.splitlines()])
            case ToolCallRequest():
                yield f"**{translate('Tool call')}** `{part.tool_name}`\n\n{_fenced(part.arguments, 'json')}"


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


def _speaker(entry: ModelOutputEntry) -> str:
    return model_title(entry.origin.name) if entry.origin else translate("Answer")


def _html(info: ConversationInfo, snapshot: AgentHistorySnapshot) -> bytes:
    title = escape(info.title)
    head = (
        f'<!doctype html>\n<html lang="{current_language()}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="content-security-policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    )
    results = {
        result.tool_call_id: result
        for entry in snapshot.effective
        if isinstance(entry, ToolCallResultsEntry)
        for result in entry.results
    }
    latest = {plan.id: (call_id, plan) for call_id, result in results.items() for plan in plans_of(result)}
    plans: dict[str, list[Plan]] = {}
    for call_id, plan in latest.values():  # each is drawn once, as it was last
        plans.setdefault(call_id, []).append(plan)
    body, speaker = "", ""
    for entry in snapshot.effective:
        body += _article(entry, results, plans, speaker)
        if isinstance(entry, ModelInputEntry | ModelOutputEntry):
            speaker = _speaker(entry) if isinstance(entry, ModelOutputEntry) else ""
    end = escape(translate("End of the saved page · made with Antiphon"))
    return f"{head}{body}<footer>{end}</footer>\n</main>\n</body>\n</html>\n".encode()


def _article(
    entry: HistoryEntry, results: dict[str, ToolCallResult], plans: Mapping[str, list[Plan]], before: str
) -> str:
    """A row; `before` is who spoke last and is not named again. A call takes its result from `results`; one that no call has
    taken stands alone."""
    match entry:
        case ModelInputEntry(channel="user"):
            words = escape(text_of(entry.content))
            shown = f"<div>{words}</div>" if words else ""
            pictures = "".join(_picture(part) for part in entry.content if isinstance(part, Image))
            return (
                f'<article class="input"><h2 class="who">{escape(translate("You"))}</h2>{shown}{pictures}</article>\n'
            )
        case ModelOutputEntry():
            parts = "".join(_output_html(entry, results, plans))
            speaker = _speaker(entry)
            name = "" if speaker == before else f'<h2 class="who">{escape(speaker)}</h2>'
            kind = "" if entry.response_markdown else ' class="step"'
            return f"<article{kind}>{name}{parts}</article>\n"
        case ToolCallResultsEntry():
            return "".join(
                _folded(f"{translate('Result')} {result.tool_name}", f"<pre>{escape(result.result_markdown)}</pre>")
                for result in entry.results
                if result.tool_call_id in results
            )
        case CompactionEntry():
            return f"<blockquote>{''.join(map(_tag, blocks_of(entry.summary)))}</blockquote>\n"
        case _:
            return ""


def _output_html(
    entry: ModelOutputEntry, results: dict[str, ToolCallResult], plans: Mapping[str, list[Plan]]
) -> Iterator[str]:
    for part in entry.content:
        match part:
            case Text() | Refusal():
                yield "".join(map(_tag, blocks_of(part.text)))
            case Thinking() if part.text:
                yield _folded(translate("Thought"), "".join(map(_tag, blocks_of(part.text))))
            case ToolCallRequest():
                result = results.pop(part.tool_call_id, None)
                found = f"<pre>{escape(result.result_markdown)}</pre>" if result else ""
                words = shorten(one_line(call_words(part, result)), _MOST_WORDS)
                yield _folded(words, f"{found}<pre>{escape(part.arguments)}</pre>")
                yield from map(_plan_html, plans.get(part.tool_call_id, ()))
            case Image():
                yield _picture(part)


def _plan_html(plan: Plan) -> str:
    tasks = "".join(
        f"<li>{'☑' if task.done else '☐'} {escape(task.title)}"
        + (f" <time>{escape(task.due)}</time>" if task.due else "")
        + (f"<br><small>{escape(task.notes)}</small>" if task.notes else "")
        + "</li>"
        for task in plan.tasks
    )
    done, count = plan.tasks_done, len(plan.tasks)
    progress = escape(translate("{done} of {all} done", done=done, all=count))
    return (
        f'<section class="plan"><h3>{escape(plan.title)}</h3>'
        + (f"<p>{escape(plan.goal)}</p>" if plan.goal else "")
        + f'<p><progress max="{max(1, count)}" value="{done}" aria-label="{progress}"></progress> {progress}</p>'
        + f"<ul>{tasks}</ul></section>\n"
    )


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
