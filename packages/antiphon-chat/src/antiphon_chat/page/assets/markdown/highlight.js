// @ts-check
/* Light highlighting of code: comments, strings, numbers and the words a language keeps to itself. One expression a family of
 * languages, read left to right; no grammar, so code that is cut off or wrong looks no worse than it is. */

import { element } from "antiphon/dom.js";

const LONGEST = 40_000;
const WORDS = {
  python: `
    and as assert async await break case class continue def del elif else except False finally for from global if
    import in is lambda match None nonlocal not or pass raise return True try while with yield self`,
  script: `
    abstract any as async await boolean break case catch class const continue debugger default delete do else enum
    export extends false finally for from function get if implements import in instanceof interface let new null
    number of private protected public readonly return set static string super switch this throw true try type
    typeof undefined var void while with yield`,
  curly: `
    abstract auto bool boolean break case catch char class const continue crate default defer do double else enum
    extends extern false final float fn for func go goto if impl implements import in int interface let long loop
    match mod mut namespace new nil null nullptr override package private protected pub public range return self
    short signed sizeof static struct super switch template this throw trait true try type typedef uint union
    unsigned use using var virtual void volatile where while`,
  shell: `
    case do done elif else esac export fi for function if in local return set then until while cd echo sudo`,
  query: `
    add all alter and as asc begin between by case check commit constraint create cross default delete desc distinct
    drop else end exists foreign from full group having if in index inner insert into is join key left like limit
    not null offset on or order outer primary references right rollback select set table then union unique update
    using values view when where with`,
  data: `
    true false null yes no on off`,
};
const FAMILIES = {
  python: "python py",
  script: "javascript js jsx typescript ts tsx mjs",
  shell: "bash sh shell zsh console fish dockerfile makefile",
  curly: "c h cpp c++ cs csharp java kotlin go rust rs swift php scala dart",
  query: "sql sqlite postgresql mysql",
  data: "json jsonc yaml yml toml ini",
};
const FAMILY = new Map(Object.entries(FAMILIES).flatMap(([family, names]) => names.split(" ").map((name) => [name, family])));
const HASHED = new Set(["python", "shell", "data"]);
const STRING = `"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?`;

const expressions = new Map();

function expression(family) {
  if (!expressions.has(family)) {
    const comment = HASHED.has(family)
      ? "#[^\\n]*"
      : family === "query"
        ? "--[^\\n]*|/\\*[^]*?(?:\\*/|$)"
        : "//[^\\n]*|/\\*[^]*?(?:\\*/|$)";
    const long =
      family === "python" ? `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|` : family === "script" ? "`(?:\\\\.|[^`\\\\])*`?|" : "";
    expressions.set(
      family,
      new RegExp(`(?<comment>${comment})|(?<string>${long}${STRING})|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)`, "g"),
    );
  }
  return expressions.get(family);
}

/** The nodes of a piece of code. */
export function highlighted(text, language) {
  const family = FAMILY.get(language.toLowerCase());
  if (family === undefined || text.length > LONGEST) return [text];
  const kept = new Set(WORDS[family].trim().split(/\s+/));
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(expression(family))) {
    const { comment, string, number, word } = found.groups;
    const isKept = word !== undefined && kept.has(family === "query" ? word.toLowerCase() : word);
    const name = comment ? "comment" : string ? "string" : number ? "number" : isKept ? "keyword" : null;
    if (name === null) continue;
    // A string before a colon is the name of a field.
    const isField =
      name === "string" &&
      family === "data" &&
      /^\s*:/.test(text.slice(found.index + found[0].length, found.index + found[0].length + 20));
    nodes.push(text.slice(from, found.index), element("span", { class: `code-${isField ? "field" : name}` }, found[0]));
    from = found.index + found[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}
