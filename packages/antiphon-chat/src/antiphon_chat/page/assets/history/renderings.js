// @ts-check
/* What each provider receives: one moment of the history, written for each API, as the staves of a score.
 *
 * Three formats stand side by side, and each column can show any of the five; a phone shows one, by tabs. The columns are the
 * bodies themselves, with their own field names. What was in the body of the moment before is folded; what is new stands below
 * it, row by row. A list under the columns has everything that was left out or repaired, in all five. */

import { element, fill, icon } from "antiphon/dom.js";
import { lasting } from "antiphon/storage.js";
import { jsonTree } from "./json_tree.js";
import { say, formatNumber, formatSize } from "antiphon/texts.js";

const NAMES = {
  anthropic: "Anthropic Messages",
  "openai-chat": "OpenAI Chat",
  gemini: "Gemini",
  "openai-responses": "OpenAI Responses",
  "gemini-interactions": "Gemini Interactions",
};
const COLUMNS = 3;
const KEPT = "antiphon.history.formats";
const TURNS = ["messages", "input", "contents"];
const PATHS = 3;

/** @typedef {{ turns: any[], fields: [string, any][] }} Pieces the turns of a body, and its other fields */

/** Draws into `node`; `load(at)` gives the rendered formats of a version. */
export class Renderings {
  constructor(node, load) {
    this._load = load;
    this._at = 0;
    /** @type {string[]} all formats, the shown ones first */
    this._order = lasting.get(KEPT)?.split(" ") ?? Object.keys(NAMES);
    this._tab = this._order[0];
    this._isUnfolded = false;
    /** @type {[any, any]} */
    this._rendered = [null, null];
    this._heading = element("header", { class: "renderings-head" });
    this._tabs = element("div", { class: "tabs", role: "tablist" });
    this._columns = element("div", { class: "columns" });
    this._differences = element("section", { class: "differences" });
    fill(node, this._heading, this._tabs, this._columns, this._differences);
    this._node = node;
  }

  async show(at) {
    this._at = at;
    fill(this._heading, element("h2", {}, say("whatSent")), element("p", {}, say("whatSentText")));
    this._tabs.setAttribute("aria-label", say("provider"));
    const rendered = await Promise.all([this._load(at), at > 1 ? this._load(at - 1).catch(() => null) : null]);
    if (at !== this._at) return;
    this._rendered = rendered;
    this._draw();
    this._node.scrollTop = 0;
  }

  _draw() {
    const [{ formats }, before] = this._rendered;
    const known = Object.keys(formats);
    this._order = [...this._order.filter((name) => name in formats), ...known.filter((name) => !this._order.includes(name))];
    if (!known.includes(this._tab)) this._tab = known[0] ?? "";
    fill(
      this._columns,
      this._order.map((name, place) => this._column(name, place, formats[name], before?.formats[name])),
    );
    fill(
      this._tabs,
      Object.keys(NAMES)
        .filter((name) => name in formats)
        .map((name) => this._tabOf(name)),
    );
    this._select(this._tab);
    fill(this._differences, differences(formats));
  }

  _column(name, place, rendered, before) {
    const { body } = rendered;
    const here = body && pieces(body);
    const same = new Set((before?.body ? pieces(before.body).turns : []).map(sameness));
    const known = new Map(before?.body ? pieces(before.body).fields.map(([key, value]) => [key, sameness(value)]) : []);
    const isKnownField = ([key, value]) => !before?.body || known.get(key) === sameness(value);
    const cards = here && [
      ...here.fields.filter((field) => !isKnownField(field)).map(([key, value]) => fieldCard(key, value)),
      ...here.turns.filter((turn) => !same.has(sameness(turn))).map((turn) => turnCard(turn, true)),
    ];
    return element(
      "section",
      { class: place < COLUMNS ? "rendered chosen" : "rendered", id: `column-${name}`, "aria-label": NAMES[name] ?? name },
      this._head(name, place, rendered),
      here && this._fold(here.fields.filter(isKnownField), here.turns.filter((turn) => same.has(sameness(turn)))),
      cards?.length ? cards : element("p", { class: "quiet nothing" }, say(here ? "nothingNew" : "nothingToSend")),
    );
  }

  _head(name, place, { model, bytes, losses = [], repairs = [], violations: found = [] }) {
    const violations = found.filter((one) => !one.advisory); // what only some hosts refuse is in the list below
    return element(
      "header",
      {},
      element(
        "div",
        { class: "format" },
        element("h3", {}, NAMES[name] ?? name),
        icon("down"),
        element(
          "select",
          { "aria-label": say("columnFormat", { number: place + 1 }), onchange: (event) => this._choose(place, event.target.value) },
          this._order.map((one) => element("option", { value: one, selected: one === name }, NAMES[one] ?? one)),
        ),
      ),
      element(
        "p",
        { class: "facts" },
        element("span", { class: "model-name" }, model),
        element("span", { class: "number" }, formatSize(bytes)),
      ),
      element(
        "p",
        { class: "marks" },
        violations.length ? counted("violation", violations, "broken") : element("span", { class: "mark fine" }, icon("check"), say("valid")),
        losses.length ? counted("loss", losses, "lost") : element("span", { class: "mark" }, say("noLoss")),
        repairs.length > 0 && counted("repair", repairs, "repaired"),
      ),
    );
  }

  /** What the body of the moment before had too. The folds of all columns open together. */
  _fold(fields, turns) {
    const inside = element("div", { class: "same-inside" });
    const draw = () => {
      if (!inside.childElementCount)
        inside.append(...fields.map(([key, value]) => jsonTree(value, key, 3)), ...turns.map((turn) => turnCard(turn, false)));
    };
    if (this._isUnfolded) draw();
    const names = fields.map(([key]) => key).join(", ");
    return element(
      "details",
      {
        class: "same",
        open: this._isUnfolded,
        ontoggle: (event) => {
          if (event.target.open) draw();
          if (event.target.open === this._isUnfolded) return;
          this._isUnfolded = event.target.open;
          for (const one of /** @type {NodeListOf<HTMLDetailsElement>} */ (this._columns.querySelectorAll(".same")))
            one.open = this._isUnfolded;
        },
      },
      element(
        "summary",
        {},
        element("span", {}, turns.length ? say(turns.length === 1 ? "sameTurn" : "sameTurns", { count: formatNumber(turns.length) }) : ""),
        element("code", {}, names),
      ),
      inside,
    );
  }

  /** Show a format in the column of that place; the one that it takes the place of goes where it was. */
  _choose(place, name) {
    const other = this._order.indexOf(name);
    [this._order[place], this._order[other]] = [this._order[other], this._order[place]];
    lasting.set(KEPT, this._order.join(" "));
    this._draw();
    const column = document.getElementById(`column-${name}`);
    /** @type {HTMLElement | null | undefined} */ (column?.querySelector("select"))?.focus();
  }

  _tabOf(name) {
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
    this._tab = name;
    for (const tab of /** @type {HTMLElement[]} */ ([...this._tabs.children])) {
      const isShown = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
    }
    for (const node of this._columns.children) node.classList.toggle("shown", node.id === `column-${name}`);
  }
}

/** @returns {Pieces} */
function pieces(body) {
  const fields = Object.entries(body);
  const isTurns = ([name, value]) => TURNS.includes(name) && Array.isArray(value);
  return { turns: fields.filter(isTurns).flatMap(([, value]) => value), fields: fields.filter((field) => !isTurns(field)) };
}

/** A value as text to compare. A breakpoint of the prompt cache that moved on leaves what was sent the same, also where a text
 * is a block only to carry it. */
function sameness(value) {
  return JSON.stringify(value, (key, inside) => {
    if (key === "cache_control") return undefined;
    const isText = key === "content" && Array.isArray(inside) && inside.length === 1 && inside[0]?.type === "text";
    return isText ? inside[0].text : inside;
  });
}

function counted(word, found, kind) {
  const key = found.length === 1 ? word : { violation: "violations", loss: "losses", repair: "repairs" }[word];
  return element("span", { class: `mark ${kind}` }, say(key, { count: formatNumber(found.length) }));
}

/** Everything that was left out, repaired or refused, by format; what has the same reason is one row. */
function differences(formats) {
  const rows = Object.keys(NAMES).flatMap((name) => {
    const { losses = [], repairs = [], violations = [] } = formats[name] ?? {};
    return grouped([
      ...violations.map(({ advisory, rule, path, message }) =>
        advisory ? ["advised", "isAdvice", rule, path, message] : ["broken", "isViolation", rule, path, message],
      ),
      ...losses.map((loss) => ["lost", "isLost", loss.what, loss.path, loss.why]),
      ...repairs.map((one) => ["repaired", "isRepaired", one.kind.replaceAll("_", " "), `messages[${one.message}]`, one.detail]),
    ]).map(([kind, word, what, paths, why]) =>
      element(
        "tr",
        { class: kind },
        element("th", { scope: "row" }, NAMES[name]),
        element("td", { class: "kind" }, say(word)),
        element("td", {}, element("b", {}, what), " ", why, " ", where(paths)),
      ),
    );
  });
  if (!rows.length) return element("p", { class: "quiet" }, say("noDifferences"));
  return [element("h3", {}, say("differencesTitle")), element("table", {}, element("tbody", {}, rows))];
}

/** @param {any[][]} found @returns {any[][]} */
function grouped(found) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const [kind, word, what, path, why] of found) {
    const key = JSON.stringify([kind, what, why]);
    const group = groups.get(key) ?? [kind, word, what, [], why];
    group[3].push(path);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function where(paths) {
  const first = paths.slice(0, PATHS).flatMap((path) => [element("code", {}, path), " "]);
  if (paths.length <= PATHS) return first;
  return [
    first,
    element(
      "details",
      {},
      element("summary", {}, say("morePlaces", { count: formatNumber(paths.length - PATHS) })),
      paths.slice(PATHS).flatMap((path) => [element("code", {}, path), " "]),
    ),
  ];
}

function fieldCard(name, value) {
  return element(
    "article",
    { class: "turn-card new" },
    element("header", {}, element("code", {}, name), element("span", { class: "new-tag" }, say("isNew"))),
    jsonTree(value, null, 1),
  );
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
      element("code", {}, role ?? type ?? ""),
      isNew && element("span", { class: "new-tag" }, say("isNew")),
    ),
    fields.map(([name, inside]) => jsonTree(inside, name, 0)),
  );
}
