// @ts-check
/* The tools on offer, and the card of what they did: calls, failures, cache hits and time of each, in all conversations, for a
 * period. */

import { element, fill } from "antiphon/dom.js";
import { formatDuration, formatNumber, formatTime, say } from "antiphon/texts.js";
import { showError } from "../ui/notifications.js";

const PERIODS = [0, 30, 7, 1];
const COLUMNS = ["toolName", "toolCalls", "toolFailed", "toolSkipped", "toolCached", "toolMean", "toolSlowest", "toolLast"];

/** The card. */
export class ToolStatisticsCard {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {HTMLElement} node
   */
  constructor(api, node) {
    this._api = api;
    this._node = node;
    this._days = 0;
    this._result = element("div", { class: "tool-result", "aria-live": "polite" });
  }

  /** Draw the card and load its numbers. */
  async show() {
    const period = element(
      "select",
      { "aria-label": say("toolPeriod"), onchange: () => this._choose(Number(period.value)) },
      PERIODS.map((days) => element("option", { value: String(days) }, say(`toolDays_${days}`))),
    );
    period.value = String(this._days);
    const { tools } = await this._api.get("state").catch((error) => {
      showError(error);
      return { tools: [] };
    });
    fill(
      this._node,
      tools.length > 0 && offered(tools),
      element(
        "section",
        { class: "server tool-statistics", "aria-label": say("toolStatistics") },
        element("header", {}, element("h2", {}, say("toolStatistics")), period),
        this._result,
      ),
    );
    await this._load();
  }

  _choose(days) {
    this._days = days;
    return this._load();
  }

  async _load() {
    const days = this._days;
    try {
      const { tools } = await this._api.get(days ? `tools?days=${days}` : "tools");
      if (days === this._days)
        fill(this._result, tools.length ? table(tools) : element("p", { class: "quiet" }, say("toolNone")));
    } catch (error) {
      showError(error);
    }
  }
}

/** @param {ToolStatistics[]} tools */
function table(tools) {
  const head = element(
    "tr",
    {},
    COLUMNS.map((key) => element("th", { scope: "col" }, say(key))),
  );
  const rows = tools.map((tool) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("code", {}, tool.tool)),
      [tool.calls, tool.failed, tool.skipped, tool.cached].map((count) =>
        element("td", { class: "number" }, formatNumber(count)),
      ),
      [tool.mean_seconds, tool.slowest].map((seconds) =>
        element("td", { class: "number" }, seconds === null ? "–" : formatDuration(seconds)),
      ),
      element("td", {}, tool.last ? formatTime(tool.last) : "–"),
    ),
  );
  return element(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": say("toolStatistics") },
    element("table", {}, element("thead", {}, head), element("tbody", {}, rows)),
  );
}

/** The tools that a model can call here, with what a call needs. */
function offered(tools) {
  return element(
    "section",
    { class: "server", "aria-label": say("toolsOffered") },
    element("header", {}, element("h2", {}, say("toolsOffered"))),
    element(
      "ul",
      { class: "server-tools" },
      tools.map((tool) =>
        element(
          "li",
          {},
          element(
            "span",
            { class: "words" },
            element("code", {}, tool.name),
            element("small", {}, String(tool.description).split("\n")[0]),
          ),
          element("span", { class: "tag" }, say(tool.needs_approval ? "toolAsks" : tool.effect === "read" ? "toolReads" : "toolRuns")),
        ),
      ),
    ),
  );
}
