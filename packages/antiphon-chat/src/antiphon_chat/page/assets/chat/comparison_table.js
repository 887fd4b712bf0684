// @ts-check
/* The table of a comparison: for each step the calls, the answer, the time, the tokens and the cost of each model, as the server
 * reads them from the logs. What is not known is a question mark. */

import { element, fill } from "antiphon/dom.js";
import { modelTitle } from "./messages.js";
import { formatDuration, formatMoney, formatNumber, say } from "antiphon/texts.js";

const SHOWN_CHARS = 600;

/**
 * Draw the table into `node`.
 *
 * @param {HTMLElement} node
 * @param {Comparison} comparison
 */
export function drawComparison(node, { branches, steps }) {
  const names = branches.map(({ models }, index) => {
    const model = models.map(modelTitle).join(", ") || "…";
    return index ? model : say("originalModel", { model });
  });
  /** @type {HTMLElement[]} */
  const rows = [];
  let turn = 0;
  for (const step of steps) {
    if (step.turn !== turn) {
      turn = step.turn;
      const question = say("turnQuestion", { number: formatNumber(turn), text: clipped(step.question) });
      rows.push(
        element("tr", { class: "question" }, element("th", { colspan: String(names.length + 1), scope: "colgroup" }, question)),
      );
    }
    rows.push(
      element(
        "tr",
        {},
        element("th", { scope: "row", class: "number" }, `${step.turn}.${step.round}`),
        step.steps.map((one) => element("td", {}, one ? stepCell(one) : "–")),
      ),
    );
  }
  fill(
    node,
    element(
      "table",
      {},
      element("caption", { class: "unseen" }, say("stepByStep")),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("td", {}),
          names.map((name) => element("th", { scope: "col" }, name)),
        ),
      ),
      element("tbody", {}, rows),
      element(
        "tfoot",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "row" }, say("allSteps")),
          branches.map((branch) => element("td", {}, total(branch))),
        ),
      ),
    ),
  );
}

/** @param {ComparedStep} step */
function stepCell(step) {
  return [
    step.calls.map((call) =>
      element(
        "p",
        { class: "call" },
        element("code", {}, `${call.tool_name} ${clipped(call.arguments)}`),
        callMark(call) && element("span", { class: "tag" }, callMark(call)),
      ),
    ),
    !step.is_same && element("p", { class: "differs" }, say("otherCalls")),
    element("p", { class: "quiet number" }, facts(step)),
  ];
}

/** @param {{ status: string, source: string }} call */
function callMark({ status, source }) {
  if (status === "waiting") return say("callWaiting");
  if (status === "skipped") return say("callNotRun");
  if (status === "failed") return say(source === "log" ? "callFailedInLog" : "callFailed");
  return source === "log" ? say("callFromLog") : "";
}

/** @param {ComparedBranch} branch */
function total(branch) {
  const counts = say("roundsAndCalls", { rounds: formatNumber(branch.rounds), calls: formatNumber(branch.calls) });
  return [
    element("p", {}, counts),
    element("p", { class: "number" }, facts(branch)),
    branch.stopped && element("p", { class: "differs" }, stopText(branch)),
  ];
}

/** @param {ComparedBranch} branch */
function stopText({ stopped, detail }) {
  if (stopped === "waiting") return say("replayWaits", { tools: detail });
  return detail || say("turnUnfinished");
}

/** Time, tokens and cost.
 *
 * @param {{ seconds: number | null, usage: Usage | null, cost: string | null }} measured */
export function facts({ seconds, usage, cost }) {
  const sum = usage && (usage.total_tokens || (usage.prompt_tokens ?? 0) + (usage.completion_tokens ?? 0));
  const tokens = sum === null ? "?" : formatNumber(sum);
  return [
    seconds === null ? "? s" : formatDuration(seconds),
    say("tokensUsed", { tokens }),
    cost === null ? "$?" : formatMoney(cost),
  ].join(" · ");
}

/** @param {string} text */
function clipped(text) {
  return text.length <= SHOWN_CHARS ? text : `${text.slice(0, SHOWN_CHARS)}…`;
}
