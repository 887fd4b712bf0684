"""What comes from outside is text: script in it is inert wherever it is shown, and Markdown is drawn and nothing else.

The expected nodes of the Markdown cases are written as HTML, as short as the page's own attributes allow: they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import call
from page.rig import served
from page.window import Window, window
from shared.hostile_markdown import cases

HOSTILE = (
    "<img src=x onerror=\"window.hurt='image'\"><script>window.hurt='script'</script>"
    "<svg/onload=\"window.hurt='svg'\"><iframe srcdoc=\"<script>parent.hurt='frame'</script>\"></iframe>"
    "[run](javascript:window.hurt='link') [data](data:text/html,<script>hurt</script>) ![x](javascript:hurt())"
    ' <a href="javascript:hurt()" onclick="window.hurt=\'click\'">here</a> <javascript:hurt()>'
)

CASES = [
    ("plain *soft* **strong** ~~gone~~", "<p>plain <em>soft</em> <strong>strong</strong> <del>gone</del></p>"),
    ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
    ("**bold *both* bold**", "<p><strong>bold <em>both</em> bold</strong></p>"),
    ("a `<b>` & \\*not\\*", "<p>a <code>&lt;b&gt;</code> &amp; *not*</p>"),
    ("# One\n## Two", "<h2>One</h2><h3>Two</h3>"),
    ("- a\n- b\n  - c", "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul></li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>'),
    ("> said\n\nand", "<blockquote><p>said</p></blockquote><p>and</p>"),
    ("one\ntwo<br>three", "<p>one\ntwo<br>three</p>"),
    ("---", "<hr>"),
    (
        "| a | b |\n|---|--:|\n| 1 | `x\\|y` |",
        "<div><table><thead><tr><th>a</th><th>b</th></tr></thead>"
        "<tbody><tr><td>1</td><td><code>x|y</code></td></tr></tbody></table></div>",
    ),
    ("[a](https://example.org/x_(y))", '<p><a href="https://example.org/x_(y)">a</a></p>'),
    ("see https://example.org/a.", '<p>see <a href="https://example.org/a">https://example.org/a</a>.</p>'),
    ("[a](javascript:b) [c](/d)", "<p>[a](javascript:b) <span>c</span></p>"),
    ("$x^2$", "<p><math><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math></p>"),
    ("**`**kwargs`**", "<p><strong><code>**kwargs</code></strong></p>"),
    ("![a](https://example.org/b.png)", '<p><a href="https://example.org/b.png">a</a></p>'),
    ("<b>no</b>", "<p>&lt;b&gt;no&lt;/b&gt;</p>"),
]

DRAW = """async (text) => {
  const { drawn } = await import("/chat/page/markdown/markdown.js");
  const { Api } = await import("/chat/page/ui/api.js");
  const { blocks } = await new Api(() => {}).post("markdown", { texts: [text] });
  const holder = document.createElement("div");
  holder.append(...drawn(blocks[0]));
  for (const node of holder.querySelectorAll("*"))
    for (const name of node.getAttributeNames()) if (!["href", "start"].includes(name)) node.removeAttribute(name);
  return holder.innerHTML;
}"""


@ap.tool(effect="read")
def look(what: str) -> str:
    "Look at something."
    return f"{what}: {HOSTILE}"


def hostile(context: Sequence[Any], options: ProviderCallOptions) -> Any:
    if type(context[-1]).__name__ == "ToolCallResultsEntry":
        return f"Done. {HOSTILE}\n\n```html\n{HOSTILE}\n```\n\n| {HOSTILE} |\n|---|\n| x |"
    return [call("look", what=HOSTILE), call("create_plan", title=HOSTILE[:180], goal=HOSTILE, tasks=[HOSTILE[:150]])]


@pytest.fixture(scope="module")
def shown(chromium: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    path: Path = tmp_path_factory.mktemp("injection") / "chats.db"
    model = ap.FunctionModel(hostile, name="hostile")
    with served(path, model, tools=[look], with_builtin=True) as browser, window(chromium, browser.port) as shown:
        shown.open()
        yield shown


def is_unhurt(shown: Window) -> None:
    page = shown.page
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main iframe, main script, main svg[onload], #sidebar img").count() == 0
    assert page.locator('a[href^="javascript"], a[href^="data"], [onclick], [onerror]').count() == 0


@pytest.mark.journey
def test_script_is_inert_in_everything_that_comes_from_outside(shown: Window) -> None:
    shown.open()
    shown.ask(HOSTILE)
    expect(shown.thread.locator(".plan h2")).to_contain_text("<img src=x")
    for chip in shown.thread.locator(".chip").all():
        chip.locator("summary").click()
        expect(chip.locator(".result")).to_contain_text("<img src=x")
    expect(shown.page.locator("#conversations .title").first).to_contain_text("<img")
    is_unhurt(shown)
    shown.page.locator("#search").fill("onerror")
    expect(shown.page.locator("#conversations .excerpt").first).to_be_visible()
    is_unhurt(shown)
    shown.page.locator("#search").fill("")
    shown.page.locator("#to-history").click()
    for entry in shown.page.locator(".entry > button").all():
        entry.click()
    expect(shown.page.locator(".rendered").first).to_contain_text("<img src=x")
    is_unhurt(shown)


@pytest.mark.journey
def test_markdown_becomes_these_nodes(shown: Window) -> None:
    assert {source: shown.page.evaluate(DRAW, source) for source, _ in CASES} == dict(CASES)


DRAW_ALL = """async (texts) => {
  const { drawn } = await import("/chat/page/markdown/markdown.js");
  const { Api } = await import("/chat/page/ui/api.js");
  const { blocks } = await new Api(() => {}).post("markdown", { texts });
  const place = document.createElement("div");
  document.body.append(place);
  const wrong = [];
  blocks.forEach((nodes, index) => {
    place.replaceChildren(...drawn(nodes));
    for (const node of place.querySelectorAll("*")) {
      const names = node.getAttributeNames();
      const isForeign = /^(script|img|svg|iframe|object|embed|video|audio|style|link|base|meta|form)$/i.test(node.localName);
      const isFollowed = node.localName === "a" && !["http:", "https:", "mailto:"].includes(node.protocol);
      if (isForeign || isFollowed || names.some((name) => /^(on|style$|src|formaction$)/i.test(name)))
        wrong.push([texts[index], node.outerHTML]);
      node.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    }
  });
  place.remove();
  return { count: blocks.length, wrong: wrong.slice(0, 5), hurt: window.hurt ?? null };
}"""


def draw_hostile(shown: Window, texts: list[str]) -> None:
    shown.open()
    count = 0
    for start in range(0, len(texts), 500):
        drawn = shown.page.evaluate(DRAW_ALL, texts[start : start + 500])
        assert (drawn["wrong"], drawn["hurt"]) == ([], None)
        count += drawn["count"]
    assert count == len(texts)


def test_hostile_markdown_is_inert_in_the_browser(shown: Window) -> None:
    draw_hostile(shown, cases())
