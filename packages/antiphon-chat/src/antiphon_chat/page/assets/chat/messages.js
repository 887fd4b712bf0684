// @ts-check
/* One message of the thread: the input of a user, or the output of one inference. The thread decides their position; their
 * rendering and actions are here. */

import { button, element, fill, icon, iconButton, note } from "antiphon/dom.js";
import { drawn } from "../markdown/markdown.js";
import { media } from "../ui/media.js";
import { copyText } from "../ui/notifications.js";
import { say } from "antiphon/texts.js";

const TOUR = "offline/plain";

/** A model as people call it: without the path to it. */
export function modelTitle(/** @type {string} */ model) {
  return model === TOUR ? say("guidedTour") : model.slice(model.indexOf("/") + 1);
}

/**
 * A row of the score: who speaks in the margin, a note on the line, the words.
 *
 * @param {string} kind
 * @param {{ label: string, name?: string, sign?: string, sequence?: number }} facts
 * @param {any[]} words
 */
export function row(kind, { label, name = "", sign = "", sequence }, ...words) {
  return element(
    "article",
    { class: `message ${kind}`, "aria-label": label, "data-sequence": sequence },
    element("div", { class: "who" }, element("b", {}, name), element("span", { class: "spent number" })),
    element("div", { class: "on-line" }, note(sign)),
    element("div", { class: "words" }, words),
  );
}

/** An action below a message: a sign, and its word where there is no pointer to ask with. */
/** A button below a message; `word` names it on a touch screen, where no pointer brings up the label. */
function action(name, label, onclick, word = label) {
  return element(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick },
    icon(name),
    element("span", { class: "word", "aria-hidden": "true" }, word),
  );
}

/** The words of a list of parts. */
export function textOf(content) {
  return content
    .filter((part) => part.type === "text" || part.type === "refusal")
    .map((part) => part.text)
    .join("");
}

/** A message of the user. It is shown as typed, not as Markdown. */
export function inputMessage(entry, { api, path, edit, rollBack }) {
  const words = textOf(entry.content);
  const body = element(
    "div",
    { class: "body" },
    words && element("p", { class: "typed" }, words),
    entry.content
      .filter((part) => "media_type" in part || part.type === "image" || part.type === "document")
      .map((part) => media(part, api, path)),
  );
  return row(
    "input",
    { label: say("you"), name: say("you"), sign: "asked", sequence: entry.sequence_number },
    body,
    element(
      "div",
      { class: "actions" },
      edit && action("edit", say("edit"), () => editing(body, words, (text) => edit(entry, text))),
      action("copy", say("copyMessage"), () => copyText(words)),
      rollBack && action("clock", say("rollBackHere"), () => rollBack(entry.sequence_number - 1)),
    ),
  );
}

function editing(body, words, send) {
  const before = [...body.childNodes];
  const leave = () => fill(body, before);
  const field = element("textarea", { rows: "3", value: words, "aria-label": say("edit") });
  const form = element(
    "div",
    { class: "editing" },
    field,
    element(
      "div",
      { class: "buttons" },
      button(say("sendAsBranch"), () => field.value.trim() && send(field.value), { class: "button main" }),
      button(say("cancel"), leave),
    ),
  );
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      leave();
    }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && field.value.trim()) {
      event.preventDefault();
      send(field.value);
    }
  });
  fill(body, form);
  field.focus();
  field.setSelectionRange(words.length, words.length);
}

/** The thinking of a model, collapsed. */
export class Thought {
  constructor(isLive) {
    this._words = element("div", { class: "prose" });
    this._label = element("span", {}, say(isLive ? "thinking" : "thought"));
    this.node = element(
      "details",
      { class: isLive ? "thought live" : "thought" },
      element("summary", {}, this._label),
      this._words,
    );
  }

  /** Add text; it is shown as it is written until the turn has an entry. */
  append(text) {
    this._words.classList.add("plain");
    this._words.append(text);
  }

  set(blocks) {
    fill(this._words, drawn(blocks));
  }

  close() {
    this.node.classList.remove("live");
    fill(this._label, say("thought"));
  }
}

/** The output of a model, from the log. `chipOf(call)` makes the chip of a call; `used` is what its turn used so far; `name` is
 * empty where the row above is by the same speaker. */
export function outputMessage(entry, { api, path, fork, regenerate, compare, chipOf, used, name }) {
  const body = element("div", { class: "body" });
  const words = textOf(entry.content);
  const hasCalls = entry.content.some((part) => part.type === "tool_call");
  const actions = element("div", { class: "actions" });
  const isStep = !words && hasCalls;
  const sign = entry.stop_reason === "failed" ? "partial" : isStep ? "none" : "";
  const node = row(
    "output",
    { label: speakerOf(entry) || say("answer"), name, sign, sequence: entry.sequence_number },
    body,
    element("div", { class: "plans-here" }),
    actions,
  );
  fillBody(body, entry, { api, path, chipOf });
  fill(
    actions,
    words && action("copy", say("copyMessage"), () => copyText(words), say("copy")),
    regenerate && action("again", say("regenerate"), () => regenerate(entry)),
    compare && action("compare", say("compareWith"), () => compare(entry), say("compareWord")),
    fork && action("branch", say("forkHere"), () => fork(entry.sequence_number), say("forkWord")),
    used && element("span", { class: "used" }, used),
  );
  return node;
}

function fillBody(body, entry, { api, path, chipOf }) {
  let chips = null;
  for (const [index, part] of entry.content.entries()) {
    if (part.type === "tool_call") {
      if (chips === null) body.append((chips = element("div", { class: "chips" })));
      chips.append(chipOf(part).node);
      continue;
    }
    chips = null;
    if (part.type === "thinking" && part.text) {
      const thought = new Thought(false);
      thought.set(entry.blocks[index]);
      body.append(thought.node);
    } else if (part.type === "text" || part.type === "refusal") {
      body.append(element("div", { class: "prose" }, drawn(entry.blocks[index])));
    } else if (part.type !== "thinking" && part.type !== "native") {
      body.append(media(part, api, path));
    }
  }
  if (entry.stop_reason === "failed") body.append(element("p", { class: "remark" }, say("cutOff")));
}

/** The agent an entry is from, if one wrote it. */
export function agentOf(entry) {
  const source = entry.metadata?.source ?? "";
  return source.startsWith("agent:") ? source.slice("agent:".length) : "";
}

/** Who speaks: the agent, else the model. */
export function speakerOf(entry) {
  return agentOf(entry) || modelTitle(modelOf(entry));
}

/** The model an output came from, as it is named in the menu. */
export function modelOf(entry) {
  const { provider = "", model = "" } = entry.origin ?? {};
  return provider && model && provider !== model ? `${provider}/${model}` : model || provider;
}

/**
 * The switch between the alternatives of a message: the conversation as it is, and its branches.
 *
 * @param {BranchPoint} point
 * @param {(id: string) => void} open
 */
export function branchSwitch({ conversations, current }, open) {
  const to = (/** @type {number} */ position) => () => open(conversations[position]);
  return element(
    "nav",
    { class: "branches", "aria-label": say("branchOf", { number: current + 1, all: conversations.length }) },
    iconButton("before", say("branchBefore"), to(current - 1), { disabled: current === 0 }),
    element("span", { class: "number", "aria-hidden": "true" }, `${current + 1}/${conversations.length}`),
    iconButton("chevron", say("branchAfter"), to(current + 1), { disabled: current === conversations.length - 1 }),
  );
}
