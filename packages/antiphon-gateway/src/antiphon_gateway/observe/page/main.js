// @ts-check
/* The status of a gateway. The page loads `GET /status` with the admin key of this tab, draws it, and asks again every few
 * seconds. Without a key, or with one that is not accepted, it asks who is calling. */

import { switchAppearance } from "antiphon/appearance.js";
import { brandMark, button, element, fill, icon, iconButton, note } from "antiphon/dom.js";
import { ofTab } from "antiphon/storage.js";
import { say, sayCount, switchLanguage, useTexts } from "antiphon/texts.js";
import { CallList } from "./calls.js";
import { alarms, circuits, credentials, figures, footer, headline, hour, models, spend, targets } from "./sections.js";
import CHINESE from "./zh.json";
import ENGLISH from "./en.json";

useTexts({ en: ENGLISH, zh: CHINESE });

const KEPT = "antiphon.admin";
const PAUSE = 5000;
const page = /** @type {HTMLElement} */ (document.getElementById("page"));

class StatusPage {
  constructor() {
    this._shown = "";
    this._status = null;
    this._timer = 0;
    this._calls = new CallList((query) => this._ask(`?${new URLSearchParams({ format: "json", ...query })}`));
    /** @type {Map<string, { state: string, node: HTMLElement }>} */
    this._sections = new Map();
    document.addEventListener("language", () => this._redraw());
    document.addEventListener("visibilitychange", () => document.hidden || this.load());
    // A narrow screen shows fewer minutes.
    matchMedia("(max-width: 720px)").addEventListener("change", () => this._redraw());
  }

  /** Ask for the status and draw it; for the key first, where one is needed and this tab has none. */
  async load() {
    clearTimeout(this._timer);
    try {
      if (!ofTab.get(KEPT) && (await fetch("/status/login").then((answer) => answer.json())).needs_key) return this._login();
      const response = await this._ask("?format=json");
      if (response === null) return;
      this._status = response;
      this._draw();
    } catch {
      this._warn(say("noServer"));
    }
    this._timer = setTimeout(() => (document.hidden ? null : this.load()), PAUSE);
    return null;
  }

  /** The JSON at an address; `null` if the key is not accepted, and the login form is shown. */
  async _ask(query, path = "/status", options = {}) {
    const response = await fetch(path + query, { cache: "no-store", ...options, headers: { ...bearer(), ...options.headers } });
    if (response.status === 401 || response.status === 403) {
      this._login();
      return null;
    }
    if (!response.ok) throw new Error((await response.json().catch(() => null))?.error?.message ?? response.statusText);
    return response.json();
  }

  _draw() {
    if (this._shown !== "status") {
      this._shown = "status";
      this._sections.clear();
      fill(page, this._header(), element("div", { id: "alarm" }));
      page.className = "status";
    }
    const status = this._status;
    document.title = `${say("title")} · Antiphon`;
    this._section("headline", [status.server.reload, status.circuits, status.credentials, status.hour], () => headline(status));
    this._section("alarms", [status.server.reload, status.server.shared], () => alarms(status));
    this._section("figures", [status.hour, status.spend?.today], () => figures(status));
    this._section("hour", [status.minutes, status.requests[0]?.id], () => hour(status));
    this._section("spend", status.spend, () => spend(status));
    this._section("upstreams", [status.targets, status.credentials, status.circuits], () =>
      element(
        "div",
        { class: "sections" },
        targets(status),
        credentials(status, (row, enabled) => this._switch(row, enabled)),
        circuits(status),
      ),
    );
    if (!this._sections.has("calls")) this._place("calls", this._calls.node);
    this._calls.show(status);
    this._section("models", status.models, () => models(status));
    this._section("footer", [status.server.version, Math.floor(status.uptime_seconds / 60)], () => footer(status));
  }

  /** Draw a section again if what it shows has changed. */
  _section(name, shown, draw) {
    const state = JSON.stringify(shown ?? null);
    const known = this._sections.get(name);
    if (known?.state === state) return;
    const focused = known && known.node.contains(document.activeElement) && document.activeElement?.getAttribute("data-focus");
    const open = [...(known?.node.querySelectorAll("details[open][data-keep]") ?? [])].map((one) =>
      one.getAttribute("data-keep"),
    );
    const node = draw() ?? element("div", { hidden: true });
    if (known) known.node.replaceWith(node);
    this._place(name, node, state, Boolean(known));
    for (const one of open) node.querySelector(`details[data-keep="${one}"]`)?.setAttribute("open", "");
    if (focused) /** @type {HTMLElement | null} */ (node.querySelector(`[data-focus="${CSS.escape(focused)}"]`))?.focus();
  }

  _place(name, node, state = "", isPlaced = false) {
    this._sections.set(name, { state, node });
    if (!isPlaced) page.append(node);
  }

  _redraw() {
    this._shown = "";
    this._sections.clear();
    this._calls.redraw();
    if (this._status) this._draw();
    else this.load();
  }

  _header() {
    const leave = () => {
      ofTab.set(KEPT, "");
      this._status = null;
      this._login();
    };
    return element(
      "header",
      { class: "top" },
      brand(),
      element(
        "nav",
        { "aria-label": say("title") },
        languageButton(),
        appearanceButton(),
        ofTab.get(KEPT) && button(say("log_out"), leave),
      ),
    );
  }

  async _switch(row, enabled) {
    try {
      const body = JSON.stringify({ provider: row.provider, credential: row.name, enabled });
      const headers = { "content-type": "application/json" };
      if ((await this._ask("", "/credentials", { method: "POST", body, headers })) === null) return;
      await this.load();
    } catch (error) {
      this._warn(error.message);
    }
  }

  _warn(text) {
    const place = document.getElementById("alarm");
    if (place) fill(place, element("p", { class: "alarm", role: "alert" }, note("failed"), text));
    else if (this._shown !== "login")
      fill(page, brand(), element("p", { class: "alarm", role: "alert" }, note("failed"), text));
  }

  // The login: one question on the line.

  _login() {
    clearTimeout(this._timer);
    if (this._shown === "login") return;
    this._shown = "login";
    page.className = "login";
    document.title = `${say("login")} · Antiphon`;
    const field = element("input", { type: "password", id: "key", autocomplete: "off", spellcheck: "false", required: true });
    const problem = element("p", { class: "problem", role: "alert" });
    const form = element(
      "form",
      { class: "words" },
      element("h1", {}, say("login")),
      element("p", { class: "quiet" }, say("loginText")),
      element("label", { class: "field" }, element("span", {}, say("adminKey")), field),
      problem,
      element("button", { type: "submit", class: "button main wide" }, say("logIn")),
      element("p", { class: "hint" }, hint()),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const words = await tryKey(field.value.trim());
      if (words === "") return this.load();
      field.select();
      return fill(problem, note("failed"), words);
    });
    fill(
      page,
      element("div", { class: "top" }, brand(), element("nav", {}, languageButton())),
      element(
        "div",
        { class: "question" },
        element("div", { class: "stave", "aria-hidden": "true" }, note("asked"), note("draft")),
        form,
      ),
    );
    field.focus();
  }
}

/** @returns {Record<string, string>} */
function bearer(key = ofTab.get(KEPT)) {
  return key ? { authorization: `Bearer ${key}` } : {};
}

/** Try a key: the reason why it is not accepted, empty if it is, and then it is kept in this tab. */
async function tryKey(key) {
  if (!key) return "";
  try {
    const response = await fetch("/status/login", { method: "POST", cache: "no-store", headers: bearer(key) });
    const answer = await response.json();
    if (response.ok) {
      ofTab.set(KEPT, key);
      return "";
    }
    if (response.status === 429) return say("tooMany", { seconds: answer.seconds });
    return answer.is_known ? say("notAdmin") : sayCount("wrongKey", answer.tries_left);
  } catch {
    return say("noServer");
  }
}

function hint() {
  const [before, after] = say("loginHint").split("`{command}`");
  return [before, element("code", {}, "antiphon key new --admin --name operator"), after];
}

function brand() {
  return element(
    "a",
    { class: "brand", href: "#" },
    brandMark(),
    element("span", {}, element("span", { class: "name" }, "Antiphon"), " ", element("span", { class: "of" }, say("gateway"))),
  );
}

function languageButton() {
  return button(say("language"), switchLanguage, { class: "button bare", "aria-label": say("languageLabel") });
}

function appearanceButton() {
  const made = iconButton("check", say("theme"), switchAppearance);
  fill(made, icon("contrast"));
  return made;
}

new StatusPage().load();
