// @ts-check
/* The thread: the entries of the log as a conversation, and the answer that is being made at the end of it.
 *
 * Two sources feed it and may overlap. Entries are authoritative: each is drawn once, by its number. Events draw
 * a draft of what is not in the log yet (words, thoughts, running calls); the entry of the output takes the draft's place. So
 * a reload in mid-stream, a second tab and a resumed turn all end in the same picture. */

import { ApprovalCard } from "./approval_card.js";
import { button, element, fill } from "antiphon/dom.js";
import { drawn, plainText, StreamedText } from "../markdown/markdown.js";
import { media } from "../ui/media.js";
import { agentOf, branchSwitch, inputMessage, modelTitle, outputMessage, row, speakerOf, textOf, Thought } from "./messages.js";
import { announce, showFault } from "../ui/notifications.js";
import { Place } from "./place.js";
import { PlanCard } from "../plans/plan_card.js";
import { plansOf } from "../plans/plan_data.js";
import { ToolChip } from "./tool_chip.js";
import { turnUsage } from "./token_meter.js";
import { formatClock, formatDuration, formatMoney, formatNumber, say } from "antiphon/texts.js";

const NEAR_ENTRIES = 40;
const SHOWN_WAIT_SECONDS = 1;
/** @type {Record<string, string>} */
const ADVICE = {
  authentication: "advice_key",
  permission: "advice_key",
  rate_limit: "advice_wait",
  overloaded: "advice_wait",
  context_length: "advice_shorten",
};

/** Only the dots are seen; a screen reader gets the words. */
function resetWaiting(reason) {
  reason.className = "unseen";
  reason.textContent = say("waiting");
}

/**
 * The answer that is being made, as far as it was streamed.
 *
 * @typedef {object} OutputDraft
 * @property {HTMLElement} node
 * @property {HTMLElement} body
 * @property {HTMLElement} waiting
 * @property {HTMLElement} reason why it waits
 * @property {HTMLElement} chips
 * @property {StreamedText | null} words
 * @property {Thought | null} thought
 */

/**
 * A turn that is not drawn yet: its entries, the question before it, and the number of its last entry.
 *
 * @typedef {{ turn: Entry[], question: Entry | null, to: number }} FarTurn
 */

/** `actions` has: edit(entry, text), fork(at), regenerate(entry), compare(entry), open(id), rollBack(to), decide(call, decision),
 * resume(), chooseModel(); messages have a button for each of the first ones that there is. */
export class Thread {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {HTMLElement} node
   * @param {Record<string, (...values: any[]) => any>} actions
   * @param {HTMLElement} latest the button that scrolls to the end
   */
  constructor(api, node, actions, latest) {
    this._api = api;
    this._actions = actions;
    const scroller = /** @type {HTMLElement} */ (node.parentElement);
    this._node = node;
    this._place = new Place(scroller, node, latest);
    this._path = "";
    /** @type {Set<number>} */
    this._known = new Set();
    /** @type {Map<string, ToolChip>} */
    this._chips = new Map();
    /** @type {Map<string, PlanCard>} */
    this._plans = new Map();
    /** @type {Map<string, ApprovalCard>} */
    this._approvals = new Map();
    /** The model that answers next. */
    this._model = "";
    /** Who spoke last in this turn. */
    this._speaker = "";
    /** @type {Entry | null} */
    this._question = null;
    /** @type {HTMLElement | null} where the time and the cost of this turn stand */
    this._spent = null;
    /** @type {Entry | null} */
    this._output = null;
    /** @type {Entry[]} */
    this._turnOutputs = [];
    /** @type {OutputDraft | null} */
    this._draft = null;
    /** @type {HTMLElement | null} */
    this._ending = null;
    /** @type {Map<Element, FarTurn>} turns that are not drawn yet, by the node that holds their words */
    this._far = new Map();
    /** @type {Element | null} before which a far turn is being drawn; new things stand at the end */
    this._next = null;
    this._near = new IntersectionObserver(
      (seen) => this._drawFar(seen.flatMap(({ isIntersecting, target }) => (isIntersecting && this._far.has(target) ? [target] : []))),
      { root: scroller, rootMargin: "100% 0px" },
    );
    /** @type {Failure | null} */
    this._failure = null;
    addEventListener("beforeprint", () => this._drawThrough(Infinity));
    this.clear();
  }

  clear() {
    fill(this._node);
    this._path = "";
    this._known.clear();
    this._chips.clear();
    this._plans.clear();
    this._approvals.clear();
    this._speaker = "";
    this._question = null;
    this._spent = null;
    this._output = null;
    this._turnOutputs = [];
    this._draft = null;
    this._ending = null;
    this._near.disconnect();
    this._far.clear();
  }

  /** Show a conversation as it was loaded. */
  show(path, state) {
    const { top, isFollowing } = this._place;
    const isSame = this._path === path;
    this.clear();
    this._path = path;
    this._model = state.model ?? this._model;
    for (const entry of this._leaveFar(state.entries)) this._drawEntry(entry);
    for (const card of this._plans.values()) card.refresh();
    this._showApprovals(state.pending);
    if (state.running) this._openDraft();
    else this._showUnfinished(state);
    if (isSame && !isFollowing) this._place.restore(top);
    else this._place.follow();
  }

  /** Begin at the top: what welcomes may be longer than a phone. */
  showBeginning() {
    this._place.restore(0);
  }

  /** Scroll to a message that a search found, and mark the words in it. */
  showFound({ sequence, query }) {
    this._drawThrough(sequence, sequence);
    const messages = [.../** @type {NodeListOf<HTMLElement>} */ (this._node.querySelectorAll(".message[data-sequence]"))];
    const message = messages.filter((one) => Number(one.dataset.sequence) <= sequence).at(-1) ?? messages[0];
    if (!message) return;
    const words = markWords(message, query.replaceAll('"', " ").split(/\s+/).filter(Boolean));
    this._place.hold(words ?? message);
  }

  /**
   * Show where there are branches: before the first message after each point.
   *
   * @param {BranchPoint[]} points
   */
  showBranches(points) {
    for (const before of this._node.querySelectorAll(".branches")) before.remove();
    for (const { at } of points) this._drawThrough(at + 1, at);
    const messages = [...this._node.querySelectorAll(".message[data-sequence]")];
    for (const point of points) {
      const message = messages.find((one) => Number(/** @type {HTMLElement} */ (one).dataset.sequence) > point.at);
      const nav = branchSwitch(point, this._actions.open);
      if (message) message.before(nav);
      else this._insert(nav);
    }
  }

  /** Update everything but the entries, after a turn. */
  changed(state) {
    this._model = state.model ?? this._model;
    if (!state.running) {
      this._showApprovals(state.pending);
      this._showUnfinished(state);
    }
    this._place.settleSoon();
  }

  /** Show an event. Events without a handler here are of no interest to the thread. */
  handle(name, data) {
    const handler = /** @type {any} */ (this)[`_on${name}`];
    if (handler) handler.call(this, data);
    this._place.settleSoon();
  }

  _onTurnStarted() {
    this._failure = null;
    this._setEnding(null);
    this._openDraft();
  }

  _onRoundStarted({ agent = "", model = "" }) {
    this._setEnding(null);
    const { node } = this._openDraft();
    const name = agent || modelTitle(model || this._model);
    node.setAttribute("aria-label", name);
    fill(/** @type {Element} */ (node.querySelector(".who b")), name === this._speaker ? "" : name);
  }

  /** The call waits before another attempt: why, and until when. Waits that are too short to read about are left out. */
  _onRetryScheduled({ model, seconds, at, error }) {
    if (seconds < SHOWN_WAIT_SECONDS) return;
    const { waiting, reason } = this._openDraft();
    const isAsked = error.kind === "rate_limit" && error.retry_after != null;
    const words = { model, message: error.message, seconds: `${Math.round(seconds)} s`, at: formatClock(at) };
    reason.className = "wait-reason";
    reason.textContent = say(isAsked ? "waitAsked" : "waitFailed", words);
    waiting.hidden = false;
    setTimeout(() => resetWaiting(reason), seconds * 1000);
  }

  _onTextDelta({ settled, open }) {
    if (!open) return; // the blocks follow
    const draft = this._openDraft();
    draft.thought?.close();
    if (draft.words === null) {
      draft.words = new StreamedText(announce);
      draft.body.insertBefore(draft.words.node, draft.chips);
    }
    draft.waiting.hidden = true;
    draft.words.update(settled ?? [], open);
  }

  _onThinkingDelta({ text }) {
    const draft = this._openDraft();
    if (draft.thought === null) {
      draft.thought = new Thought(true);
      draft.body.insertBefore(draft.thought.node, draft.chips);
    }
    draft.waiting.hidden = true;
    draft.thought.append(text);
  }

  _onToolCallStarted({ call }) {
    this._chipOf(call).started(null);
    announce(`${call.tool_name}: ${say("running")}`);
  }

  _onToolCallProgress({ call, message, fraction }) {
    this._chipOf(call).progress(message, fraction);
  }

  _onToolCallFinished({ call, result, seconds, is_cached: isCached }) {
    const chip = this._chipOf(call);
    chip.finished(result, { seconds, isCached });
    this._showPlans(chip);
  }

  _onToolCallFailed(data) {
    this._onToolCallFinished(data);
  }

  _onApprovalNeeded({ calls }) {
    this._showApprovals(calls);
  }

  _onEntryAppended({ entry }) {
    if (entry.kind === "model_output") {
      // Streamed text was already announced to the screen reader.
      if (!this._draft?.words && !this._known.has(entry.sequence_number)) announce(textOf(entry.content));
      this._removeDraft();
    }
    this._drawEntry(entry);
  }

  _onTurnFailed(failure) {
    this._failure = failure;
  }

  /** Whether this turn has words of an answer. */
  get _hasWords() {
    return Boolean(this._draft?.words || this._turnOutputs.at(-1)?.content.some((part) => part.type === "text" && part.text));
  }

  _onLoopFinished({ reason, error, text = "" }) {
    const hasWords = this._hasWords;
    this._removeDraft();
    for (const chip of this._chips.values()) chip.leftOpen();
    if (reason === "failed") this._setEnding(this._failureCard(this._failure ?? { message: error?.message ?? "" }));
    else if (reason === "interrupted") this._setEnding(remark(say(hasWords ? "stopped" : "stoppedEarly")));
    else if (reason !== "answered" && reason !== "approval") this._setEnding(remark(say(`ended_${reason}`)));
    // A turn never ends silently: an answer without words, pictures or files is reported.
    const isEmpty = !text.trim() && !this._output?.content.some((part) => part.type !== "text" && part.type !== "thinking");
    if (isEmpty && !["failed", "interrupted", "approval"].includes(reason)) this._setEnding(remark(say("noAnswer")));
  }

  _drawEntry(entry) {
    if (this._known.has(entry.sequence_number) || !isShown(entry)) return;
    this._known.add(entry.sequence_number);
    this._draw(entry);
  }

  _draw(entry) {
    const draw = /** @type {any} */ (this)[`_draw_${entry.kind}`];
    try {
      if (draw) draw.call(this, entry);
    } catch (error) {
      // One entry that cannot be drawn must not hide the others.
      this._insert(remark(say("notDrawn", { number: entry.sequence_number })));
      showFault(error);
    }
  }

  _draw_model_input(entry) {
    if (entry.channel && entry.channel !== "user") {
      this._insert(remark(entry.content.map((part) => part.text ?? "").join("")));
      return;
    }
    this._question = entry;
    this._turnOutputs = [];
    this._speaker = "";
    this._spent = null;
    this._insert(
      inputMessage(entry, { api: this._api, path: this._path, edit: this._actions.edit, rollBack: this._actions.rollBack }),
    );
  }

  _draw_model_output(entry) {
    this._output = entry;
    const speaker = speakerOf(entry);
    // Ids count from one again in some providers' answers: a new output's calls are the ones its results are for.
    const message = outputMessage(entry, {
      api: this._api,
      path: this._path,
      fork: this._actions.fork,
      regenerate: this._actions.regenerate,
      compare: this._actions.compare,
      chipOf: (call) => this._newChip(call),
      used: this._used(entry),
      name: speaker === this._speaker ? "" : speaker,
    });
    this._insert(message);
    if (speaker !== this._speaker) this._spent = message.querySelector(".spent");
    this._speaker = speaker;
    this._showSpent(entry);
  }

  /**
   * Leave the turns that are far from the end undrawn: each is one node with its words, so that find-in-page finds them, and is
   * drawn when it comes near. A long conversation opens at once.
   *
   * @param {Entry[]} entries
   * @returns {Entry[]} those to draw now
   */
  _leaveFar(entries) {
    const shown = entries.filter(isShown);
    const starts = shown.flatMap((entry, index) => (isQuestion(entry) ? [index] : []));
    const near = starts.filter((start) => start <= shown.length - NEAR_ENTRIES).at(-1) ?? 0;
    /** @type {Entry | null} */
    let question = null;
    for (let number = 0; starts[number] < near; number += 1) {
      const turn = shown.slice(number ? starts[number] : 0, starts[number + 1]);
      const first = shown[starts[number]];
      const node = element("div", { class: "far", "data-sequence": first.sequence_number }, turn.map(wordsOf).join("\n"));
      for (const entry of turn) this._known.add(entry.sequence_number);
      this._far.set(node, { turn, question, to: turn[turn.length - 1].sequence_number });
      question = first;
      this._near.observe(node);
      this._insert(node);
    }
    this._question = question;
    return shown.slice(near);
  }

  /**
   * Draw turns in their places. What this thread knows of the end stays as it is.
   *
   * @param {Element[]} nodes
   */
  _drawFar(nodes) {
    const { _question, _speaker, _spent, _output, _turnOutputs, _chips } = this;
    const earlier = new Map();
    this._place.replace(nodes, () => {
      for (const node of nodes) {
        const { turn, question } = /** @type {FarTurn} */ (this._far.get(node));
        this._far.delete(node);
        this._near.unobserve(node);
        this._next = node;
        this._question = question;
        this._chips = new Map();
        for (const entry of turn) this._draw(entry);
        for (const [id, chip] of this._chips) earlier.set(id, chip);
      }
    });
    this._next = null;
    // Ids of calls may come again: those of the end stay.
    Object.assign(this, { _question, _speaker, _spent, _output, _turnOutputs, _chips: new Map([...earlier, ..._chips]) });
  }

  /** Draw the far turns with entries between these numbers. */
  _drawThrough(/** @type {number} */ to, from = 0) {
    const isAsked = (/** @type {FarTurn} */ { turn, to: last }) => turn[0].sequence_number <= to && last >= from;
    this._drawFar([...this._far].flatMap(([node, far]) => (isAsked(far) ? [node] : [])));
  }

  /** The time and the cost of the turn so far, under the name of its speaker. */
  _showSpent(entry) {
    if (!this._spent) return;
    const seconds = (Date.parse(entry.timestamp) - Date.parse(this._question?.timestamp ?? "")) / 1000;
    const isPriced = this._turnOutputs.every((one) => one.cost !== null && one.cost !== undefined);
    const cost = this._turnOutputs.reduce((total, one) => total + Number(one.cost ?? 0), 0);
    const facts = [seconds >= 0 && formatDuration(seconds), isPriced && cost > 0 && formatMoney(cost)];
    fill(this._spent, facts.filter(Boolean).join(" · "));
  }

  /** What the turn of an output used up to it; only the last output of a turn shows it. */
  _used(entry) {
    if (this._turnOutputs[0]?.turn !== entry.turn) this._turnOutputs = [];
    this._turnOutputs.push(entry);
    return turnUsage(this._turnOutputs);
  }

  _draw_tool_call_started(entry) {
    this._chips.get(entry.tool_call_id)?.started(entry.timestamp);
  }

  _draw_tool_call_finished(entry) {
    this._showResult(entry.result, entry);
  }

  _draw_tool_call_results(entry) {
    for (const result of entry.results) this._showResult(result, entry);
  }

  _draw_human_decision(entry) {
    this._approvals.get(entry.tool_call_id)?.node.remove();
    this._approvals.delete(entry.tool_call_id);
    this._chips.get(entry.tool_call_id)?.decided(entry.decision, entry.reason);
  }

  _draw_rollback(entry) {
    this._insert(remark(say("rolledBack", { to: formatNumber(entry.to) })));
  }

  _draw_shortened_results(entry) {
    const { shortened: count, max_chars: chars } = entry;
    if (!count) return; // all of them were notes before
    const word = chars ? "clamped" : "shortened";
    this._insert(remark(say(count === 1 ? `${word}One` : word, { count: formatNumber(count) })));
  }

  _draw_compaction(entry) {
    if (!entry.summary) {
      this._insert(remark(say("leftOut", rangeOf(entry))));
      return;
    }
    this._insert(
      element(
        "details",
        { class: "remark" },
        element("summary", {}, say("compacted", rangeOf(entry))),
        element("div", { class: "prose" }, drawn(entry.blocks[0])),
      ),
    );
  }

  /** An agent that takes over sets its instructions; only what a person set is reported as such. */
  _draw_set_system_instruction(entry) {
    const agent = agentOf(entry);
    const handOff = entry.metadata?.extra?.hand_off;
    if (handOff) {
      const words = { before: handOff.from, after: agent, reason: handOff.reason ?? "" };
      this._insert(remark(say(handOff.reason ? "handedOffBecause" : "handedOff", words)));
    } else if (!agent && this._question) this._insert(remark(say("systemChanged")));
  }

  _draw_set_memory_notebook() {
    if (this._question) this._insert(remark(say("memoryChanged")));
  }

  _showResult(result, entry) {
    const chip = this._chips.get(result.tool_call_id);
    if (chip === undefined) return;
    chip.finished(result, { timestamp: entry.timestamp });
    this._showPlans(chip);
  }

  /** Cards for the plans in a result, below the message; older cards of the same plan collapse. */
  _showPlans(chip) {
    const place = chip.node.closest(".message")?.querySelector(".plans-here");
    for (const plan of place ? plansOf(chip.call.tool_name, chip.text) : []) {
      const before = this._plans.get(plan.id);
      if (before && place.contains(before.node)) {
        before.plan = plan;
        before.draw();
        continue;
      }
      const card = new PlanCard(this._api, plan);
      place.append(card.node);
      if (before && this._place) {
        card.fold(); // a newer one is below
        continue;
      }
      before?.fold();
      this._plans.set(plan.id, card);
      if (this._place) card.refresh();
    }
  }

  _newChip(call) {
    const path = this._path;
    const chip = new ToolChip(call, this._api, (part) => media(part, this._api, path));
    this._chips.set(call.tool_call_id, chip);
    return chip;
  }

  _chipOf(call) {
    const known = this._chips.get(call.tool_call_id);
    if (known) return known;
    const chip = this._newChip(call);
    this._openDraft().chips.append(chip.node);
    return chip;
  }

  _showApprovals(calls) {
    for (const [id, card] of this._approvals) {
      if (!calls.some((call) => call.tool_call_id === id)) {
        card.node.remove();
        this._approvals.delete(id);
      }
    }
    for (const call of calls) {
      if (this._approvals.has(call.tool_call_id)) continue;
      const card = new ApprovalCard(call, (decision) => this._actions.decide(call, decision));
      this._approvals.set(call.tool_call_id, card);
      this._insert(card.node);
      announce(say("approvalTitle", { tool: call.tool_name }));
    }
  }

  _showUnfinished(state) {
    if (state.failure && !this._ending) this._setEnding(this._failureCard(state.failure));
    if (state.unfinished && !state.pending.length && !this._ending) {
      this._setEnding(
        element("div", { class: "remark with-button" }, say("unfinished"), " ", button(say("resume"), this._actions.resume)),
      );
    }
  }

  /** @param {Partial<Failure>} failure */
  _failureCard({
    provider = "",
    model = "",
    message = "",
    kind = "",
    status,
    attempts = 0,
    is_partial: isPartial,
    key_variables: keys = [],
  }) {
    const name = model.includes("/") || !provider ? model : `${provider}/${model}`;
    const facts = [
      name ? say("failedBy", { model: name, message }) : message,
      status && status >= 400 && say("failedStatus", { status }),
      attempts > 1 && say("failedAttempts", { count: attempts }),
      ADVICE[kind] === "advice_key" && !keys.length ? "" : ADVICE[kind] && say(ADVICE[kind], { variables: keys.join(", ") }),
    ];
    return element(
      "section",
      { class: "failed", role: "alert" },
      element("h2", {}, say(isPartial ? "halfAnswered" : "failed")),
      facts.filter(Boolean).map((fact) => element("p", {}, fact)),
      element(
        "div",
        { class: "buttons" },
        button(say("tryAgain"), this._actions.resume),
        button(say("anotherModel"), this._actions.chooseModel, { class: "button bare" }),
      ),
    );
  }

  _setEnding(node) {
    this._ending?.remove();
    this._ending = node;
    if (node) this._insert(node);
  }

  /**
   * The draft of the answer that is being made.
   *
   * @returns {OutputDraft}
   */
  _openDraft() {
    if (this._draft === null) {
      const reason = element("span");
      resetWaiting(reason);
      const waiting = element(
        "p",
        { class: "waiting", role: "status" },
        element("span", { class: "dots", "aria-hidden": "true" }, element("i"), element("i"), element("i")),
        reason,
      );
      const chips = element("div", { class: "chips" });
      const body = element("div", { class: "body" }, chips, waiting);
      const name = modelTitle(this._model);
      const node = row(
        "output draft",
        { label: say("answer"), name: name === this._speaker ? "" : name, sign: "now" },
        body,
        element("div", { class: "plans-here" }),
      );
      node.setAttribute("aria-busy", "true");
      const begun = performance.now();
      const spent = /** @type {Element} */ (node.querySelector(".spent"));
      const clock = setInterval(() => {
        if (!node.isConnected) return clearInterval(clock);
        const seconds = Math.round((performance.now() - begun) / 1000);
        return fill(spent, say("writingFor", { seconds: formatNumber(seconds) }));
      }, 1000);
      this._draft = { node, body, waiting, reason, chips, words: null, thought: null };
      this._node.append(node);
    }
    return this._draft;
  }

  _removeDraft() {
    this._draft?.words?.close();
    this._draft?.node.remove();
    this._draft = null;
  }

  _insert(node) {
    this._node.insertBefore(node, this._next ?? this._draft?.node ?? null);
  }

  /** Bring the end into view, and keep it there. */
  follow() {
    this._place.follow();
  }
}

/** Whether an entry is part of what is shown: what was rolled back is not. */
function isShown(entry) {
  return entry.effective !== false || entry.kind === "rollback";
}

/** Whether a turn begins with this entry. */
function isQuestion(entry) {
  return entry.kind === "model_input" && (entry.channel ?? "user") === "user";
}

/** The words of an entry as they are read, without their look. */
function wordsOf(entry) {
  return entry.kind === "model_output" ? plainText(entry.blocks ?? []) : textOf(entry.content ?? []);
}

function remark(text) {
  return element("p", { class: "remark" }, text);
}

/**
 * Highlight words in a node, without changing it: where the first one stands.
 *
 * @param {HTMLElement} node
 * @param {string[]} words
 */
function markWords(node, words) {
  if (!("highlights" in CSS)) return null;
  const ranges = [];
  const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const content = (text.textContent ?? "").toLowerCase();
    for (const word of words.map((one) => one.toLowerCase())) {
      for (let at = content.indexOf(word); at >= 0; at = content.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(text, at);
        range.setEnd(text, at + word.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
  return ranges[0]?.startContainer.parentElement;
}

/** The numbers of the entries that a compaction is about. */
function rangeOf(entry) {
  return { since: formatNumber(entry.since || 1), to: formatNumber(entry.up_to) };
}
