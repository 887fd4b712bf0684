// @ts-check
/* Two conversations side by side: the same questions in the middle of the line, the answers of two models left and right, aligned
 * turn by turn, with time, tokens and cost over each. It is read again when one of them has news; what is being written is
 * streamed into the last pair. The steps are in a table below, closed. */

import { ApprovalCard } from "./approval_card.js";
import { button, element, fill, icon, note } from "antiphon/dom.js";
import { drawComparison, facts } from "./comparison_table.js";
import { markdownText, StreamedText } from "../markdown/markdown.js";
import { modelTitle } from "./messages.js";
import { OpenConversation } from "./open_conversation.js";
import { showError } from "../ui/notifications.js";
import { cancelling, confirming, labelled, show } from "../ui/dialogs.js";
import { wordDifference } from "./word_difference.js";
import { formatNumber, say } from "antiphon/texts.js";

/** The entries that change what is shown. */
const STEPS = new Set(["model_output", "tool_call_results", "model_input"]);
const VOICES = ["new", "second"];

/**
 * @typedef {object} Side one of the two conversations
 * @property {string} id
 * @property {OpenConversation} conversation
 * @property {HTMLElement} live where what is being written and what waits for a person stands
 * @property {StreamedText | null} words
 * @property {string} model
 */

export class CompareView {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {HTMLElement} node
   * @param {(info: any) => void} loaded gets what is known of the first conversation
   */
  constructor(api, node, loaded) {
    this._api = api;
    this._node = node;
    this._loaded = loaded;
    /** @type {Side[]} */
    this._sides = [];
    /** @type {string[]} */
    this._ids = [];
    /** @type {Comparison | null} */
    this._comparison = null;
    /** @type {Map<string, HTMLElement>} rendered answers by their place and text, so that reading again does not draw again */
    this._rendered = new Map();
    this._showsDifference = false;
    this._table = element("div", { class: "comparison" });
    this._shown = element("div");
    this._field = element("textarea", { rows: "1" });
    /** @type {{ text: string, sides: Side[] } | null} a question that only one of them took, and who still has to take it */
    this._refused = null;
    this._isReading = false;
    this._hasNews = false;
  }

  /** Show these conversations. @param {string[]} ids */
  async show(ids) {
    this.close();
    this._ids = ids;
    this._comparison = null;
    this._showsDifference = false;
    this._rendered.clear();
    fill(this._table);
    fill(this._shown);
    this._refused = null;
    fill(this._node, this._shown, this._askBoth());
    this._sides = ids.map((id) => this._side(id));
    await Promise.all([this._readSteps(), ...this._sides.map(({ conversation }) => conversation.load().catch(showError))]);
  }

  /** Read the comparison and draw it; what happens meanwhile is read after it. */
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
        if (ids !== this._ids) continue;
        this._comparison = comparison;
        this._draw();
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
    for (const { conversation } of this._sides) conversation.close();
    this._sides = [];
  }

  _draw() {
    if (this._comparison === null) return;
    const { branches, steps } = this._comparison;
    const wasOpen = this._node.querySelector("details.steps")?.hasAttribute("open");
    drawComparison(this._table, this._comparison);
    /** @type {Map<number, { question: string, answers: string[] }>} */
    const turns = new Map();
    for (const { turn, question, steps: both } of steps) {
      const known = turns.get(turn) ?? { question, answers: branches.map(() => "") };
      both.forEach((step, side) => {
        const words = step?.answer.trim();
        if (words) known.answers[side] = known.answers[side] ? `${known.answers[side]}\n\n${words}` : words;
      });
      turns.set(turn, known);
    }
    const pairs = [...turns.values()];
    fill(
      this._shown,
      element(
        "p",
        { class: "verdict" },
        element("span", {}, this._verdict(branches)),
        element("a", { class: "button bare small", href: `#/c/${encodeURIComponent(this._ids[0])}` }, say("leaveCompare")),
      ),
      element(
        "div",
        { class: "heads" },
        branches.map((branch, side) => this._head(branch, side)),
      ),
      element(
        "div",
        { class: "pairs" },
        pairs.map((pair, position) => this._pair(pair, position, position === pairs.length - 1)),
      ),
      element(
        "details",
        { class: "steps" },
        element("summary", {}, say("stepByStep")),
        element("div", { class: "table", tabindex: "0", role: "region", "aria-label": say("stepByStep") }, this._table),
      ),
    );
    if (wasOpen) this._node.querySelector("details.steps")?.setAttribute("open", "");
  }

  /** The box at the end of the line: what is written there is asked in both conversations. */
  _askBoth() {
    this._field.placeholder = say("askBoth");
    this._field.setAttribute("aria-label", say("askBoth"));
    const form = element(
      "form",
      { class: "composer ask-both" },
      this._field,
      element("button", { type: "submit", class: "send", "aria-label": say("send"), title: say("send") }, icon("send")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._send(this._field.value.trim());
    });
    form.addEventListener("keydown", (event) => {
      if (event.target !== this._field || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    return form;
  }

  /** Ask in both; if one refuses, the question comes back, and sent again it is asked only there. */
  async _send(/** @type {string} */ text) {
    const sides = this._refused?.text === text ? this._refused.sides : this._sides;
    if (!text || sides.some(({ conversation }) => conversation.isRunning)) return;
    this._field.value = "";
    const content = [{ type: "text", text }];
    const sent = await Promise.allSettled(
      sides.map(({ conversation }) => this._api.post(`${conversation.path}/turns`, { content })),
    );
    const refusals = sent.flatMap((one, index) => (one.status === "rejected" ? [{ side: sides[index], why: one.reason }] : []));
    this._refused = refusals.length ? { text, sides: refusals.map(({ side }) => side) } : null;
    if (!refusals.length) return;
    this._field.value ||= text;
    showError(refusals[0].why);
  }

  /** One sentence of difference: which one is faster and which is cheaper, and by how much. */
  _verdict(branches) {
    const names = branches.map((branch, side) => this._name(branch, side));
    const lead = ([one, other]) => {
      if (!(one > 0) || !(other > 0)) return null;
      const [times, side] = one > other ? [one / other, 1] : [other / one, 0];
      const shown = times >= 10 ? Math.round(times) : Number(times.toFixed(1));
      return shown > 1 ? { model: names[side], times: formatNumber(shown) } : null;
    };
    const faster = lead(branches.map(({ seconds }) => seconds));
    const cheaper = lead(branches.map(({ cost }) => (cost === null ? null : Number(cost))));
    const compared =
      faster && cheaper && faster.model === cheaper.model
        ? [say("fasterAndCheaperBy", { ...faster, price: cheaper.times })]
        : [faster && say("fasterBy", faster), cheaper && say("cheaperBy", cheaper)].filter(Boolean);
    return [say("sameHistory"), ...compared].join(" ");
  }

  _name(branch, side) {
    return branch.models.map(modelTitle).join(", ") || modelTitle(this._sides[side]?.model || "…");
  }

  _head(branch, side) {
    const link = `#/c/${encodeURIComponent(this._ids[side])}`;
    const isStopped = branch.stopped && branch.stopped !== "waiting";
    const isRunning = Boolean(this._sides[side]?.conversation.isRunning);
    return element(
      "div", // not a landmark: both may be of one model, and landmarks need names of their own
      { class: `compared ${VOICES[side]}`, role: "group", "aria-label": this._name(branch, side) },
      element("h2", {}, note(VOICES[side]), this._name(branch, side)),
      element("p", { class: "number" }, branch.seconds === null && isRunning ? say("waiting") : facts(branch)),
      isStopped && !isRunning && element("p", { class: "word-partial" }, branch.detail || say("turnUnfinished")),
      element("a", { class: "button small", href: link }, say("continueHere")),
    );
  }

  _pair({ question, answers }, position, isLast) {
    const isDifferent = this._showsDifference && answers.every(Boolean);
    const cells = answers.map((answer, side) =>
      element(
        "div",
        { class: `side ${VOICES[side]}` },
        note(VOICES[side]),
        element(
          "div",
          { class: "words" },
          answer && (isDifferent ? this._difference(answers, side) : this._answer(answer, `${position}.${side}`)),
          isLast && this._sides[side]?.live,
        ),
      ),
    );
    const toggle =
      answers.every(Boolean) &&
      answers[0] !== answers[1] &&
      button(
        say(this._showsDifference ? "hideDifference" : "showDifference"),
        () => {
          this._showsDifference = !this._showsDifference;
          this._draw();
        },
        { class: "button bare small" },
      );
    return element(
      "section",
      { class: "pair" },
      element("h3", { class: "typed" }, note("asked"), question),
      cells,
      toggle && element("p", { class: "toggle" }, toggle),
    );
  }

  /** The answer as it is read, drawn once for each place and text. */
  _answer(text, place) {
    const key = `${place} ${text}`;
    const known = this._rendered.get(key) ?? markdownText(this._api, text);
    this._rendered.set(key, known);
    return known;
  }

  /** The words of one side, those that the other does not have marked. */
  _difference(answers, side) {
    const other = answers[1 - side];
    return element(
      "p",
      { class: "plain" },
      wordDifference(other, answers[side]).map(({ text, isNew }) => (isNew ? element("mark", {}, text) : text)),
    );
  }

  /**
   * @param {string} id
   * @returns {Side}
   */
  _side(id) {
    const path = `conversations/${encodeURIComponent(id)}`;
    const live = element("div", { class: "live" });
    const decide = (call, decision) => this._api.post(`${path}/decisions`, { tool_call_id: call.tool_call_id, ...decision });
    const waits = (calls) =>
      fill(
        live,
        calls.map((call) => new ApprovalCard(call, (decision) => decide(call, decision)).node),
      );
    const isWriting = () => element("p", { class: "waiting", role: "status" }, element("span", { class: "dots" }), say("waiting"));
    /** @type {Side} */
    const side = { id, live, words: null, model: "", conversation: /** @type {any} */ (null) };
    side.conversation = new OpenConversation(this._api, id, {
      loaded: (state) => {
        side.model = state.model;
        this._draw();
        void this._readSteps(); // an answer that ended before these events were followed may not have been read
        if (id === this._ids[0]) this._loaded(state.info);
        if (state.pending.length) waits(state.pending);
        else fill(live, state.running && isWriting());
      },
      event: (name, data) => {
        if (name === "ApprovalNeeded") waits(data.calls);
        if (name === "TurnStarted" || name === "RoundStarted") {
          side.words = null;
          fill(live, isWriting());
        }
        if (name === "TextDelta" && data.open) {
          side.words ??= new StreamedText(() => {});
          if (!side.words.node.isConnected) fill(live, side.words.node);
          side.words.update(data.settled ?? [], data.open);
        }
        const isStep = name === "EntryAppended" && STEPS.has(data.entry.kind);
        if (name === "LoopFinished" || (isStep && data.entry.kind === "model_output")) {
          side.words = null;
          if (!live.querySelector(".approval")) fill(live);
        }
        if (name === "EntryAppended" && data.entry.kind === "human_decision") fill(live, isWriting());
        if (name === "LoopFinished" || isStep) this._readSteps();
      },
      changed: (state) => {
        if (state.pending.length) waits(state.pending);
        else if (!state.running) fill(live);
      },
      broken() {},
      restored() {},
      gone: () => showError(new Error(say("gone"))),
    });
    return side;
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
  field.value = others.find((model) => !/^(local|offline)\//.test(model)) ?? others[0] ?? "";
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
