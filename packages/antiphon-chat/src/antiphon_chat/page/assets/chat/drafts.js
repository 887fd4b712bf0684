// @ts-check
/* Messages that are not sent yet, one draft for each conversation: the words in the box, the files attached to them, and the
 * message that is queued until an answer ends. Drafts live as long as the tab. Over a reload they are kept in the tab's
 * storage; files that are too large for it are not, and a queued message that has such files comes back as words in the box. */

import { ofTab } from "antiphon/storage.js";

const KEPT = "antiphon.message.";
const MOST_KEPT = 1_000_000;
/** @type {Map<string, Draft>} */
const drafts = new Map();

/**
 * The draft of a conversation.
 *
 * @param {string} place
 * @returns {Draft}
 */
export function draftOf(place) {
  const known = drafts.get(place) ?? { text: "", parts: [], queued: null, ...stored(place) };
  drafts.set(place, known);
  return known;
}

/**
 * @param {string} place
 * @param {Draft} draft
 */
export function keepDraft(place, draft) {
  drafts.set(place, draft);
  ofTab.set(KEPT + place, JSON.stringify(storable(draft)));
}

/**
 * The text of a message's content.
 *
 * @param {Part[]} content
 */
function wordsOf(content) {
  return content
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n");
}

/**
 * The draft with a message put back in front of what is being written.
 *
 * @param {Draft} draft
 * @param {Part[]} content
 * @returns {Draft}
 */
export function withMessage(draft, content) {
  return {
    ...draft,
    text: [wordsOf(content), draft.text].filter(Boolean).join("\n\n"),
    parts: [...content.filter((part) => part.type !== "text"), ...draft.parts],
  };
}

/**
 * @param {Draft} draft
 * @returns {Draft}
 */
function storable(draft) {
  /** @param {Part[]} parts */
  const size = (parts) => parts.reduce((sum, part) => sum + (part.data ?? "").length, 0);
  const kept = { ...draft, parts: size(draft.parts) > MOST_KEPT ? [] : draft.parts };
  if (draft.queued === null || size(draft.queued) <= MOST_KEPT) return kept;
  return { ...kept, text: [wordsOf(draft.queued), draft.text].filter(Boolean).join("\n\n"), queued: null };
}

function stored(place) {
  try {
    return JSON.parse(ofTab.get(KEPT + place) ?? "{}");
  } catch {
    return {};
  }
}
