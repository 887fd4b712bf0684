// @ts-check
/* Inline Markdown: one line of text to nodes, left to right.
 *
 * A mark is taken for what it opens only if its end is found; everything else is text, HTML too. That an end is missing is
 * remembered (`missing`) and labels are short, so ten thousand open brackets are not looked through once for each; nesting is
 * cut at DEPTH, where the rest is text. */

import { element, outwardLink } from "../ui/dom.js";

const DEPTH = 12;
const LONGEST_LABEL = 500;
const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const ADDRESS = /https?:\/\/[^\s<>"'`，。；：、）】》]+/y;
const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/y;
const TARGET = /\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
const MARKS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
const WORD = /[\p{L}\p{N}]/u;

/** The nodes of a piece of inline Markdown. */
export function inline(text, depth = 0) {
  if (depth >= DEPTH) return [text];
  return new Scanner(text, depth).nodes();
}

class Scanner {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.found = [];
    this.plainFrom = 0;
    this.missing = new Set();
  }

  nodes() {
    let at = 0;
    while (at < this.text.length) {
      SPECIAL.lastIndex = at;
      const special = SPECIAL.exec(this.text);
      if (special === null) break;
      at = this.take(special.index) ?? special.index + 1;
    }
    this.plain(this.text.length);
    return this.found;
  }

  /** Parse the element at `at` and return the position after it; `null` if there is none. */
  take(at) {
    const character = this.text[at];
    if (character === "\\") return this.escaped(at);
    if (character === "\n") return this.put(at, at + 1, element("br"));
    if (character === "`") return this.code(at);
    if (character === "h") return this.address(at);
    if (character === "<") return this.angled(at);
    if (character === "[") return this.link(at, at);
    if (character === "!") return this.text[at + 1] === "[" ? this.link(at, at + 1) : null;
    return this.emphasis(at);
  }

  put(from, to, node) {
    this.plain(from);
    this.found.push(node);
    this.plainFrom = to;
    return to;
  }

  plain(to) {
    if (to > this.plainFrom) this.found.push(this.text.slice(this.plainFrom, to));
    this.plainFrom = to;
  }

  escaped(at) {
    const next = this.text[at + 1];
    if (next === undefined || !/[!-/:-@[-`{-~\n]/.test(next)) return null;
    return this.put(at, at + 2, next === "\n" ? element("br") : next);
  }

  code(at) {
    let width = 1;
    while (this.text[at + width] === "`") width += 1;
    const fence = "`".repeat(width);
    if (this.missing.has(fence)) return at + width;
    for (let end = this.text.indexOf(fence, at + width); end >= 0; end = this.text.indexOf(fence, end + 1)) {
      let run = width;
      while (this.text[end + run] === "`") run += 1;
      if (run === width) {
        const inner = this.text.slice(at + width, end).replaceAll("\n", " ");
        return this.put(at, end + width, element("code", {}, /^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner));
      }
      end += run - 1;
    }
    this.missing.add(fence);
    return at + width;
  }

  address(at) {
    ADDRESS.lastIndex = at;
    const found = ADDRESS.exec(this.text);
    if (found === null) return null;
    let address = found[0].replace(/[.,;:!?*_~]+$/, "");
    while (address.endsWith(")") && address.split(")").length > address.split("(").length)
      address = address.slice(0, -1);
    return this.put(at, at + address.length, outwardLink(address, address));
  }

  angled(at) {
    ANGLED.lastIndex = at;
    const found = ANGLED.exec(this.text);
    return found && this.put(at, at + found[0].length, outwardLink(found[1], found[1]));
  }

  /** A link, or a picture: pictures of other hosts are not loaded (that would reveal the reader), so they are links. */
  link(at, bracket) {
    if (this.missing.has("]")) return null;
    let open = 0;
    let end = bracket;
    const farthest = Math.min(this.text.length, bracket + LONGEST_LABEL);
    for (; end < farthest; end += 1) {
      const character = this.text[end];
      if (character === "\\") end += 1;
      else if (character === "[") open += 1;
      else if (character === "]" && --open === 0) break;
    }
    if (end >= farthest) {
      if (farthest === this.text.length) this.missing.add("]");
      return null;
    }
    TARGET.lastIndex = end + 1;
    const target = TARGET.exec(this.text);
    if (target === null) return null;
    const words = this.text.slice(bracket + 1, end) || target[1];
    return this.put(at, end + 1 + target[0].length, outwardLink(target[1], inline(words, this.depth + 1)));
  }

  emphasis(at) {
    const character = this.text[at];
    const doubled = character + character;
    const mark = this.text.startsWith(doubled, at) ? doubled : character;
    if (!(mark in MARKS) || this.missing.has(mark)) return at + mark.length;
    const inside = at + mark.length;
    const before = this.text[at - 1] ?? " ";
    if (/\s/.test(this.text[inside] ?? " ") || (character === "_" && WORD.test(before))) return inside;
    const end = this.closing(mark, inside);
    if (end < 0) {
      this.missing.add(mark);
      return inside;
    }
    const inner = inline(this.text.slice(inside, end), this.depth + 1);
    return this.put(at, end + mark.length, element(MARKS[mark], {}, inner));
  }

  closing(mark, from) {
    const character = mark[0];
    for (let at = this.text.indexOf(mark, from); at >= 0; at = this.text.indexOf(mark, at)) {
      let run = at;
      while (this.text[run] === character) run += 1;
      const fits = mark.length === 1 ? (run - at) % 2 === 1 : run - at >= 2;
      const isWordEnd = !/\s/.test(this.text[at - 1]) && this.text[at - 1] !== "\\";
      if (fits && isWordEnd && at > from && !(character === "_" && WORD.test(this.text[run] ?? " ")))
        return run - mark.length;
      at = run;
    }
    return -1;
  }
}
