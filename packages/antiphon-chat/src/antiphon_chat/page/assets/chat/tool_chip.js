// @ts-check
/* A tool call as one line that expands: what was done outside; the result inside, and below it the arguments.
 *
 * A chip accepts updates in any order and more than once: from the log after a reload, from the events while it
 * runs. The inside is drawn when it is first opened, because a long conversation has hundreds. */

import { button, element, fill, icon } from "antiphon/dom.js";
import { highlighted } from "../markdown/highlight.js";
import { markdownText } from "../markdown/markdown.js";
import { withoutPlanData } from "../plans/plan_data.js";
import { formatDuration, hasText, say, sayCount } from "antiphon/texts.js";
import { copyText } from "../ui/notifications.js";

/** One call. `mediaOf(part)` makes the node of a picture or file in its result. */
export class ToolChip {
  constructor(call, api, mediaOf) {
    this.call = call;
    this._api = api;
    this._mediaOf = mediaOf;
    this._media = new Map();
    /** @type {{ text: string, node: HTMLElement } | null} */
    this._drawn = null;
    this.result = null;
    this._status = "pending";
    this._seconds = null;
    this._started = null;
    this._note = "";
    this._showsDetails = false;
    this._state = element("span", { class: "state" });
    this._name = element("span", { class: "name" });
    this._line = element("span", { class: "detail" });
    this._inside = element("div", { class: "inside" });
    this.node = element(
      "details",
      { class: "chip", ontoggle: () => this.node.open && this._open() },
      element("summary", {}, this._name, this._line, this._state, icon("chevron")),
      this._inside,
    );
    this._draw();
  }

  started(timestamp) {
    this._started = timestamp ? Date.parse(timestamp) : Date.now();
    if (this.result === null) this._status = "running";
    this._draw();
  }

  progress(message, fraction) {
    this._note = fraction === null || fraction === undefined ? message : `${message} ${Math.round(fraction * 100)} %`;
    this._draw();
  }

  finished(result, { seconds = null, timestamp = null, isCached = false } = {}) {
    this.result = result;
    this._status = result.status ?? "success";
    this._seconds ??=
      seconds ?? (this._started && timestamp ? Math.max(0, (Date.parse(timestamp) - this._started) / 1000) : null);
    this._note = isCached ? say("cached") : this._note;
    this._draw();
  }

  decided(decision, reason) {
    if (decision === "approve") return;
    const words = say({ deny: "denied", edit: "edited" }[decision]);
    this._note = reason ? `${words}: ${reason}` : words;
    this._draw();
  }

  /** The turn is over and this call got no result. */
  leftOpen() {
    if (this._status === "running") this._status = "pending";
    this._draw();
  }

  get text() {
    return (this.result?.content ?? []).map((part) => part.text ?? "").join("");
  }

  _draw() {
    this.node.dataset.status = this._status;
    const time = this._seconds === null ? "" : formatDuration(this._seconds);
    const words = {
      pending: () => say("pending"),
      running: () => say("running"),
      skipped: () => say("skipped"),
      success: () => (time ? say("success", { time }) : known ? "" : say("done")),
      failed: () => (time ? `${say("failedCall")}, ${time}` : say("failedCall")),
    };
    const found = searchOf(this.call);
    const isDone = this._status === "success";
    const count = found && isDone ? (this.text.match(/^\d+\. \*\*/gm)?.length ?? 0) : null;
    const done = isDone && hasText(`tool_${this.call.tool_name}`) ? say(`tool_${this.call.tool_name}`) : "";
    const known = found ? say(this.result ? "searched" : "searching") : done;
    fill(this._state, words[this._status]());
    fill(this._name, known || this.call.tool_name);
    this._name.classList.toggle("code", !known);
    const detail = found ? `“${found}”` : brief(this.call.arguments);
    const number = count === null ? "" : count ? sayCount("results", count) : say("noResults");
    fill(this._line, [detail, number, this._note].filter(Boolean).join(" · "));
    if (this.node.open) this._open();
  }

  _open() {
    const parts = [];
    if (this.result !== null) {
      const pictures = (this.result.content ?? [])
        .filter((part) => ["image", "audio", "document"].includes(part.type))
        .map((part) => this._shown(part));
      const copied = button(say("copy"), () => copyText(this.text), { class: "copy" });
      parts.push(
        element("div", { class: "between" }, element("p", { class: "part" }, say("result")), copied),
        element("div", { class: "result", tabindex: "0", role: "group", "aria-label": say("result") }, this._text(), pictures),
      );
    }
    parts.push(
      element(
        "details",
        { class: "json-details", ontoggle: (event) => (this._showsDetails = event.target.open) },
        element("summary", {}, say("callDetails", { tool: this.call.tool_name })),
        codeBlock(pretty(this.call.arguments), "json"),
      ),
    );
    fill(this._inside, parts);
    if (this._showsDetails || this.result === null) /** @type {any} */ (this._inside.lastChild).open = true;
  }

  /** The text of the result. It is made once: the server parses it. */
  _text() {
    const text = withoutPlanData(this.text);
    if (this._drawn === null || this._drawn.text !== text) this._drawn = { text, node: markdownText(this._api, text) };
    return this._drawn.node;
  }

  /** The node of a picture or file. It is made once: a large picture is fetched. */
  _shown(part) {
    const key = part.data || part.url || part.text || "";
    if (!this._media.has(key)) this._media.set(key, element("div", {}, this._mediaOf(part)));
    return this._media.get(key);
  }
}

function codeBlock(text, language) {
  return element(
    "pre",
    { class: "arguments", tabindex: "0", role: "group", "aria-label": say("arguments") },
    element("code", {}, highlighted(text, language)),
  );
}

/** JSON, indented; other text unchanged. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text || "{}"), null, 2);
  } catch {
    return text;
  }
}

/** What a search looks for; empty for another call. */
function searchOf(call) {
  if (!/search/i.test(call.tool_name)) return "";
  try {
    const { query } = JSON.parse(call.arguments || "{}");
    return typeof query === "string" ? query : "";
  } catch {
    return "";
  }
}

/** The first argument, for the outside of the chip. */
function brief(text) {
  try {
    const values = Object.values(JSON.parse(text || "{}"));
    const first = values.find((value) => typeof value === "string" || typeof value === "number") ?? values[0];
    if (first === undefined) return "";
    return String(typeof first === "object" ? JSON.stringify(first) : first).slice(0, 120);
  } catch {
    return text.slice(0, 120);
  }
}
