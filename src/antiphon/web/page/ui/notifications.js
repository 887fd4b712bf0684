/* What the page says beside the conversation: a quiet line that goes by itself, a line that stays while something is wrong,
 * and the words for a screen reader, which hears whole sentences of an answer and never its single letters. */

import { element, iconButton } from "./dom.js";
import { say } from "./i18n.js";

const SHOWN = 6000;
const place = document.getElementById("notices");
const spoken = document.getElementById("spoken");
const standing = new Map();

/** A line that goes by itself; a wrong thing (`isWrong`) stays until it is closed. */
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

/** A line that stays for as long as `key` holds; `null` takes it away. */
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

/** Words for a screen reader. */
export function speak(text) {
  spoken.append(element("p", {}, text));
  while (spoken.children.length > 6) spoken.firstChild.remove();
}

/** What went wrong, said where it can be seen. */
export function failure(error) {
  notice(error.message || String(error), true);
}
