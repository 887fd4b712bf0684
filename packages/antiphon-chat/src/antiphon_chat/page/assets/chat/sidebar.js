// @ts-check
/* The list of conversations: pinned ones, then by date, newest first; by tag; and the full-text search. */

import { button, byId, element, fill } from "antiphon/dom.js";
import { showError } from "../ui/notifications.js";
import { formatTime, say } from "antiphon/texts.js";

const PAGE = 40;
const PAUSE = 180;

/** Draws the list into the page; `api` is the server. */
export class Sidebar {
  constructor(api) {
    this._api = api;
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
    for (const row of this._rows.filter((one) => !pinned.has(one.id))) {
      const group = query ? "" : groupOf(row.updated ?? row.created);
      groups.set(group, [...(groups.get(group) ?? []), row]);
    }
    const rows = [...groups].flatMap(([group, members]) => [
      group && element("li", { class: "group" }, element("h2", {}, say(group))),
      ...members.map((row) => this._row(row, query)),
    ]);
    const rest =
      this._total > this._rows.length && button(say("showMore"), () => this.load(this._rows.length), { class: "button quiet" });
    const empty = !rows.length && element("li", { class: "empty" }, say(query ? "noneFound" : "noneYet"));
    fill(this._node, rows, empty, rest && element("li", {}, rest));
  }

  _row(row, query) {
    const link = element(
      "a",
      {
        href: `#/c/${encodeURIComponent(row.id)}`,
        "aria-current": row.id === this._current ? "page" : null,
        onclick: () => (this._found = query ? { id: row.id, sequence: row.sequence_number, query } : null),
      },
      element("span", { class: "title" }, row.title || say("untitled")),
      row.excerpt && element("span", { class: "excerpt" }, marked(row.excerpt, query)),
      element(
        "span",
        { class: "when" },
        formatTime(row.updated ?? row.created),
        row.parent && element("span", { class: "tag" }, say(isBranch(row) ? "branchTag" : "forkOf")),
        (row.labels ?? []).map((label) => element("span", { class: "tag" }, label)),
      ),
    );
    return element("li", {}, link);
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
