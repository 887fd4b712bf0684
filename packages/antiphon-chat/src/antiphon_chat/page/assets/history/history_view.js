// @ts-check
/* The history of a conversation on one screen: on the left the log, on the right what each provider would be sent at the
 * chosen moment of it. A slider moves through the versions. What was rendered once is kept: a version never changes. */

import { element, fill } from "antiphon/dom.js";
import { showError } from "../ui/notifications.js";
import { Renderings } from "./renderings.js";
import { Timeline } from "./timeline.js";
import { formatNumber, say } from "antiphon/texts.js";

/** Draws into the section `node`; `replay(step)` is called to answer again from a step on. */
export class HistoryView {
  constructor(api, node, replay) {
    this._api = api;
    this._conversation = null;
    this._rendered = new Map();
    this._at = 0;
    this._last = 0;
    this._slider = element("input", {
      type: "range",
      min: "1",
      oninput: () => this.choose(Number(this._slider.value)),
    });
    this._version = element("output", { class: "number" });
    const timeline = element("div", { class: "timeline" });
    const renderings = element("div", { class: "renderings" });
    this._empty = element("p", { class: "quiet empty" });
    this._whole = element(
      "div",
      { class: "history" },
      element("div", { class: "log" }, element("div", { class: "scrub" }, this._version, this._slider), timeline),
      renderings,
    );
    fill(node, this._empty, this._whole);
    this._timeline = new Timeline(timeline, (at, takesFocus) => this.choose(at, takesFocus), replay);
    this._renderings = new Renderings(renderings, (at) => this._renderedAt(at));
  }

  /** Show the history of an open conversation; at the moment it was at, if it is the same one. */
  async show(conversation) {
    if (this._conversation?.id !== conversation.id) {
      this._rendered.clear();
      this._at = 0;
    }
    this._conversation = conversation;
    const { entries } = conversation.state;
    this._empty.hidden = entries.length > 0;
    this._whole.hidden = entries.length === 0;
    fill(this._empty, say("noEntries"));
    if (!entries.length) return;
    this._last = entries.at(-1).sequence_number;
    this._slider.max = String(this._last);
    this._slider.setAttribute("aria-label", say("versionSlider"));
    try {
      const timeline = await this._api.get(`${conversation.path}/timeline`);
      if (this._conversation !== conversation) return;
      this._timeline.draw(timeline, entries);
      this.choose(this._at || this._last);
      const { requests } = await this._api.get(`${conversation.path}/cache`);
      if (this._conversation === conversation) this._timeline.showCaches(requests);
    } catch (error) {
      showError(error);
    }
  }

  choose(at, takesFocus = false) {
    this._at = Math.min(Math.max(1, at), this._last);
    this._slider.value = String(this._at);
    const words = say("versionOf", { at: formatNumber(this._at), all: formatNumber(this._last) });
    this._slider.setAttribute("aria-valuetext", words);
    fill(this._version, words);
    this._timeline.select(this._at, takesFocus);
    this._renderings.show(this._at).catch(showError);
  }

  _renderedAt(at) {
    if (!this._rendered.has(at)) {
      const asked = this._api.get(`${this._conversation.path}/rendered?at=${at}`);
      asked.catch(() => this._rendered.delete(at));
      this._rendered.set(at, asked);
    }
    return this._rendered.get(at);
  }
}
