/* The token meter: how much of the model's window the conversation takes, and what it has cost so far. */

import { element, fill } from "../ui/dom.js";
import { figure, say } from "../ui/i18n.js";

/** Show the tokens in `state` in `node`; nothing for a conversation without any. */
export function showTokens(node, state) {
  node.hidden = !state?.tokens;
  if (!state?.tokens) return;
  const { tokens, token_limit: limit, usage } = state;
  const words = limit
    ? say("tokensOf", { tokens: figure(tokens), limit: figure(limit) })
    : say("tokensUsed", { tokens: figure(tokens) });
  const tooltip = say("usage", {
    prompt: figure(usage?.prompt_tokens ?? 0),
    completion: figure(usage?.completion_tokens ?? 0),
    cached: figure(usage?.cached_tokens ?? 0),
  });
  node.title = `${words}; ${tooltip}`;
  const share = limit ? Math.min(1, tokens / limit) : 0;
  const gauge = limit ? element("meter", { min: 0, max: 1, high: 0.8, value: share, "aria-label": words }) : null;
  fill(node, gauge, element("span", { class: "number" }, words));
}
