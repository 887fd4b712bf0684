// @ts-check
/* What the cache doctor found about the request of an answer: a mark in its row of the timeline, and a note in the opened entry. */

import { element } from "antiphon/dom.js";
import { formatMoney, formatNumber, say } from "antiphon/texts.js";

/** A short mark for the row; null if there is nothing to say.
 * @param {CacheFinding | undefined} found
 */
export function cacheMark(found) {
  if (!found) return null;
  if (found.lost_tokens > 0) {
    const words = found.verdict === "no_breakpoints" ? "cacheOff" : "cacheMiss";
    return element("span", { class: "cache-mark missed" }, say(words));
  }
  const read = found.cached_tokens ?? found.predicted_tokens;
  if (!read) return null;
  const share = Math.min(100, Math.round((100 * read) / Math.max(1, found.prompt_tokens)));
  return element("span", { class: "cache-mark" }, say("cacheShare", { share: formatNumber(share) }));
}

/** The finding in full.
 * @param {CacheFinding} found
 */
export function cacheNote(found) {
  const { difference } = found;
  const reason = say(`cache_${found.verdict}`, {
    field: difference?.path ?? "",
    change: difference ? say(`change_${difference.change}`) : "",
    minimum: formatNumber(found.minimum),
  });
  const isEstimate = found.cached_tokens === null;
  return element(
    "div",
    { class: "cache-note", role: "group", "aria-label": say("cacheTitle") },
    element("p", {}, element("b", {}, say("cacheTitle")), " ", reason),
    element(
      "p",
      { class: "quiet" },
      say(isEstimate ? "cachePredicted" : "cachePredictedAndRead", {
        predicted: formatNumber(found.predicted_tokens),
        prompt: formatNumber(found.prompt_tokens),
        cached: formatNumber(found.cached_tokens ?? 0),
      }),
      found.lost_tokens > 0 && ` ${say("cacheLost", { tokens: formatNumber(found.lost_tokens), cost: cost(found) })}`,
    ),
    difference && [
      element("p", { class: "quiet" }, say("cacheWhere", { field: difference.path, byte: formatNumber(difference.byte) })),
      difference.before && excerpt(say("cacheBefore"), difference.before),
      difference.after && excerpt(say("cacheAfter"), difference.after),
    ],
  );
}

/** @param {CacheFinding} found */
function cost(found) {
  return found.lost_usd === null ? say("cacheNoPrice") : formatMoney(found.lost_usd);
}

/** @param {string} label @param {string} text */
function excerpt(label, text) {
  return element("p", { class: "cache-excerpt" }, element("span", { class: "quiet" }, label), " ", element("code", {}, text));
}
