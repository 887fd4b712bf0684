// @ts-check
/* Markdown on the page: blocks become nodes, and a text that streams in is drawn without touching what is settled.
 *
 * `MarkdownView` keeps the source of the block that is still open. Each time words came (at most once a frame) it reads the
 * blocks of that source: all but the last are settled as soon as a whole line follows them, and are drawn once; the last is
 * redrawn. The cost of an answer is linear in its length, and a selection in settled text is kept. */

import { readBlocks } from "./blocks.js";
import { button, element, fill } from "../ui/dom.js";
import { highlighted } from "./highlight.js";
import { inline } from "./inline.js";
import { say } from "../ui/i18n.js";

/** The nodes of a whole text. */
export function markdown(text) {
  return readBlocks(text).map(drawn);
}

function drawn(block) {
  switch (block.type) {
    case "heading":
      // The first level is the page's own; headings of a model are below it.
      return element(/** @type {"h2"} */ (`h${Math.min(block.level + 1, 6)}`), { class: `level-${block.level}` }, inline(block.text));
    case "rule":
      return element("hr");
    case "code":
      return code(block);
    case "quote":
      return element("blockquote", {}, block.blocks.map(drawn));
    case "list":
      return list(block);
    case "table":
      return table(block);
    default:
      return element("p", {}, inline(block.text));
  }
}

function code(block) {
  const copied = button(say("copy"), async () => {
    await navigator.clipboard?.writeText(block.text).catch(() => {});
    copied.textContent = say("copied");
  });
  copied.className = "copy";
  return element(
    "figure",
    { class: "code" },
    element("figcaption", {}, element("span", {}, block.language || say("text")), copied),
    element(
      "pre",
      { tabindex: "0", "aria-label": block.language || say("text"), role: "group" },
      element("code", {}, highlighted(block.text, block.language)),
    ),
  );
}

function list(block) {
  const items = block.items.map((item) => {
    // An item of one paragraph is a line, and needs no paragraph's distance to the next.
    const inner = item.blocks.map((inside, position) =>
      inside.type === "paragraph" && position === 0
        ? element("span", { class: "line" }, inline(inside.text))
        : drawn(inside),
    );
    if (item.isDone === null) return element("li", {}, inner);
    const box = element("span", {
      class: item.isDone ? "box done" : "box",
      role: "img",
      "aria-label": say(item.isDone ? "done" : "open"),
    });
    return element("li", { class: "task" }, box, element("div", {}, inner));
  });
  return element(
    block.isOrdered ? "ol" : "ul",
    block.isOrdered && block.start !== 1 ? { start: block.start } : {},
    items,
  );
}

function table(block) {
  const row = (cells, name) =>
    element(
      "tr",
      {},
      cells.map((cell, column) =>
        element(name, { class: block.sides[column], scope: name === "th" ? "col" : null }, inline(cell)),
      ),
    );
  return element(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": say("table") },
    element(
      "table",
      {},
      element("thead", {}, row(block.head, "th")),
      element(
        "tbody",
        {},
        block.rows.map((cells) => row(cells, "td")),
      ),
    ),
  );
}

/** A text that grows. `node` is where it is shown; `settled(text)` is called once for each complete block. */
export class MarkdownView {
  /** @param {(text: string) => void} settled */
  constructor(settled = () => {}) {
    this.node = element("div", { class: "prose" });
    this.text = "";
    this._open = "";
    this._nodes = [];
    this._frame = 0;
    this._settled = settled;
  }

  append(text) {
    this.text += text;
    this._open += text;
    this._frame ||= requestAnimationFrame(() => this.draw());
  }

  /** Draw what has come in since the last frame. */
  draw() {
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    for (const node of this._nodes) node.remove();
    const blocks = readBlocks(this._open);
    const lines = this._open.split("\n");
    const last = blocks.at(-1);
    const isSure = last !== undefined && lines.length - 1 > last.from;
    const keep = isSure && blocks.length > 1 ? blocks.length - 1 : 0;
    const nodes = blocks.map(drawn);
    this.node.append(...nodes);
    for (const block of blocks.slice(0, keep)) this._settled(lines.slice(block.from, block.to).join("\n"));
    if (keep) this._open = lines.slice(last.from).join("\n");
    this._nodes = nodes.slice(keep);
  }

  /** The whole text at once, in the place of what was there. */
  set(text) {
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    this.text = text;
    this._open = "";
    this._nodes = [];
    fill(this.node, markdown(text));
  }

  /** No more words will come. */
  close() {
    this.draw();
    if (this._open.trim()) this._settled(this._open);
    this._open = "";
    this._nodes = [];
  }
}
