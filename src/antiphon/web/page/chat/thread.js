/* The thread: the entries of the log as a conversation, and the answer that is being made at the end of it.
 *
 * Two sources feed it and may overlap. Entries are authoritative: each is drawn once, by its number. Events draw
 * a draft of what is not in the log yet (words, thoughts, running calls); the entry of the output takes the draft's place. So
 * a reload in mid-stream, a second tab and a resumed turn all end in the same picture. */

import { ApprovalCard } from "./approval_card.js";
import { button, element, fill } from "../ui/dom.js";
import { markdown, MarkdownView } from "../markdown/markdown.js";
import { media } from "../ui/media.js";
import { inputMessage, modelOf, outputMessage, textOf, Thought } from "./messages.js";
import { speak } from "../ui/notifications.js";
import { PlanCard } from "../plans/plan_card.js";
import { plansOf } from "../plans/plan_data.js";
import { ToolChip } from "./tool_chip.js";
import { figure, say } from "../ui/i18n.js";

const NEAR = 120;

/** `does` has: edit(entry, text), fork(at), rollBack(to), decide(call, decision), resume(). */
export class Thread {
  constructor(api, node, does) {
    this._api = api;
    this._does = does;
    this._scroller = node.parentElement;
    this._node = node;
    this._latest = document.getElementById("to-latest");
    this._latest.addEventListener("click", () => this._toEnd(true));
    this._scroller.addEventListener("scroll", () => this._followed(), { passive: true });
    this.clear();
  }

  clear() {
    fill(this._node);
    this._path = "";
    this._known = new Set();
    this._chips = new Map();
    this._plans = new Map();
    this._approvals = new Map();
    this._model = "";
    this._output = null;
    this._draft = null;
    this._ending = null;
    this._isFollowing = true;
    this._latest.hidden = true;
  }

  /** Show a conversation as it was loaded. */
  show(path, state) {
    const before = this._scroller.scrollTop;
    const isSame = this._path === path;
    const wasFollowing = this._isFollowing;
    this.clear();
    this._path = path;
    for (const entry of state.entries) this._entry(entry);
    for (const card of this._plans.values()) card.refresh();
    this._wait(state.pending);
    if (state.running) this._begin();
    else this._left(state);
    if (isSame && !wasFollowing) this._scroller.scrollTop = before;
    else this._toEnd(true);
  }

  /** Update everything but the entries, after a turn. */
  changed(state) {
    if (!state.running) {
      this._wait(state.pending);
      this._left(state);
    }
    this._follow();
  }

  hear(name, data) {
    const heard = this[`_on${name}`];
    if (heard) heard.call(this, data);
    this._follow();
  }

  _onTurnStarted() {
    this._end(null);
    this._begin();
  }

  _onRoundStarted() {
    this._end(null);
    this._begin();
  }

  _onTextDelta({ text }) {
    const draft = this._begin();
    draft.thought?.close();
    if (draft.words === null) {
      draft.words = new MarkdownView(speak);
      draft.body.insertBefore(draft.words.node, draft.chips);
    }
    draft.waiting.hidden = true;
    draft.words.append(text);
  }

  _onThinkingDelta({ text }) {
    const draft = this._begin();
    if (draft.thought === null) {
      draft.thought = new Thought(true);
      draft.body.insertBefore(draft.thought.node, draft.chips);
    }
    draft.waiting.hidden = true;
    draft.thought.append(text);
  }

  _onToolCallStarted({ call }) {
    this._chip(call).started(null);
    speak(`${call.tool_name}: ${say("running")}`);
  }

  _onToolCallProgress({ call, message, fraction }) {
    this._chip(call).progress(message, fraction);
  }

  _onToolCallFinished({ call, result, seconds, is_cached: isCached }) {
    const chip = this._chip(call);
    chip.finished(result, { seconds, isCached });
    this._planned(chip);
  }

  _onToolCallFailed(data) {
    this._onToolCallFinished(data);
  }

  _onApprovalNeeded({ calls }) {
    this._wait(calls);
  }

  _onModelSwitched({ after }) {
    this._marked(after);
  }

  _onEntryAppended({ entry }) {
    if (entry.kind === "model_output") {
      // Streamed text was already announced to the screen reader.
      if (!this._draft?.words && !this._known.has(entry.sequence_number)) speak(textOf(entry.content));
      this._drop();
    }
    this._entry(entry);
  }

  _onLoopFinished({ reason, error, text = "" }) {
    this._drop();
    for (const chip of this._chips.values()) chip.leftOpen();
    if (reason === "failed") this._end(this._failed(error?.message ?? ""));
    else if (reason === "interrupted") this._end(note(say("stopped")));
    else if (reason !== "answered" && reason !== "approval") this._end(note(say(`ended_${reason}`)));
    // A turn never ends silently: an answer without words, pictures or files is reported.
    const isEmpty = !text.trim() && !this._output?.content.some((part) => part.type !== "text" && part.type !== "thinking");
    if (isEmpty && !["failed", "interrupted", "approval"].includes(reason)) this._end(note(say("noAnswer")));
  }

  _entry(entry) {
    const isPast = entry.effective === false && entry.kind !== "rollback";
    if (this._known.has(entry.sequence_number) || isPast) return;
    this._known.add(entry.sequence_number);
    const drawn = this[`_of_${entry.kind}`];
    if (drawn) drawn.call(this, entry);
  }

  _of_model_input(entry) {
    if (entry.channel && entry.channel !== "user") {
      this._put(note(entry.content.map((part) => part.text ?? "").join("")));
      return;
    }
    this._put(
      inputMessage(entry, { api: this._api, path: this._path, edit: this._does.edit, rollBack: this._does.rollBack }),
    );
  }

  _of_model_output(entry) {
    this._output = entry;
    this._marked(modelOf(entry));
    // Ids count from one again in some providers' answers: a new output's calls are the ones its results are for.
    const message = outputMessage(entry, {
      api: this._api,
      path: this._path,
      fork: this._does.fork,
      chipOf: (call) => this._newChip(call),
    });
    this._put(message);
  }

  _of_tool_call_started(entry) {
    this._chips.get(entry.tool_call_id)?.started(entry.timestamp);
  }

  _of_tool_call_finished(entry) {
    this._result(entry.result, entry);
  }

  _of_tool_call_results(entry) {
    for (const result of entry.results) this._result(result, entry);
  }

  _of_human_decision(entry) {
    this._approvals.get(entry.tool_call_id)?.node.remove();
    this._approvals.delete(entry.tool_call_id);
    this._chips.get(entry.tool_call_id)?.decided(entry.decision, entry.reason);
  }

  _of_rollback(entry) {
    this._put(note(say("rolledBack", { to: figure(entry.to) })));
  }

  _of_compaction(entry) {
    this._put(
      element(
        "details",
        { class: "note" },
        element("summary", {}, say("compacted", { to: figure(entry.up_to) })),
        element("div", { class: "prose" }, markdown(entry.summary)),
      ),
    );
  }

  _of_set_system_instruction() {
    if (this._node.childElementCount) this._put(note(say("systemChanged")));
  }

  _of_set_memory_notebook() {
    if (this._node.childElementCount) this._put(note(say("memoryChanged")));
  }

  _result(result, entry) {
    const chip = this._chips.get(result.tool_call_id);
    if (chip === undefined) return;
    chip.finished(result, { timestamp: entry.timestamp });
    this._planned(chip);
  }

  /** Cards for the plans in a result, below the message; older cards of the same plan collapse. */
  _planned(chip) {
    const place = chip.node.closest(".message")?.querySelector(".plans-here");
    for (const plan of place ? plansOf(chip.call.tool_name, chip.text) : []) {
      const before = this._plans.get(plan.id);
      if (before && place.contains(before.node)) {
        before.plan = plan;
        before.draw();
        continue;
      }
      before?.fold();
      const card = new PlanCard(this._api, plan);
      this._plans.set(plan.id, card);
      place.append(card.node);
    }
  }

  _newChip(call) {
    const path = this._path;
    const chip = new ToolChip(call, (part) => media(part, this._api, path));
    this._chips.set(call.tool_call_id, chip);
    return chip;
  }

  _chip(call) {
    const known = this._chips.get(call.tool_call_id);
    if (known) return known;
    const chip = this._newChip(call);
    this._begin().chips.append(chip.node);
    return chip;
  }

  _wait(calls) {
    for (const [id, card] of this._approvals) {
      if (!calls.some((call) => call.tool_call_id === id)) {
        card.node.remove();
        this._approvals.delete(id);
      }
    }
    for (const call of calls) {
      if (this._approvals.has(call.tool_call_id)) continue;
      const card = new ApprovalCard(call, (decision) => this._does.decide(call, decision));
      this._approvals.set(call.tool_call_id, card);
      this._put(card.node);
      speak(say("approvalTitle", { tool: call.tool_name }));
    }
  }

  _left(state) {
    if (state.unfinished && !state.pending.length && !this._ending) {
      this._end(
        element("div", { class: "note with-button" }, say("unfinished"), " ", button(say("resume"), this._does.resume)),
      );
    }
  }

  _failed(message) {
    return element(
      "section",
      { class: "failed", role: "alert" },
      element("h2", {}, say("failed")),
      element("p", {}, message),
      button(say("tryAgain"), this._does.resume),
    );
  }

  _end(node) {
    this._ending?.remove();
    this._ending = node;
    if (node) this._put(node);
  }

  /** The draft of the answer that is being made. */
  _begin() {
    if (this._draft === null) {
      const waiting = element(
        "p",
        { class: "waiting", role: "status" },
        element("span", { class: "dots", "aria-hidden": "true" }, element("i"), element("i"), element("i")),
        element("span", { class: "unseen" }, say("waiting")),
      );
      const chips = element("div", { class: "chips" });
      const body = element("div", { class: "body" }, chips, waiting);
      const node = element(
        "article",
        { class: "message output draft", "aria-label": say("answer"), "aria-busy": "true" },
        body,
        element("div", { class: "plans-here" }),
      );
      this._draft = { node, body, waiting, chips, words: null, thought: null };
      this._node.append(node);
    }
    return this._draft;
  }

  _drop() {
    this._draft?.words?.close();
    this._draft?.node.remove();
    this._draft = null;
  }

  /** Show the model name where it changes. */
  _marked(model) {
    if (!model || model === this._model) return;
    const isFirst = this._model === "";
    this._model = model;
    this._put(element("p", { class: "speaker" }, isFirst ? model : say("modelSwitched", { model })));
  }

  _put(node) {
    this._node.insertBefore(node, this._draft?.node ?? null);
  }

  _followed() {
    const { scrollHeight, scrollTop, clientHeight } = this._scroller;
    this._isFollowing = scrollHeight - scrollTop - clientHeight < NEAR;
    this._latest.hidden = this._isFollowing;
  }

  _follow() {
    if (this._isFollowing) requestAnimationFrame(() => this._toEnd(false));
  }

  _toEnd(isSure) {
    if (isSure) this._isFollowing = true;
    if (this._isFollowing) this._scroller.scrollTop = this._scroller.scrollHeight;
    this._latest.hidden = this._isFollowing;
  }
}

function note(text) {
  return element("p", { class: "note" }, text);
}
