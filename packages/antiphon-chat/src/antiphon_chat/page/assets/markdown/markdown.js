// @ts-check
/* Draws Markdown that the server has parsed: a node is a text, or `[tag, attributes, child, …]`. Only the tags and attributes named
 * here are drawn, and text stays text, so nothing that a model or a tool wrote can become markup.
 *
 * `StreamedText` shows an answer that is being made: finished blocks are added once and stay, the open ones are replaced. */

import { button, element, fill, outwardLink } from "antiphon/dom.js";
import { showDiagram } from "./diagram.js";
import { highlighted } from "./highlight.js";
import { say } from "antiphon/texts.js";
import { copyText } from "../ui/notifications.js";

const TAGS = new Set("p span h2 h3 h4 h5 h6 ul ol li blockquote thead tbody tr th td em strong del br hr code sup".split(" "));
const LINES = new Set("ul ol table thead tbody tr blockquote".split(" "));
const MATH = new Set(
  (
    "math mrow mi mo mn mtext ms mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd " +
    "mstyle mpadded mphantom menclose mmultiscripts"
  ).split(" "),
);
const MATH_SPACE = "http://www.w3.org/1998/Math/MathML";

/**
 * The nodes of blocks. `outline` has the level of the heading before them: no level is left out, whatever an answer begins with,
 * because a screen reader goes through headings by their levels. They look as they were written.
 *
 * @param {any[]} blocks
 * @returns {Node[]}
 */
export function drawn(blocks, outline = { level: 1 }) {
  return blocks.map((block) => draw(block, outline));
}

/** The text of blocks, each on a line of its own. @param {any[]} blocks */
export function plainText(blocks) {
  return blocks.map((block) => words(block)).join("\n");
}

/** @returns {string} */
function words(/** @type {any} */ node) {
  if (typeof node === "string") return node;
  if (!Array.isArray(node)) return "";
  const inside = (Array.isArray(node[0]) ? node : node.slice(2)).map(words);
  return inside.join(Array.isArray(node[0]) || LINES.has(node[0]) ? "\n" : "");
}

/**
 * @param {any} block
 * @param {{ level: number }} outline
 * @returns {Node}
 */
function draw(block, outline) {
  if (typeof block === "string") return document.createTextNode(block);
  const [tag, attributes, ...children] = block;
  if (tag === "pre") return codeBlock(String(children[0] ?? ""), attributes.language ?? "");
  if (tag === "table") return table(children);
  if (tag === "a") return outwardLink(attributes.href, drawn(children));
  if (tag === "li" && attributes.task) return task(attributes.task === "done", children);
  if (MATH.has(tag)) return formula(tag, attributes, children);
  const name = /^h[2-6]$/.test(tag) ? heading(Number(tag[1]), outline) : TAGS.has(tag) ? tag : "span";
  const scope = tag === "th" ? "col" : null;
  return element(name, { class: attributes.class, start: attributes.start, scope }, drawn(children));
}

/** The tag of a heading: at most one level below the heading before it. */
function heading(level, outline) {
  outline.level = Math.min(level, outline.level + 1);
  return /** @type {"h2"} */ (`h${outline.level}`);
}

function codeBlock(text, language) {
  const label = language || say("text");
  const kind = element("span", {}, label);
  const copy = button(say("copy"), () => copyText(text), { class: "copy" });
  const code = element("pre", { tabindex: "0", "aria-label": label, role: "group" }, element("code", {}, highlighted(text, language)));
  const caption = element("figcaption", {}, kind, copy);
  const figure = element("figure", { class: "code" }, caption, code);
  if (language === "mermaid") withDiagram(text, { kind, copy, code });
  return figure;
}

/** Draw the diagram of a block of code in it; a button turns to its source and back. */
function withDiagram(text, { kind, copy, code }) {
  const place = element("div", { class: "drawing" });
  const turn = button(say("diagramSource"), () => show(code.hidden), { class: "copy", hidden: true });
  const show = (/** @type {boolean} */ isSource) => {
    code.hidden = !isSource;
    place.hidden = isSource;
    fill(turn, say(isSource ? "diagram" : "diagramSource"));
  };
  copy.before(turn);
  code.before(place);
  showDiagram(place, text, (isDrawn) => {
    if (!isDrawn) return fill(kind, `mermaid · ${say("noDiagram")}`);
    turn.hidden = false;
    return show(false);
  });
}

function table(children) {
  return element(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": say("table") },
    element("table", {}, drawn(children)),
  );
}

function task(isDone, children) {
  const box = element("span", {
    class: isDone ? "box done" : "box",
    role: "img",
    "aria-label": say(isDone ? "done" : "open"),
  });
  return element("li", { class: "task" }, box, element("div", {}, drawn(children)));
}

function formula(tag, attributes, children) {
  const node = document.createElementNS(MATH_SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (/^[a-z]+$/.test(name) && !/^(on|href|src|style)/.test(name)) node.setAttribute(name, String(value));
  }
  node.append(...drawn(children));
  return node;
}

/** An answer that is being made; `settled(text)` is called once for each finished block. */
export class StreamedText {
  /** @param {(text: string) => void} settled */
  constructor(settled) {
    this.node = element("div", { class: "prose" });
    this._settled = settled;
    this._outline = { level: 1 };
    /** @type {Node[]} */
    this._open = [];
  }

  /** Add the blocks that were finished, and replace the open ones. */
  update(settled, open) {
    for (const node of this._open) node.parentNode?.removeChild(node);
    for (const node of drawn(settled, this._outline)) {
      this.node.append(node);
      this._settled(node.textContent ?? "");
    }
    this._open = drawn(open, { ...this._outline });
    this.node.append(...this._open);
  }

  /** No more text will come. */
  close() {
    const text = this._open.map((node) => node.textContent ?? "").join("\n");
    if (text.trim()) this._settled(text);
    this._open = [];
  }
}

/** @type {{ texts: string[], nodes: HTMLElement[] }} */
let waiting = { texts: [], nodes: [] };

/** Text in a node: as it is at once, and as Markdown when the server has parsed it. Texts of the same moment go together. */
export function markdownText(api, text) {
  const node = element("div", { class: "plain" }, text);
  if (!waiting.texts.length) queueMicrotask(() => drawWaiting(api));
  waiting.texts.push(text);
  waiting.nodes.push(node);
  return node;
}

async function drawWaiting(api) {
  const { texts, nodes } = waiting;
  waiting = { texts: [], nodes: [] };
  const { blocks } = await api.post("markdown", { texts });
  nodes.forEach((node, index) => {
    node.className = "prose";
    fill(node, drawn(blocks[index]));
  });
}
