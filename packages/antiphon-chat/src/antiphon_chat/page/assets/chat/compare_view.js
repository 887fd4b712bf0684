// @ts-check
/* Two conversations side by side: the same questions, answered by two models. Above is the table of their steps, read again when
 * one of them has news; below, each column is a thread of its own that follows its events, on a phone one below the other. */

import { element, fill } from "antiphon/dom.js";
import { drawComparison } from "./comparison_table.js";
import { OpenConversation } from "./open_conversation.js";
import { showError } from "../ui/notifications.js";
import { Thread } from "./thread.js";
import { cancelling, confirming, labelled, show } from "../ui/dialogs.js";
import { say } from "antiphon/texts.js";

/** The entries that change the table. */
const STEPS = new Set(["model_output", "tool_call_results"]);

export class CompareView {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {HTMLElement} node
   */
  constructor(api, node) {
    this._api = api;
    this._node = node;
    /** @type {OpenConversation[]} */
    this._open = [];
    /** @type {string[]} */
    this._ids = [];
    this._table = element("div", { class: "comparison", role: "region", tabindex: "0" });
    this._isReading = false;
    this._hasNews = false;
  }

  /** Show these conversations. @param {string[]} ids */
  async show(ids) {
    this.close();
    this._ids = ids;
    fill(this._table);
    this._table.setAttribute("aria-label", say("stepByStep"));
    fill(this._node, this._table);
    await Promise.all([this._readSteps(), ...ids.map((id) => this._column(id).catch(showError))]);
  }

  /** Draw the table again; what happens meanwhile is read after it. */
  async _readSteps() {
    this._hasNews = true;
    if (this._isReading) return;
    this._isReading = true;
    const ids = this._ids;
    const [original, other] = ids.map(encodeURIComponent);
    try {
      while (this._hasNews && ids === this._ids) {
        this._hasNews = false;
        const comparison = await this._api.get(`conversations/${original}/comparison?with=${other}`);
        if (ids === this._ids) drawComparison(this._table, comparison);
      }
    } catch (error) {
      showError(error);
    } finally {
      this._isReading = false;
    }
    if (ids !== this._ids && this._ids.length) await this._readSteps();
  }

  close() {
    this._ids = [];
    for (const conversation of this._open) conversation.close();
    this._open = [];
  }

  /** @param {string} id */
  async _column(id) {
    const name = element("h2", {});
    const body = element("div", { class: "thread", role: "log", "aria-live": "off", "aria-label": say("answer") });
    const scroller = element("div", { class: "scroller", tabindex: "0" }, body);
    const latest = element("button", { type: "button", hidden: true });
    const go = element("a", { class: "button", href: `#/c/${encodeURIComponent(id)}` }, say("continueHere"));
    this._node.append(element("section", { class: "compared" }, element("header", {}, name, go), scroller));
    const path = `conversations/${encodeURIComponent(id)}`;
    const thread = new Thread(
      this._api,
      body,
      {
        decide: (call, decision) => this._api.post(`${path}/decisions`, { tool_call_id: call.tool_call_id, ...decision }),
        resume: () => this._api.post(`${path}/resume`).catch(showError),
        chooseModel: () => (location.hash = `#/c/${encodeURIComponent(id)}`),
      },
      latest,
    );
    const conversation = new OpenConversation(this._api, id, {
      loaded: (state) => {
        fill(name, state.model);
        thread.show(path, state);
      },
      event: (event, data) => {
        thread.handle(event, data);
        if (event === "LoopFinished" || (event === "EntryAppended" && STEPS.has(data.entry.kind))) this._readSteps();
      },
      changed: (state) => thread.changed(state),
      broken() {},
      restored() {},
      gone: () => showError(new Error(say("gone"))),
    });
    this._open.push(conversation);
    await conversation.load();
  }
}

/**
 * Ask which model answers too; `null` if none.
 *
 * @param {string[]} models
 * @param {string} current the model that has answered
 * @param {boolean} isReplay whether it answers several steps, so that calls may come up which the log does not have
 * @returns {Promise<{ model: string, calls: string } | null>}
 */
export async function askForModel(models, current, isReplay = false) {
  const field = element("input", { type: "text", required: true, list: "compared-models", autocomplete: "off" });
  const others = models.filter((model) => model !== current);
  const options = element(
    "datalist",
    { id: "compared-models" },
    others.map((model) => element("option", { value: model })),
  );
  field.value = others[0] ?? "";
  const calls = element(
    "select",
    {},
    ["log", "run", "skip"].map((policy) => element("option", { value: policy }, say(`replayCalls_${policy}`))),
  );
  const answer = await show(
    say(isReplay ? "replayHere" : "compareWith"),
    [
      labelled(say(isReplay ? "replayChoose" : "compareChoose"), field),
      options,
      isReplay && labelled(say("replayCalls"), calls, say("replayCallsHint")),
    ],
    [cancelling(), confirming(say(isReplay ? "replayStart" : "regenerate"))],
    { class: "small" },
  );
  const model = field.value.trim();
  return answer === "yes" && model ? { model, calls: calls.value } : null;
}
