// @ts-check
/* The list of conversations, newest first, and the full-text search. */

import { button, byId, element, fill } from "../ui/dom.js";
import { showError } from "../ui/notifications.js";
import { formatTime, say } from "../ui/i18n.js";

const PAGE = 40;
const PAUSE = 180;

/** Draws the list into the page; `api` is the server. */
export class Sidebar {
  constructor(api) {
    this._api = api;
    this._node = byId("conversations");
    this._field = byId("search");
    this._rows = [];
    this._total = 0;
    this._current = "";
    this._request = 0;
    this._timer = 0;
    this._field.addEventListener("input", () => {
      clearTimeout(this._timer);
      this._timer = setTimeout(() => this.load(), PAUSE);
    });
  }

  focusSearch() {
    this._field.focus();
    this._field.select();
  }

  current(id) {
    this._current = id;
    this._draw();
  }

  async load(offset = 0) {
    const request = ++this._request;
    const query = this._field.value.trim();
    const words = new URLSearchParams({ limit: String(PAGE), offset: String(offset), ...(query && { query }) });
    try {
      const found = await this._api.get(`conversations?${words}`);
      if (request !== this._request) return;
      this._rows = offset ? [...this._rows, ...found.conversations] : found.conversations;
      this._total = found.total ?? this._rows.length;
      this._draw();
    } catch (error) {
      showError(error);
    }
  }

  _draw() {
    const query = this._field.value.trim();
    const rows = this._rows.map((row) => {
      const isCurrent = row.id === this._current;
      return element(
        "li",
        {},
        element(
          "a",
          { href: `#/c/${encodeURIComponent(row.id)}`, "aria-current": isCurrent ? "page" : null },
          element("span", { class: "title" }, row.title || say("untitled")),
          row.excerpt && element("span", { class: "excerpt" }, marked(row.excerpt, query)),
          element(
            "span",
            { class: "when" },
            formatTime(row.updated ?? row.created),
            row.parent && element("span", { class: "tag" }, say(isBranch(row) ? "branchTag" : "forkOf")),
          ),
        ),
      );
    });
    const rest =
      this._total > this._rows.length &&
      button(say("showMore"), () => this.load(this._rows.length), { class: "button quiet" });
    const empty = !rows.length && element("li", { class: "empty" }, say(query ? "noneFound" : "noneYet"));
    fill(this._node, rows, empty, rest && element("li", {}, rest));
  }
}

const isBranch = (row) => row.tags?.includes(`branch:${row.parent}`);

/** A text with the words that were searched for marked. */
function marked(text, query) {
  const words = query
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!words.length) return [text];
  return text
    .split(new RegExp(`(${words.join("|")})`, "i"))
    .map((piece, position) => (position % 2 ? element("mark", {}, piece) : piece));
}
