// @ts-check
/* One message of the thread: the input of a user, or the output of one inference. The thread decides their position; their
 * rendering and actions are here. */

import { button, element, fill, iconButton } from "antiphon/dom.js";
import { drawn } from "../markdown/markdown.js";
import { media } from "../ui/media.js";
import { copyText } from "../ui/notifications.js";
import { say } from "antiphon/texts.js";

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
  const node = element(
    "article",
    { class: "message input", "aria-label": say("you"), "data-sequence": entry.sequence_number },
    body,
    element(
      "div",
      { class: "actions" },
      edit && iconButton("edit", say("edit"), () => editing(body, words, (text) => edit(entry, text))),
      iconButton("copy", say("copyMessage"), () => copyText(words)),
      rollBack && iconButton("clock", say("rollBackHere"), () => rollBack(entry.sequence_number - 1)),
    ),
  );
  return node;
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
      button(say("sendAsBranch"), () => field.value.trim() && send(field.value), { class: "button primary" }),
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

/** The output of a model, from the log. `chipOf(call)` makes the chip of a call; `used` is what its turn used so far. */
export function outputMessage(entry, { api, path, fork, regenerate, compare, chipOf, used }) {
  const agent = agentOf(entry);
  const body = element("div", { class: "body" }, agent && agentName(agent));
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
  if (entry.stop_reason === "failed") body.append(element("p", { class: "note" }, say("cutOff")));
  const words = textOf(entry.content);
  const actions = element(
    "div",
    { class: "actions" },
    words && iconButton("copy", say("copyMessage"), () => copyText(words)),
    regenerate && iconButton("again", say("regenerate"), () => regenerate(entry)),
    compare && iconButton("compare", say("compareWith"), () => compare(entry)),
    fork && iconButton("branch", say("forkHere"), () => fork(entry.sequence_number)),
    used && element("span", { class: "used" }, used),
  );
  return element(
    "article",
    { class: "message output", "aria-label": agent || modelOf(entry) || say("answer"), "data-sequence": entry.sequence_number },
    body,
    element("div", { class: "plans-here" }),
    actions,
  );
}

/** The agent an entry is from, if one wrote it. */
export function agentOf(entry) {
  const source = entry.metadata?.source ?? "";
  return source.startsWith("agent:") ? source.slice("agent:".length) : "";
}

/** The line that names the agent who speaks. */
export function agentName(agent) {
  return element("p", { class: "agent" }, agent);
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
