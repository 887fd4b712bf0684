// @ts-check
/* Two conversations side by side: the same question, answered by two models. Each column is a thread of its own that follows its
 * events; on a phone they are one below the other. */

import { element, fill } from "../ui/dom.js";
import { OpenConversation } from "./open_conversation.js";
import { showError } from "../ui/notifications.js";
import { Thread } from "./thread.js";
import { cancelling, confirming, labelled, show } from "../ui/dialogs.js";
import { say } from "../ui/i18n.js";

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
  }

  /** Show these conversations. @param {string[]} ids */
  async show(ids) {
    this.close();
    fill(this._node);
    await Promise.all(ids.map((id) => this._column(id).catch(showError)));
  }

  close() {
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
      event: (event, data) => thread.handle(event, data),
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
 * Ask which model answers too; `""` if none.
 *
 * @param {string[]} models
 * @param {string} current the model that has answered
 */
export async function askForModel(models, current) {
  const field = element("input", { type: "text", required: true, list: "compared-models", autocomplete: "off" });
  const others = models.filter((model) => model !== current);
  const options = element("datalist", { id: "compared-models" }, others.map((model) => element("option", { value: model })));
  field.value = others[0] ?? "";
  const answer = await show(
    say("compareWith"),
    [labelled(say("compareChoose"), field), options],
    [cancelling(), confirming(say("regenerate"))],
    { class: "small" },
  );
  return answer === "yes" ? field.value.trim() : "";
}
