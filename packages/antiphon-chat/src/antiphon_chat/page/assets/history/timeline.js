// @ts-check
/* The log as a timeline: turns, their rounds, and in each round the entries, with what they took. The chosen entry is the
 * moment the renderings beside it are of; it is open, and shows what is stored. Arrows move from entry to entry. */

import { element, fill, iconButton } from "antiphon/dom.js";
import { cacheMark, cacheNote } from "./cache_marks.js";
import { jsonTree } from "./json_tree.js";
import { formatNumber, formatTime, say, formatDuration } from "antiphon/texts.js";

/** `choose(at)` is called when another entry is chosen, `replay(step)` to answer again from a step on. */
export class Timeline {
  constructor(node, choose, replay) {
    this._node = node;
    this._choose = choose;
    this._replay = replay;
    this._rows = new Map();
    this._stored = new Map();
    /** @type {Map<number, CacheFinding>} */
    this._caches = new Map();
    this._at = 0;
    node.addEventListener("keydown", (event) => this._key(event));
  }

  /** Draw the rounds and entries; `stored` are the entries as they are kept. */
  draw({ rounds, entries }, stored) {
    this._stored = new Map(stored.map((entry) => [entry.sequence_number, entry]));
    this._rows.clear();
    this._caches.clear();
    const longest = Math.max(0.001, ...entries.map((entry) => entry.seconds ?? 0));
    /** @type {{ number: number, rounds: { number: number, summary: any, entries: any[] }[] }[]} */
    const turns = [];
    for (const entry of entries) {
      let turn = turns.at(-1);
      if (turn === undefined || turn.number !== entry.turn) turns.push((turn = { number: entry.turn, rounds: [] }));
      let round = turn.rounds.at(-1);
      if (round === undefined || round.number !== entry.round) {
        const summary = rounds.find((one) => one.turn === entry.turn && one.number === entry.round);
        turn.rounds.push((round = { number: entry.round, summary, entries: [] }));
      }
      round.entries.push(entry);
    }
    fill(
      this._node,
      turns.map((turn) =>
        element(
          "section",
          { class: "turn" },
          element(
            "h2",
            {},
            turn.number ? say("turn", { number: formatNumber(turn.number) }) : say("before"),
            turn.number > 0 && turn.rounds.some(isEffective) && this._replayButton(`${turn.number}`),
          ),
          turn.rounds.map((round) =>
            element(
              "div",
              { class: "round" },
              round.number > 0 &&
                heading(round, round.number > 1 && isEffective(round) && this._replayButton(`${turn.number}.${round.number}`)),
              element(
                "ol",
                {},
                round.entries.map((entry) => this._row(entry, longest)),
              ),
            ),
          ),
        ),
      ),
    );
  }

  /** Mark the answers with what their requests could read from the prompt cache.
   * @param {CacheFinding[]} findings
   */
  showCaches(findings) {
    for (const found of findings) {
      const row = this._rows.get(found.sequence_number);
      if (!row) continue;
      this._caches.set(found.sequence_number, found);
      const mark = cacheMark(found);
      if (mark) row.button.querySelector(".took").append(mark);
    }
    this._showCacheNote();
  }

  /** The note about the prompt cache in the open entry, if there is one. */
  _showCacheNote() {
    const row = this._rows.get(this._at);
    const found = this._caches.get(this._at);
    if (row && found) row.button.after(cacheNote(found));
  }

  /** Open the entry at version `at`. */
  select(at, takesFocus = false) {
    const before = this._rows.get(this._at);
    before?.button.setAttribute("aria-expanded", "false");
    before?.item.classList.remove("chosen");
    before?.item.querySelector(".stored")?.remove();
    before?.item.querySelector(".cache-note")?.remove();
    this._at = at;
    const row = this._rows.get(at);
    if (!row) return;
    row.button.setAttribute("aria-expanded", "true");
    row.item.classList.add("chosen");
    const stored = this._stored.get(at);
    if (stored)
      row.item.append(
        element(
          "div",
          { class: "stored", role: "group", "aria-label": say("asStored") },
          Object.entries(shown(stored)).map(([name, value]) => jsonTree(value, name, 1)),
        ),
      );
    this._showCacheNote();
    row.item.scrollIntoView({ block: "nearest" });
    if (takesFocus) row.button.focus({ preventScroll: true });
  }

  _row(entry, longest) {
    const title = entry.kind
      .split("_")
      .map((word) => word[0].toUpperCase() + word.slice(1))
      .join("");
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${(100 * (entry.seconds ?? 0)) / longest}%`;
    const button = element(
      "button",
      { type: "button", "aria-expanded": "false", onclick: () => this._choose(entry.sequence_number) },
      element("span", { class: "number" }, formatNumber(entry.sequence_number)),
      element("span", { class: "dot", "aria-hidden": "true" }),
      element(
        "span",
        { class: "detail" },
        element(
          "span",
          { class: "kind" },
          title,
          entry.effective === false && element("span", { class: "tag" }, say("rolledBackEntry")),
        ),
        entry.excerpt && element("span", { class: "excerpt" }, entry.excerpt),
      ),
      element(
        "span",
        { class: "took" },
        entry.seconds ? element("span", {}, formatDuration(entry.seconds)) : null,
        entry.tokens ? element("span", {}, say("tokensUsed", { tokens: formatNumber(entry.tokens) })) : null,
        !entry.seconds && !entry.tokens && element("span", { class: "quiet" }, formatTime(entry.timestamp)),
      ),
      entry.seconds ? bar : null,
    );
    const item = element(
      "li",
      {
        class: entry.effective === false ? "entry past" : "entry",
        "data-kind": entry.kind,
        "data-sequence": entry.sequence_number,
      },
      button,
    );
    this._rows.set(entry.sequence_number, { item, button });
    return item;
  }

  _replayButton(step) {
    return iconButton("again", say("replayFrom", { step }), () => this._replay(step));
  }

  _key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.altKey || !event.target.closest("button[aria-expanded]")) return;
    const numbers = [...this._rows.keys()];
    const next = numbers[numbers.indexOf(this._at) + step];
    if (next === undefined) return;
    event.preventDefault();
    this._choose(next, true);
  }
}

/** Whether a round still counts. */
function isEffective({ entries }) {
  return entries.some((entry) => entry.effective !== false);
}

function heading({ number, summary }, action) {
  const facts = summary
    ? [
        summary.model,
        summary.agent,
        summary.calls.length &&
          say(summary.calls.length === 1 ? "call" : "calls", { count: formatNumber(summary.calls.length) }),
        summary.failed_calls && say("failedCalls", { count: formatNumber(summary.failed_calls) }),
        summary.seconds && formatDuration(summary.seconds),
        summary.ended,
      ]
    : [];
  return element(
    "h3",
    {},
    element(
      "span",
      { class: "round-facts" },
      element("span", {}, say("round", { number: formatNumber(number) })),
      facts.filter(Boolean).map((fact) => element("span", { class: "fact" }, fact)),
    ),
    action,
  );
}

/** The content of an entry, without what its row already shows. */
function shown(entry) {
  const { kind, sequence_number: number, turn, round, effective, blocks, cost, shortened, ...rest } = entry;
  return rest;
}
