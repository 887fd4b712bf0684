// @ts-check
/* Tokens and money: how much of the model's window the conversation takes, what it has cost so far, and what a turn cost. A
 * price that is not known is shown as unknown. */

import { element, fill } from "antiphon/dom.js";
import { cancelling, show } from "../ui/dialogs.js";
import { formatMoney, formatNumber, formatShort, say } from "antiphon/texts.js";

/** Show the tokens in `state` in `node`; nothing for a conversation without any. */
export function showTokens(node, state) {
  node.hidden = !state?.tokens;
  if (!state?.tokens) return;
  const { tokens, token_limit: limit, spending } = state;
  const words = limit
    ? say("tokensOf", { tokens: formatNumber(tokens), limit: formatNumber(limit) })
    : say("tokensUsed", { tokens: formatNumber(tokens) });
  const short = limit
    ? say("tokensOf", { tokens: formatShort(tokens), limit: formatShort(limit) })
    : say("tokensUsed", { tokens: formatShort(tokens) });
  const { prompt_tokens: prompt = 0, completion_tokens: completion = 0, cached_tokens: cached = 0 } = spending.usage;
  const used = say("usage", {
    prompt: formatNumber(prompt),
    completion: formatNumber(completion),
    cached: formatNumber(cached),
  });
  node.title = `${words}; ${used}; ${costOf(spending)}`;
  const share = limit ? Math.min(1, tokens / limit) : 0;
  const gauge = limit ? element("meter", { min: 0, max: 1, high: 0.8, value: share, "aria-label": words }) : null;
  const isPriced = spending.unpriced_calls < spending.calls;
  const money = isPriced && element("span", { class: "number money" }, formatMoney(spending.cost));
  fill(node, gauge, element("span", { class: "number tokens" }, short), money);
}

/** @param {Spending} spending */
function costOf({ cost, calls, unpriced_calls: unpriced }) {
  if (unpriced >= calls) return say("costUnknown");
  return unpriced ? say("costPartly", { money: formatMoney(cost), count: unpriced, calls }) : formatMoney(cost);
}

/** The dialog with what a conversation used and cost, by model. */
export function showUsage(/** @type {Spending} */ spending) {
  const { prompt_tokens: prompt = 0, completion_tokens: completion = 0, cached_tokens: cached = 0 } = spending.usage;
  const percent = prompt ? ` (${formatNumber(Math.round((100 * cached) / prompt))} %)` : "";
  const rows = [
    [say("usageSent"), formatNumber(prompt)],
    [say("usageCached"), formatNumber(cached) + percent],
    [say("usageReceived"), formatNumber(completion)],
    [say("usageCost"), costOf(spending)],
    ...Object.entries(spending.by_model).map(([model, cost]) => [model, formatMoney(cost)]),
  ];
  return show(
    say("usageTitle"),
    element(
      "dl",
      { class: "usage" },
      rows.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
    ),
    [cancelling(say("close"))],
    { class: "small" },
  );
}

/**
 * What a turn used and cost, in one quiet line; empty without usage.
 *
 * @param {Entry[]} outputs the model outputs of one turn
 */
export function turnUsage(outputs) {
  const counted = outputs.map((entry) => entry.metadata?.usage).filter(Boolean);
  const sum = (/** @type {string} */ name) => counted.reduce((total, usage) => total + (usage[name] ?? 0), 0);
  const [prompt, completion, cached] = [sum("prompt_tokens"), sum("completion_tokens"), sum("cached_tokens")];
  if (!prompt && !completion) return "";
  const isTour = outputs.every((entry) => entry.origin?.provider === "offline"); // not a model: it has no price
  const priced = outputs.filter((entry) => entry.cost !== null && entry.cost !== undefined);
  const money = priced.reduce((total, entry) => total + Number(entry.cost), 0);
  return [
    say("turnUsage", { prompt: formatNumber(prompt), completion: formatNumber(completion) }),
    cached && say("turnCached", { percent: formatNumber(Math.round((100 * cached) / prompt)) }),
    isTour ? "" : priced.length === counted.length ? formatMoney(money) : say("costUnknown"),
  ]
    .filter(Boolean)
    .join(" · ");
}
