// @ts-check
/* The request body for each provider: one version of the history, written for each API, side by side.
 *
 * The columns show the bodies themselves. Each turn is a card, and those that were not in the body of the previous
 * version are marked as new: the reader sees the log grow in all formats, and that earlier parts never change. Losses and
 * repairs are listed at the top of each column. On a phone the columns are tabs. */

import { element, fill, icon } from "antiphon/dom.js";
import { jsonTree } from "./json_tree.js";
import { say, formatSize } from "antiphon/texts.js";

const NAMES = {
  "openai-chat": "OpenAI Chat",
  "openai-responses": "OpenAI Responses",
  anthropic: "Anthropic Messages",
  gemini: "Gemini",
  "gemini-interactions": "Gemini Interactions",
};
const TURNS = ["messages", "input", "contents"];

/** Draws into `node`; `load(at)` gives the rendered formats of a version. */
export class Renderings {
  constructor(node, load) {
    this._load = load;
    this._shown = "";
    this._at = 0;
    this._heading = element("header", { class: "renderings-head" });
    this._tabs = element("div", { class: "tabs", role: "tablist" });
    this._columns = element("div", { class: "columns" });
    fill(node, this._heading, this._tabs, this._columns);
  }

  async show(at) {
    this._at = at;
    fill(this._heading, element("h2", {}, say("whatSent")), element("p", {}, say("whatSentText", { at })));
    this._tabs.setAttribute("aria-label", say("provider"));
    const [here, before] = await Promise.all([this._load(at), at > 1 ? this._load(at - 1).catch(() => null) : null]);
    if (at !== this._at) return;
    const formats = Object.entries(here.formats);
    if (!formats.some(([name]) => name === this._shown)) this._shown = formats[0]?.[0] ?? "";
    fill(
      this._columns,
      formats.map(([name, rendered]) => column(name, rendered, before?.formats[name])),
    );
    fill(
      this._tabs,
      formats.map(([name]) => this._tab(name)),
    );
    this._select(this._shown);
    for (const body of this._columns.querySelectorAll(".rendered-body")) {
      const first = /** @type {HTMLElement | null} */ (body.querySelector(".turn-card.new"));
      body.scrollTop = first ? Math.max(0, first.offsetTop - 12) : body.scrollHeight;
    }
  }

  _tab(name) {
    return element(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `column-${name}`,
        onclick: () => this._select(name),
        onkeydown: (event) => {
          const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!step) return;
          const all = /** @type {HTMLElement[]} */ ([...this._tabs.children]);
          const next = all[(all.indexOf(event.currentTarget) + step + all.length) % all.length];
          this._select(next.id.slice("tab-".length));
          next.focus();
        },
      },
      NAMES[name] ?? name,
    );
  }

  _select(name) {
    this._shown = name;
    for (const tab of /** @type {HTMLElement[]} */ ([...this._tabs.children])) {
      const isShown = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
    }
    for (const node of this._columns.children) node.classList.toggle("shown", node.id === `column-${name}`);
  }
}

function column(name, rendered, before) {
  const { losses = [], repairs = [], violations = [] } = rendered;
  return element(
    "section",
    { class: "rendered", id: `column-${name}`, "aria-label": NAMES[name] ?? name },
    element(
      "header",
      {},
      element("h3", {}, NAMES[name] ?? name),
      element(
        "p",
        { class: "facts" },
        element("span", { class: "model-name" }, rendered.model),
        element("span", { class: "number" }, formatSize(rendered.bytes)),
      ),
      element(
        "div",
        { class: "marks" },
        violations.length
          ? mark("violations", "violation", violations, "broken", (found) => [found.rule, found.path, found.message])
          : fine(say("valid")),
        losses.length
          ? mark("losses", "loss", losses, "lost", (loss) => [loss.what, loss.path, loss.why])
          : fine(say("noLoss")),
        repairs.length > 0 &&
          mark("repairs", "repair", repairs, "repaired", (repair) => [
            repair.kind.replaceAll("_", " "),
            `messages[${repair.message}]`,
            repair.detail,
          ]),
      ),
    ),
    element(
      "div",
      { class: "rendered-body", tabindex: "0", role: "group", "aria-label": NAMES[name] ?? name },
      body(rendered.body, before?.body),
    ),
  );
}

function fine(words) {
  return element("span", { class: "mark fine" }, icon("check"), words);
}

function mark(many, one, found, kind, describe) {
  const rows = found.map((item) => {
    const [what, where, why] = describe(item);
    return element("li", {}, element("b", {}, what), " ", element("code", {}, where), element("p", {}, why));
  });
  return element(
    "details",
    { class: `mark ${kind}` },
    element("summary", {}, say(found.length === 1 ? one : many, { count: found.length })),
    element("ul", {}, rows),
  );
}

function body(value, before) {
  if (!value) return element("p", { class: "quiet" }, say("nothingToSend"));
  const seen = new Set(
    TURNS.flatMap((name) => (Array.isArray(before?.[name]) ? before[name] : [])).map((turn) => JSON.stringify(turn)),
  );
  return Object.entries(value).map(([name, inside]) => {
    if (!TURNS.includes(name) || !Array.isArray(inside)) return jsonTree(inside, name, 3);
    return element(
      "div",
      { class: "turns" },
      element("p", { class: "json-name" }, name),
      inside.map((turn) => turnCard(turn, !seen.has(JSON.stringify(turn)))),
    );
  });
}

function turnCard(turn, isNew) {
  const { role, type, ...rest } = turn;
  const fields = Object.entries(role ? { ...(type && { type }), ...rest } : rest);
  return element(
    "article",
    { class: isNew ? "turn-card new" : "turn-card", "data-role": role ?? type ?? "" },
    element(
      "header",
      {},
      element("span", {}, role ?? type ?? ""),
      isNew && element("span", { class: "new-tag" }, say("isNew")),
    ),
    fields.map(([name, inside]) => jsonTree(inside, name, 0)),
  );
}
