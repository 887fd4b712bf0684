// @ts-check
/* The menu of models: the sources first, and every model they list while typing, or any other by its name. It is a combobox: the
 * field keeps the focus and the arrows move through the list. */

import { byId, element, fill } from "antiphon/dom.js";
import { modelTitle } from "./messages.js";
import { describeSource } from "./model_sources.js";
import { formatNumber, formatShort, say } from "antiphon/texts.js";

const MOST_SHOWN = 60;
const PASTE = "\u0000paste"; // the last row, which is not a model

/** `choose(model)` is called with what was chosen, `opened()` when the list should be as it is now, `pasteKey()` for a key. */
export class ModelMenu {
  constructor({ choose, opened, pasteKey }) {
    this._choose = choose;
    this._opened = opened;
    this._pasteKey = pasteKey;
    /** @type {ModelSource[]} */
    this._sources = [];
    this._takesKeys = false;
    /** @type {Record<string, [number | null, string | null, string | null]>} window, price in and out, by model */
    this._facts = {};
    this._button = byId("model");
    this._menu = byId("model-menu");
    this._models = [];
    this._model = "";
    this._active = 0;
    this._field = element("input", {
      type: "text",
      role: "combobox",
      "aria-expanded": "true",
      "aria-controls": "model-list",
      "aria-autocomplete": "list",
      autocomplete: "off",
      spellcheck: "false",
    });
    this._list = element("ul", { id: "model-list", role: "listbox" });
    this._heads = element("p", { class: "heads-row", "aria-hidden": "true" });
    this._more = element("p", { class: "about", role: "status", hidden: true });
    this._about = element("p", { class: "about" });
    fill(this._menu, this._field, this._heads, this._list, this._more, this._about);
    this._button.addEventListener("click", () => (this._menu.hidden ? this.open() : this.close()));
    this._field.addEventListener("input", () => {
      this._active = 0;
      this._draw();
    });
    this._field.addEventListener("keydown", (event) => this._key(event));
    document.addEventListener("click", (event) => {
      if (!this._menu.hidden && !this._menu.contains(event.target) && !this._button.contains(event.target)) this.close(false);
    });
  }

  /** The available models, and the default of the server. */
  offer(models, about) {
    this._models = models;
    this.describe(about);
  }

  /** Every model it knows. */
  get models() {
    return this._models;
  }

  /** Why the default model is the default: what the line under the list says of itself. */
  describe(about) {
    this._about.title = about;
  }

  /**
   * The sources with the models they list, once they are known, and what is known of each model.
   *
   * @param {ModelSource[]} sources
   * @param {boolean} takesKeys
   * @param {Record<string, [number | null, string | null, string | null]>} facts
   */
  offerSources(sources, takesKeys, facts = {}) {
    this._facts = facts;
    this._sources = sources;
    this._takesKeys = takesKeys;
    const ready = sources.filter((source) => source.is_ready && source.model);
    const listings = new Map(sources.filter(({ models }) => models.length).map(({ provider, models }) => [provider, models]));
    const names = [...ready.map((source) => source.model), ...sources.flatMap((source) => source.models), ...this._models];
    // Never a model that its host does not list.
    this._models = [...new Set(names)].filter((name) => listings.get(name.split("/")[0])?.includes(name) ?? true);
    if (this.isOpen) this._draw();
  }

  show(model) {
    this._model = model;
    fill(this._button.querySelector(".name"), modelTitle(model));
    this._button.setAttribute("aria-label", `${say("model")}: ${modelTitle(model)}`);
    this._button.title = model;
  }

  open() {
    this._menu.hidden = false;
    this._button.setAttribute("aria-expanded", "true");
    this._field.value = "";
    this._field.placeholder = say("chooseModel");
    this._field.setAttribute("aria-label", say("chooseModel"));
    this._list.setAttribute("aria-label", say("model"));
    this._active = Math.max(0, this._models.indexOf(this._model));
    this._draw();
    this._field.focus();
    this._opened();
  }

  /** Open it with the models of one provider. */
  search(text) {
    this.open();
    this._field.value = text;
    this._draw();
  }

  close(givesBack = true) {
    this._menu.hidden = true;
    this._button.setAttribute("aria-expanded", "false");
    if (givesBack) this._button.focus();
  }

  get isOpen() {
    return !this._menu.hidden;
  }

  _offered() {
    const typed = this._field.value.trim();
    const paste = this._takesKeys ? [PASTE] : [];
    if (!typed) return [...this._models.slice(0, MOST_SHOWN), ...paste];
    const wanted = typed.toLowerCase();
    const rank = (/** @type {string} */ model) => {
      const names = [model.toLowerCase(), modelTitle(model).toLowerCase()];
      return names.includes(wanted) ? 0 : names.some((name) => name.startsWith(wanted)) ? 1 : names[0].includes(wanted) ? 2 : 3;
    };
    const near = this._models.filter((model) => rank(model) < 3).sort((one, other) => rank(one) - rank(other));
    return [...near.slice(0, MOST_SHOWN), ...(near.length && rank(near[0]) === 0 ? [] : [typed]), ...paste];
  }

  _draw() {
    const offered = this._offered();
    this._active = Math.min(this._active, Math.max(0, offered.length - 1));
    fill(
      this._list,
      offered.map((model, position) =>
        element(
          "li",
          {
            role: "option",
            id: `model-${position}`,
            "aria-selected": String(position === this._active),
            class: model === this._model ? "current" : model === PASTE ? "paste" : "",
            onclick: () => this._take(model),
          },
          this._row(model),
        ),
      ),
    );
    this._field.setAttribute("aria-activedescendant", offered.length ? `model-${this._active}` : "");
    this._list.children[this._active]?.scrollIntoView({ block: "nearest" });
    const hidden = this._field.value.trim() ? 0 : this._models.length - MOST_SHOWN;
    fill(this._more, hidden > 0 ? say("moreModels", { count: formatNumber(hidden) }) : "");
    this._more.hidden = hidden <= 0;
    const hasFacts = offered.some((model) => model in this._facts);
    fill(this._heads, hasFacts && [element("span"), element("span", {}, say("contextHead")), element("span", {}, say("priceHead"))]);
    const hosts = new Set(this._models.map((model) => model.split("/")[0])).size;
    const counted = { hosts: formatNumber(hosts), models: formatNumber(this._models.length) };
    fill(this._about, say(hosts === 1 ? "oneHostModels" : "hostsAndModels", counted));
  }

  _row(model) {
    if (model === PASTE) return element("span", {}, `${say("pasteKey")}…`);
    if (!this._models.includes(model)) return element("span", {}, say("useNamed", { model }));
    const source = this._sources.find((one) => one.model === model);
    const host = model.includes("/") && source?.kind !== "tour" ? model.split("/")[0] : "";
    const name = element(
      "span",
      { class: "model-title" },
      withMatch(modelTitle(model), this._field.value.trim()),
      host && [" ", element("small", {}, host)],
    );
    const [context, input, output] = this._facts[model] ?? [null, null, null];
    if (!context && !input) return [name, element("small", { class: "wide" }, source ? describeSource(source) : "")];
    const price = input ? [input, output ?? ""].filter(Boolean).map((one) => Number(one).toFixed(2)).join(" · ") : "";
    return [
      name,
      element("small", { class: "number" }, context ? formatShort(context) : ""),
      element("small", { class: "number" }, price),
    ];
  }

  _key(event) {
    const offered = this._offered();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this._active = (this._active + (event.key === "ArrowDown" ? 1 : offered.length - 1)) % Math.max(1, offered.length);
      this._draw();
    } else if (event.key === "Enter" && !event.isComposing && offered.length) {
      event.preventDefault();
      this._take(offered[this._active]);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this.close();
    } else if (event.key === "Tab") {
      this.close(false);
    }
  }

  _take(model) {
    this.close();
    if (model === PASTE) this._pasteKey();
    else if (model !== this._model) this._choose(model);
  }
}

/** A name with what was typed of it marked. */
function withMatch(/** @type {string} */ name, /** @type {string} */ typed) {
  const at = typed ? name.toLowerCase().indexOf(typed.toLowerCase()) : -1;
  if (at < 0) return name;
  return [name.slice(0, at), element("b", {}, name.slice(at, at + typed.length)), name.slice(at + typed.length)];
}
