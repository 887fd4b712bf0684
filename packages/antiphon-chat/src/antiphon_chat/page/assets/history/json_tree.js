// @ts-check
/* A readable view of JSON: one line per value, nested values collapse, long texts are cut and a button shows the rest. No braces: the columns
 * are narrow, and depth is seen by the indent. */

import { button, element } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";

const CUT = 320;
const OPEN_DEPTH = 3;
const SHORT = 44;

/**
 * The nodes of a value, below the name it has.
 *
 * @param {unknown} value
 * @param {string | null} name
 * @returns {HTMLElement}
 */
export function jsonTree(value, name = null, depth = 0) {
  if (value !== null && typeof value === "object") return nested(value, name, depth);
  return element("div", { class: "json-line" }, label(name), scalar(value));
}

function label(name) {
  return name !== null && element("span", { class: "json-name" }, name);
}

function scalar(value) {
  if (typeof value !== "string") return element("span", { class: "json-other" }, JSON.stringify(value) ?? "null");
  const node = element(
    "span",
    { class: "json-text" },
    value.length > CUT ? `${value.slice(0, CUT)}…` : value || "\u201c\u201d",
  );
  if (value.length <= CUT) return node;
  return [
    node,
    button(
      say("more"),
      (event) => {
        node.textContent = value;
        event.target.remove();
      },
      { class: "json-more" },
    ),
  ];
}

/** An item of a list: its fields are shown under the list itself, a line between one item and the next. */
function listed(item, depth) {
  const isObject = item !== null && typeof item === "object" && !Array.isArray(item);
  const fields = isObject
    ? Object.entries(item).map(([key, inside]) => jsonTree(inside, key, depth + 1))
    : jsonTree(item, null, depth + 1);
  return element("div", { class: "json-item" }, fields);
}

function nested(value, name, depth) {
  const pairs = Array.isArray(value) ? value.map((inside, position) => [String(position), inside]) : Object.entries(value);
  const brief = JSON.stringify(value);
  if (brief.length <= SHORT && pairs.every(([, inside]) => inside === null || typeof inside !== "object")) {
    return element("div", { class: "json-line" }, label(name), element("span", { class: "json-other" }, brief));
  }
  const words = Array.isArray(value) ? (pairs.length === 1 ? "item" : "items") : pairs.length === 1 ? "field" : "fields";
  const isOpen = depth < OPEN_DEPTH;
  const inside = element("div", { class: "json-inside" });
  const draw = () => {
    if (!inside.childElementCount)
      inside.append(
        ...pairs.map(([key, item]) => (Array.isArray(value) ? listed(item, depth) : jsonTree(item, key, depth + 1))),
      );
  };
  if (isOpen) draw();
  return element(
    "details",
    { class: "json", open: isOpen, ontoggle: draw },
    element("summary", {}, label(name), element("span", { class: "json-count" }, say(words, { count: pairs.length }))),
    inside,
  );
}
