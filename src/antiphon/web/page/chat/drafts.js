/* Messages that are not sent yet, one draft for each conversation: the words in the box, the files attached to them, and the
 * message that is queued until an answer ends. Drafts live as long as the tab. Over a reload they are kept in the tab's
 * storage; files that are too large for it are not, and a queued message that has such files comes back as words in the box. */

const KEPT = "antiphon.message.";
const MOST_KEPT = 1_000_000;
const drafts = new Map();

/** The draft of a conversation: { text, parts, queued }. `queued` is the content of a message, or null. */
export function draftOf(place) {
  if (!drafts.has(place)) drafts.set(place, { text: "", parts: [], queued: null, ...stored(place) });
  return drafts.get(place);
}

export function keepDraft(place, draft) {
  drafts.set(place, draft);
  try {
    sessionStorage.setItem(KEPT + place, JSON.stringify(storable(draft)));
  } catch {
    // The tab's storage is full: the draft is still in memory.
  }
}

/** The words of a message's content. */
export function wordsOf(content) {
  return content
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n");
}

/** The draft with a message put back in front of what is being written. */
export function withMessage(draft, content) {
  return {
    ...draft,
    text: [wordsOf(content), draft.text].filter(Boolean).join("\n\n"),
    parts: [...content.filter((part) => part.type !== "text"), ...draft.parts],
  };
}

function storable(draft) {
  const size = (parts) => parts.reduce((sum, part) => sum + (part.data ?? "").length, 0);
  const kept = { ...draft, parts: size(draft.parts) > MOST_KEPT ? [] : draft.parts };
  if (draft.queued === null || size(draft.queued) <= MOST_KEPT) return kept;
  return { ...kept, text: [wordsOf(draft.queued), draft.text].filter(Boolean).join("\n\n"), queued: null };
}

function stored(place) {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT + place) ?? "{}");
  } catch {
    return {};
  }
}
