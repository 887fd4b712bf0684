"""Markdown of models and tools: one parser for the terminal and the page, `markdown-it-py` with HTML off.

`blocks_of` gives the page a tree to draw: a node is a text, or a list `[tag, attributes, child, …]`. The page draws known tags
and attributes only, so a text cannot become markup on either side. Besides CommonMark: tables, strikethrough, footnotes, task
lists, bare web addresses, `<br>`, and TeX between `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]` as MathML.

`StreamedMarkdown` parses a text that grows: blocks that cannot change any more are given once, the open block again and again.
Without the packages of `antiphon[chat]` a text is one block, as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, TypeAlias
from xml.etree import ElementTree

import msgspec

from antiphon.wire.rules import name_set

Node: TypeAlias = "str | list[Any]"

MAX_PARSED_CHARS = 200_000
_MAX_FORMULA_CHARS = 2_000
_ADDRESS = re.compile(r"https?://[^\s<>\"'`，。；：、）】》]+")
_ADDRESS_END = ".,;:!?*_~"
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WORD = re.compile(r"\w")
_TASK = re.compile(r"\[([ xX])\]\s+")
_SIDES = {"text-align:left": "left", "text-align:center": "middle", "text-align:right": "right"}
_TAGS = {"em": "em", "strong": "strong", "s": "del", "blockquote": "blockquote"}
MATH_TAGS = name_set(
    "math mrow mi mo mn mtext ms mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd mstyle "
    "mpadded mphantom menclose mmultiscripts"
)
"""The tags of a formula."""
MATH_ATTRIBUTES = name_set(
    "display displaystyle mathvariant stretchy fence separator form lspace rspace accent linethickness columnalign "
    "rowspacing columnspacing notation width height depth scriptlevel minsize maxsize"
)


@cache
def markdown_parser(*, for_terminal: bool = False) -> Any:
    """The parser. The terminal draws a text block by block, so a footnote is not gathered at the end there."""
    from markdown_it import MarkdownIt

    parser: Any = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, allow_labels=False, double_inline=True)
    parser.inline.ruler.before("escape", "bracket_math", _bracket_math)
    if not for_terminal:
        from mdit_py_plugins.footnote import footnote_plugin

        parser.use(footnote_plugin).disable("footnote_inline")
        parser.inline.ruler.before("autolink", "line_break", _line_break)
    return parser


def _bracket_math(state: Any, silent: bool) -> bool:
    """`\\(…\\)` and `\\[…\\]`, as many models write formulas."""
    opening = state.src[state.pos : state.pos + 2]
    if opening not in ("\\(", "\\["):
        return False
    end = state.src.find("\\)" if opening == "\\(" else "\\]", state.pos + 2, state.pos + 2 + _MAX_FORMULA_CHARS)
    if end < 0 or not _WORD.search(state.src, state.pos + 2, end):
        return False
    if not silent:
        token = state.push("math_inline" if opening == "\\(" else "math_inline_double", "math", 0)
        token.content = state.src[state.pos + 2 : end]
    state.pos = end + 2
    return True


def _line_break(state: Any, silent: bool) -> bool:
    found = _BREAK.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos = found.end()
    return True


def blocks_of(text: str) -> list[Node]:
    """The blocks of a text."""
    try:
        parser = markdown_parser()
    except ImportError:
        return [["p", {"class": "plain"}, text]]
    if len(text) > MAX_PARSED_CHARS:
        return [["p", {"class": "plain"}, text]]
    return _tree(parser.parse(text), _block)


@lru_cache(maxsize=1024)
def blocks_json(text: str) -> bytes:
    """The blocks of a text as JSON; those of recent texts are kept."""
    return msgspec.json.encode(blocks_of(text))


def _tree(tokens: Sequence[Any], single: Any) -> list[Node]:
    """Nested nodes of a flat list of tokens; `single` gives the nodes of a token that neither opens nor closes."""
    children: list[Node] = []
    around: list[tuple[Any, list[Node]]] = []
    for token in tokens:
        if token.nesting == 1:
            around.append((token, children))
            children = []
        elif token.nesting == -1:
            opened, outer = around.pop()
            outer.append(_closed(opened, children))
            children = outer
        else:
            children += single(token)
    return children


def _closed(opened: Any, children: list[Node]) -> Node:
    tag = opened.tag
    match opened.type:
        case "paragraph_open":
            return ["span", {"class": "line"}, *children] if opened.hidden else ["p", {}, *children]
        case "heading_open":  # the first level is that of the page
            return [f"h{min(int(tag[1]) + 1, 6)}", {"class": f"level-{tag[1]}"}, *children]
        case "list_item_open":
            return _list_item(children)
        case "ordered_list_open":
            return ["ol", {"start": opened.attrs["start"]} if opened.attrs.get("start", 1) != 1 else {}, *children]
        case "th_open" | "td_open":
            return [tag, {"class": _SIDES.get(str(opened.attrs.get("style")), "left")}, *children]
        case "link_open":
            return ["a", {"href": str(opened.attrs.get("href", ""))}, *children]
        case "footnote_block_open":
            return ["ol", {"class": "footnotes"}, *children]
        case "footnote_open":
            return ["li", {}, *children]
    return [_TAGS.get(tag, tag), {}, *children]


def _list_item(children: list[Node]) -> Node:
    first = children[0] if children else ""
    task = None
    if isinstance(first, list) and first[0] in ("p", "span") and len(first) > 2 and isinstance(first[2], str):
        task = _TASK.match(first[2])
        if task:
            first[2] = first[2][task.end() :]
    return ["li", {"task": "done" if task[1] != " " else "open"} if task else {}, *children]


def _block(token: Any) -> Iterator[Node]:
    match token.type:
        case "inline":
            yield from _joined(_tree(token.children or (), _inline))
        case "fence" | "code_block":
            from markdown_it.common.utils import unescapeAll

            language = unescapeAll(token.info).split(maxsplit=1)
            yield ["pre", {"language": language[0] if language else ""}, token.content.removesuffix("\n")]
        case "hr":
            yield ["hr", {}]
        case "math_block":
            yield ["p", {"class": "formula"}, _formula(token.content, "block")]
        case "footnote_anchor":
            return
        case _:
            yield token.content


def _inline(token: Any) -> Iterator[Node]:
    match token.type:
        case "text":
            yield token.content
        case "softbreak":
            yield "\n"
        case "hardbreak":
            yield ["br", {}]
        case "code_inline":
            yield ["code", {}, token.content]
        case "image":  # pictures of other hosts are not loaded, because that would reveal the reader
            address = str(token.attrs.get("src", ""))
            yield ["a", {"href": address, "class": "image"}, _plain_text(token.children or ()) or address]
        case "math_inline" | "math_inline_double":
            yield _formula(token.content, "inline" if token.type == "math_inline" else "block")
        case "footnote_ref":
            yield ["sup", {}, str(token.meta["id"] + 1)]
        case "footnote_anchor":
            return
        case _:
            yield token.content


def _plain_text(tokens: Sequence[Any]) -> str:
    """The text of inline tokens, without marks."""
    return "".join(_plain_text(token.children) if token.children else token.content for token in tokens)


def _joined(nodes: list[Node]) -> Iterator[Node]:
    """Adjacent texts as one, with the bare addresses in them as links; texts inside of links stay."""
    text = ""
    for node in nodes:
        if isinstance(node, str):
            text += node
            continue
        if text:
            yield from _with_links(text)
            text = ""
        if node[0] != "a" and len(node) > 2 and node[0] not in ("code", "math"):
            node[2:] = _joined(node[2:])
        yield node
    if text:
        yield from _with_links(text)


def _with_links(text: str) -> Iterator[Node]:
    place = 0
    for found in _ADDRESS.finditer(text):
        address = _trimmed(found[0])
        if len(address) <= len("https://"):
            continue
        if found.start() > place:
            yield text[place : found.start()]
        yield ["a", {"href": address}, address]
        place = found.start() + len(address)
    if place < len(text):
        yield text[place:]


def _trimmed(address: str) -> str:
    """The address without the punctuation of the sentence around it: a closing parenthesis belongs to it if it was opened."""
    surplus = address.count(")") - address.count("(")
    end = len(address)
    while end and (address[end - 1] in _ADDRESS_END or (address[end - 1] == ")" and surplus > 0)):
        surplus -= address[end - 1] == ")"
        end -= 1
    return address[:end]


def _formula(source: str, display: str) -> Node:
    """A formula as MathML; one that cannot be read stays TeX."""
    source = source.strip()
    if 0 < len(source) <= _MAX_FORMULA_CHARS:
        try:
            from latex2mathml.converter import convert

            return _math_node(ElementTree.fromstring(convert(source, display=display)))
        except (Exception, RecursionError):  # it raises many kinds for invalid TeX
            pass
    return ["code", {"class": "formula"}, source]


def _math_node(element: ElementTree.Element) -> Node:
    tag = element.tag.rpartition("}")[2]
    if tag not in MATH_TAGS:
        raise ValueError(tag)
    attributes = {name: value for name, value in element.attrib.items() if name in MATH_ATTRIBUTES}
    return [tag, attributes, *([element.text] if element.text else []), *map(_math_node, element)]


class MarkdownBlocks:
    """Splits streamed text into blocks; `finished` returns the blocks completed since the last call."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def feed(self, text: str) -> None:
        self._pieces.append(text)

    @property
    def open(self) -> str:
        """What is not finished yet."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def finished(self) -> list[str]:
        """The blocks that cannot change any more, each returned once."""
        text = self.open
        whole = text.rfind("\n") + 1
        starts = self._starts(text[:whole])
        if len(starts) < 2:
            return []
        lines = [f"{line}\n" for line in text[:whole].split("\n")[:-1]]
        edges = [0, *starts[1:]]
        self._pieces = ["".join(lines[edges[-1] :]) + text[whole:]]
        return ["".join(lines[start:end]) for start, end in pairwise(edges)]

    def rest(self) -> str:
        """End the text and return the remaining block."""
        text = self.open
        self._pieces = []
        return text

    def _starts(self, text: str) -> list[int]:
        """The line with which each block at the top level begins."""
        counted = text.replace("\r", " ")  # the parser would read it as a line end
        parsed = markdown_parser(for_terminal=True).parse(counted)
        return [token.map[0] for token in parsed if token.level == 0 and token.map is not None]


class StreamedMarkdown(MarkdownBlocks):
    """A text that grows, as nodes: `draw` returns the blocks that were finished since the last call, and the open ones."""

    def draw(self) -> tuple[list[Node], list[Node]]:
        """The blocks that cannot change any more, and the rest."""
        try:
            finished = "".join(self.finished())
        except ImportError:
            finished = ""
        return (blocks_of(finished) if finished else []), blocks_of(self.open)
