// @ts-check
/* Messages of the page outside the conversation: a notice that disappears, a banner that stays while something is wrong,
 * and the text for a screen reader, which gets whole sentences of an answer, not single chunks. */

import { button, byId, element, iconButton } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";

/** How long a notice is shown, and with it what it offers. */
export const SHOWN = 6000;
const place = byId("notices");
const spoken = byId("spoken");
const banners = new Map();

/**
 * A notice that disappears; an error (`isWrong`) stays until it is closed. A notice that is there already is not repeated.
 *
 * @param {string} text
 * @param {boolean} isWrong
 * @param {{ label: string, act(): void } | null} offer what a person can do about it
 */
export function notice(text, isWrong = false, offer = null) {
  for (const shown of place.querySelectorAll(".notice")) if (shown.firstChild?.textContent === text) shown.remove();
  const line = element(
    "div",
    { class: isWrong ? "notice wrong" : "notice", role: isWrong ? "alert" : "status" },
    element("span", {}, text),
    offer &&
      button(
        offer.label,
        () => {
          line.remove();
          offer.act();
        },
        { class: "button small" },
      ),
    iconButton("close", say("close"), () => line.remove()),
  );
  place.append(line);
  while (place.children.length > 4) place.firstChild.remove();
  if (!isWrong) setTimeout(() => line.remove(), SHOWN);
}

/** A banner that stays while `key` is set; `null` removes it. */
export function setBanner(key, text) {
  if (text === null) {
    banners.get(key)?.remove();
    banners.delete(key);
  } else if (!banners.has(key)) {
    const line = element("div", { class: "notice", role: "status" }, text);
    banners.set(key, line);
    place.append(line);
  }
}

/** Copy a text. A page that came over plain HTTP from another machine has no clipboard. */
export async function copyText(text) {
  const isCopied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  notice(say(isCopied ? "copied" : "notCopied"), !isCopied);
}

/** Text for a screen reader. */
export function announce(text) {
  spoken.append(element("p", {}, text));
  while (spoken.children.length > 6) spoken.firstChild.remove();
}

/** Show an error. */
export function showError(error) {
  notice(error.message || String(error), true);
}

/** Show a fault of the page itself. It is not an answer of the server; the console has the details. */
export function showFault(error) {
  console.error(error);
  notice(say("fault", { what: error?.message || String(error) }), true);
}
