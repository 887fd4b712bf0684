// @ts-check
/* Markdown into blocks: lines in, plain values out, nothing of the page in it.
 *
 * The same function reads a whole text and the tail of one that still grows: `from` and `to` of a block are lines, so the
 * streaming view knows which lines are settled. Everything else is a paragraph; nesting deeper than DEPTH is read as paragraphs. */

const DEPTH = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( +)(.*)|)$/;
const TASK = /^\[([ xX])\]\s+/;
const INDENTED = /^(?: {4}|\t)/;
const DELIMITERS = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** The blocks of a text. */
export function readBlocks(text, depth = 0) {
  return new Reader(text.replaceAll("\r\n", "\n").split("\n"), depth).blocks();
}

class Reader {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.at = 0;
  }

  blocks() {
    const blocks = [];
    while (this.at < this.lines.length) {
      const from = this.at;
      const block = this.block();
      if (block !== null) blocks.push({ ...block, from, to: this.at });
    }
    return blocks;
  }

  block() {
    const line = this.lines[this.at];
    if (!line.trim()) {
      this.at += 1;
      return null;
    }
    const fence = FENCE.exec(line);
    if (fence) return this.code(fence);
    const heading = HEADING.exec(line);
    if (heading) {
      this.at += 1;
      return { type: "heading", level: heading[1].length, text: heading[2] ?? "" };
    }
    if (RULE.test(line)) {
      this.at += 1;
      return { type: "rule" };
    }
    if (this.depth < DEPTH && QUOTE.test(line)) return this.quote();
    if (this.depth < DEPTH && ITEM.test(line)) return this.list();
    if (INDENTED.test(line)) return this.indented();
    return this.isTable() ? this.table() : this.paragraph();
  }

  /** @param {string[]} found */
  code([, mark, language]) {
    const inner = [];
    const closed = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
    for (this.at += 1; this.at < this.lines.length; this.at += 1) {
      if (closed.test(this.lines[this.at])) {
        this.at += 1;
        break;
      }
      inner.push(this.lines[this.at]);
    }
    return { type: "code", language: language.trim().split(/\s+/)[0], text: inner.join("\n") };
  }

  indented() {
    const inner = [];
    while (this.at < this.lines.length && (INDENTED.test(this.lines[this.at]) || !this.lines[this.at].trim())) {
      inner.push(this.lines[this.at].replace(INDENTED, ""));
      this.at += 1;
    }
    return { type: "code", language: "", text: inner.join("\n").trimEnd() };
  }

  quote() {
    const inner = [];
    while (this.at < this.lines.length && QUOTE.test(this.lines[this.at])) {
      inner.push(this.lines[this.at].replace(QUOTE, ""));
      this.at += 1;
    }
    return { type: "quote", blocks: readBlocks(inner.join("\n"), this.depth + 1) };
  }

  list() {
    const first = ITEM.exec(this.lines[this.at])?.[2] ?? "";
    const isOrdered = first.length > 1;
    const items = [];
    while (this.at < this.lines.length) {
      const item = ITEM.exec(this.lines[this.at]);
      if (item === null || RULE.test(this.lines[this.at])) break;
      if (item[2].length > 1 !== isOrdered || item[2].at(-1) !== first.at(-1)) break;
      items.push(this.item(item));
    }
    return { type: "list", isOrdered, start: isOrdered ? Number.parseInt(first, 10) : 1, items };
  }

  /** @param {string[]} found */
  item([, indent, mark, gap, rest]) {
    const width = indent.length + mark.length + Math.min(gap?.length ?? 1, 4);
    const inner = [rest ?? ""];
    let isOpen = Boolean(rest?.trim());
    for (this.at += 1; this.at < this.lines.length; this.at += 1) {
      const line = this.lines[this.at];
      if (!line.trim()) {
        const next = this.afterBlank();
        if (next >= this.lines.length || this.lines[next].search(/\S/) < width) break;
        inner.push("");
        this.at = next - 1;
        isOpen = false;
      } else if (line.search(/\S/) >= width) {
        inner.push(line.slice(width));
        isOpen = true;
      } else if (isOpen && !beginsBlock(line)) {
        inner.push(line.trimStart());
      } else {
        break;
      }
    }
    this.at = this.afterBlank();
    const task = TASK.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    return { isDone: task ? task[1] !== " " : null, blocks: readBlocks(inner.join("\n"), this.depth + 1) };
  }

  /** The first line from here on that is not blank. */
  afterBlank() {
    let next = this.at;
    while (next < this.lines.length && !this.lines[next].trim()) next += 1;
    return next;
  }

  isTable() {
    const [head, below] = [this.lines[this.at], this.lines[this.at + 1] ?? ""];
    return (
      head.includes("|") && DELIMITERS.test(below) && below.includes("-") && cells(head).length === cells(below).length
    );
  }

  table() {
    const head = cells(this.lines[this.at]);
    const sides = cells(this.lines[this.at + 1]).map((cell) =>
      cell.endsWith(":") ? (cell.startsWith(":") ? "middle" : "right") : "left",
    );
    const rows = [];
    for (this.at += 2; this.at < this.lines.length && this.lines[this.at].trim(); this.at += 1) {
      if (beginsBlock(this.lines[this.at])) break;
      const row = cells(this.lines[this.at]);
      rows.push(head.map((_, column) => row[column] ?? ""));
    }
    return { type: "table", head, sides, rows };
  }

  paragraph() {
    const inner = [this.lines[this.at].trim()];
    for (this.at += 1; this.at < this.lines.length; this.at += 1) {
      const line = this.lines[this.at];
      if (!line.trim() || (this.depth < DEPTH && beginsBlock(line)) || this.isTable()) break;
      inner.push(line.trim());
    }
    return { type: "paragraph", text: inner.join("\n") };
  }
}

function beginsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

/** The cells of a row; a bar that is escaped or in code does not part them. */
function cells(line) {
  const found = [];
  let cell = "";
  let isCode = false;
  for (let at = 0; at < line.length; at += 1) {
    const character = line[at];
    if (character === "\\" && line[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (character === "|" && !isCode) {
      found.push(cell.trim());
      cell = "";
    } else {
      if (character === "`") isCode = !isCode;
      cell += character;
    }
  }
  found.push(cell.trim());
  if (found[0] === "") found.shift();
  if (found.at(-1) === "") found.pop();
  return found;
}
