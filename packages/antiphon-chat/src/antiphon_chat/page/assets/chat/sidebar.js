// @ts-check
/* The list of conversations: pinned ones, then by date, newest first; by tag; and the full-text search. Branches hang below the
 * conversation that they are of. */

import { button, byId, element, fill, icon } from "antiphon/dom.js";
import { showError } from "../ui/notifications.js";
import { formatNumber, formatTime, say } from "antiphon/texts.js";

const PAGE = 40;
const PAUSE = 180;

/** Draws the list into the page; `api` is the server. `actions` has rename(row), pin(row) and remove(row). */
export class Sidebar {
  constructor(api, actions) {
    this._api = api;
    this._actions = actions;
    /** @type {Set<string>} conversations that are being deleted, until that can no longer be taken back */
    this._leaving = new Set();
    this._node = byId("conversations");
    this._field = byId("search");
    this._tags = byId("tags");
    this._tag = "";
    this._rows = [];
    this._pinned = [];
    /** @type {{ id: string, sequence: number, query: string } | null} the search result that was opened last */
    this._found = null;
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

  /** Leave a conversation out of the list, or show it again. */
  hide(id, isHidden) {
    if (isHidden) this._leaving.add(id);
    else this._leaving.delete(id);
    this._draw();
  }

  current(id) {
    this._current = id;
    this._draw();
  }

  async load(offset = 0) {
    const request = ++this._request;
    const query = this._field.value.trim();
    const wanted = {
      limit: String(PAGE),
      offset: String(offset),
      ...(query && { query }),
      ...(this._tag && { tag: this._tag }),
    };
    const words = new URLSearchParams(wanted);
    try {
      const found = await this._api.get(`conversations?${words}`);
      if (request !== this._request) return;
      this._rows = offset ? [...this._rows, ...found.conversations] : found.conversations;
      if (!offset) this._pinned = found.pinned ?? [];
      this._total = found.total ?? this._rows.length;
      this._draw();
    } catch (error) {
      showError(error);
    }
  }

  /** Give the search result that led to this conversation to `show`, once. */
  takeFound(id, show) {
    if (this._found?.id !== id) return;
    show(this._found);
    this._found = null;
  }

  _draw() {
    const query = this._field.value.trim();
    this._drawTags();
    const pinned = new Set(query || this._tag ? [] : this._pinned.map((row) => row.id));
    /** @type {Map<string, any[]>} */
    const groups = new Map(pinned.size ? [["group_pinned", this._pinned]] : []);
    const families = familiesOf(query ? [] : [...this._pinned, ...this._rows]);
    const below = new Set([...families.values()].flatMap((branches) => branches.map((row) => row.id)));
    for (const row of this._rows.filter((one) => !pinned.has(one.id) && !below.has(one.id))) {
      const group = query ? "" : groupOf(row.updated ?? row.created);
      groups.set(group, [...(groups.get(group) ?? []), row]);
    }
    const shown = (/** @type {any[]} */ rows) => rows.filter((row) => !this._leaving.has(row.id));
    const rows = [...groups].flatMap(([group, members]) =>
      shown(members).length
        ? [
            group && element("li", { class: "group" }, element("h2", {}, say(group))),
            ...shown(members).map((row) => this._row(row, query, shown(families.get(row.id) ?? []))),
          ]
        : [],
    );
    const rest =
      this._total > this._rows.length && button(say("showMore"), () => this.load(this._rows.length), { class: "button bare" });
    const empty = !rows.length && element("li", { class: "empty" }, say(query ? "noneFound" : "noneYet"));
    fill(this._node, rows, empty, rest && element("li", {}, rest));
  }

  _row(row, query, branches = []) {
    const link = this._link(row, query, branches.length);
    const isOpen = [row, ...branches].some(({ id }) => id === this._current);
    return element(
      "li",
      { class: "conversation" },
      link,
      this._menu(row),
      isOpen &&
        branches.length > 0 &&
        element(
          "ul",
          { class: "family", "aria-label": say("branchesOf", { title: row.title || say("untitled") }) },
          branches.map((branch) => element("li", { class: "conversation" }, this._branchLink(branch, row), this._menu(branch))),
        ),
    );
  }

  /** What can be done with a conversation without opening it. */
  _menu(row) {
    const title = row.title || say("untitled");
    /** @param {string} key @param {(row: any) => void} act */
    const item = (key, act, grave = "") =>
      element(
        "button",
        {
          type: "button",
          class: grave,
          onclick: () => {
            node.open = false;
            act(row);
          },
        },
        say(key),
      );
    const node = element(
      "details",
      { class: "more row-menu" },
      element("summary", { class: "icon-button", "aria-label": say("rowMenu", { title }), title: say("more") }, icon("more")),
      element(
        "div",
        { class: "menu" },
        item("rename", this._actions.rename),
        item(row.is_pinned ? "unpin" : "pin", this._actions.pin),
        item("delete", this._actions.remove, "grave"),
      ),
    );
    node.addEventListener("focusout", (event) => {
      if (!node.contains(/** @type {Node | null} */ (event.relatedTarget))) node.open = false;
    });
    return node;
  }

  _branchLink(row, parent) {
    const title = row.title && row.title !== parent.title ? row.title : say("branchTag");
    return element(
      "a",
      { href: `#/c/${encodeURIComponent(row.id)}`, "aria-current": row.id === this._current ? "page" : null },
      element(
        "span",
        { class: "line" },
        element("span", { class: "title" }, title),
        element("span", { class: "when" }, formatTime(row.updated ?? row.created)),
      ),
    );
  }

  _link(row, query, branchCount) {
    return element(
      "a",
      {
        href: `#/c/${encodeURIComponent(row.id)}`,
        "aria-current": row.id === this._current ? "page" : null,
        onclick: () => (this._found = query ? { id: row.id, sequence: row.sequence_number, query } : null),
      },
      element(
        "span",
        { class: "line" },
        element("span", { class: "title" }, row.title || say("untitled")),
        element(
          "span",
          { class: "when" },
          branchCount > 1
            ? say("branchCount", { count: formatNumber(branchCount) })
            : branchCount
              ? say("oneBranch")
              : formatTime(row.updated ?? row.created),
        ),
      ),
      row.excerpt && element("span", { class: "excerpt" }, marked(plain(row.excerpt), query)),
      (row.labels?.length || (row.parent && !isBranch(row)) || (query && isBranch(row))) &&
        element(
          "span",
          { class: "when" },
          row.parent && element("span", { class: "tag" }, say(isBranch(row) ? "branchTag" : "forkOf")),
          (row.labels ?? []).map((label) => element("span", { class: "tag" }, label)),
        ),
    );
  }

  /** The tags of the listed conversations, to narrow the list down to one. */
  _drawTags() {
    const known = new Set([...this._pinned, ...this._rows].flatMap((row) => row.labels ?? []));
    if (this._tag) known.add(this._tag);
    this._tags.hidden = !known.size;
    const choose = (tag) => () => {
      this._tag = tag;
      this.load();
    };
    fill(
      this._tags,
      ["", ...[...known].sort()].map((tag) =>
        button(tag || say("allTags"), choose(tag), { class: "chip", "aria-pressed": String(tag === this._tag) }),
      ),
    );
  }
}

/** The group of a day in the list. */
function groupOf(timestamp) {
  const today = new Date();
  today.setHours(0, 0, 0, 0);
  const days = (today.getTime() - new Date(timestamp).getTime()) / 86_400_000;
  if (days <= 0) return "group_today";
  if (days <= 1) return "group_yesterday";
  return days <= 7 ? "group_week" : days <= 30 ? "group_month" : "group_older";
}

/** The branches in a list by the conversation that they hang below: the nearest one in the list that is none itself. */
function familiesOf(rows) {
  const known = new Map(rows.map((row) => [row.id, row]));
  /** @type {Map<string, any[]>} */
  const families = new Map();
  for (const row of known.values()) {
    let root = row;
    for (let depth = 0; depth < 50 && isBranch(root) && known.has(root.parent); depth += 1) root = known.get(root.parent);
    if (root !== row) families.set(root.id, [...(families.get(root.id) ?? []), row]);
  }
  return families;
}

/** An excerpt without the marks of Markdown. */
const plain = (/** @type {string} */ text) =>
  text
    .replace(/\*+|__|`+|^#+ |^[>-] /gm, "")
    .replace(/\s*\|[\s|:-]*/g, " · ")
    .replace(/^(…?)[^\p{L}\p{N}…]+/u, "$1");

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
