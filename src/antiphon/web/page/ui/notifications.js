/* Messages of the page outside the conversation: a notice that disappears, a banner that stays while something is wrong,
 * and the text for a screen reader, which gets whole sentences of an answer, not single chunks. */

import { element, iconButton } from "./dom.js";
import { say } from "./i18n.js";

const SHOWN = 6000;
const place = document.getElementById("notices");
const spoken = document.getElementById("spoken");
const standing = new Map();

/** A notice that disappears; an error (`isWrong`) stays until it is closed. */
export function notice(text, isWrong = false) {
  const line = element(
    "div",
    { class: isWrong ? "notice wrong" : "notice", role: isWrong ? "alert" : "status" },
    element("span", {}, text),
    iconButton("close", say("close"), () => line.remove()),
  );
  place.append(line);
  while (place.children.length > 4) place.firstChild.remove();
  if (!isWrong) setTimeout(() => line.remove(), SHOWN);
}

/** A banner that stays while `key` is set; `null` removes it. */
export function state(key, text) {
  if (text === null) {
    standing.get(key)?.remove();
    standing.delete(key);
  } else if (!standing.has(key)) {
    const line = element("div", { class: "notice", role: "status" }, text);
    standing.set(key, line);
    place.append(line);
  }
}

/** Text for a screen reader. */
export function speak(text) {
  spoken.append(element("p", {}, text));
  while (spoken.children.length > 6) spoken.firstChild.remove();
}

/** Show an error. */
export function failure(error) {
  notice(error.message || String(error), true);
}
