// @ts-check
/* The token meter: how much of the model's window the conversation takes, and what it has cost so far. */

import { element, fill } from "../ui/dom.js";
import { formatNumber, say } from "../ui/i18n.js";

/** Show the tokens in `state` in `node`; nothing for a conversation without any. */
export function showTokens(node, state) {
  node.hidden = !state?.tokens;
  if (!state?.tokens) return;
  const { tokens, token_limit: limit, usage } = state;
  const words = limit
    ? say("tokensOf", { tokens: formatNumber(tokens), limit: formatNumber(limit) })
    : say("tokensUsed", { tokens: formatNumber(tokens) });
  const tooltip = say("usage", {
    prompt: formatNumber(usage?.prompt_tokens ?? 0),
    completion: formatNumber(usage?.completion_tokens ?? 0),
    cached: formatNumber(usage?.cached_tokens ?? 0),
  });
  node.title = `${words}; ${tooltip}`;
  const share = limit ? Math.min(1, tokens / limit) : 0;
  const gauge = limit ? element("meter", { min: 0, max: 1, high: 0.8, value: share, "aria-label": words }) : null;
  fill(node, gauge, element("span", { class: "number" }, words));
}
