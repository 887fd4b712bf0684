// @ts-check
/* The dialogs: a question with its fields, the list of shortcuts, the key. All are the browser's own <dialog>, which keeps the
 * focus in and gives it back. */

import { button, element } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";

/** Show a dialog of these nodes; resolves with what it was closed with (`""`: not confirmed). */
export function show(title, nodes, buttons, attributes = {}) {
  const heading = element("h2", { id: "dialog-title" }, title);
  const form = element("form", { method: "dialog" }, heading, nodes, element("div", { class: "buttons" }, buttons));
  const dialog = element("dialog", { "aria-labelledby": "dialog-title", ...attributes }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close(event.submitter?.getAttribute("value") ?? "yes");
  });
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}

/** The button that confirms. Enter in a field is the same. */
export function confirming(label, isGrave = false) {
  return element("button", { type: "submit", value: "yes", class: isGrave ? "button grave" : "button main" }, label);
}

/** The button that does not. */
export function cancelling(label = say("cancel")) {
  return button(label, (event) => event.target.closest("dialog").close(""));
}

/**
 * A field with its label above it.
 *
 * @param {string} label
 * @param {HTMLElement} field
 * @param {string | null} hint
 */
export function labelled(label, field, hint = null) {
  return element("label", { class: "field" }, element("span", {}, label), field, hint && element("small", {}, hint));
}

/** Ask yes or no about something that cannot be undone. */
export async function isSure(question, label) {
  return (await show(question, [], [cancelling(), confirming(label, true)], { class: "small" })) === "yes";
}

/** Ask for the key of the server until one is given. */
export async function askForKey(wasRefused) {
  const field = element("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  for (;;) {
    await show(
      say("keyTitle"),
      [element("p", {}, say(wasRefused ? "keyWrong" : "keyText")), labelled(say("key"), field)],
      [confirming(say("save"))],
      { class: "small" },
    );
    if (field.value.trim()) return field.value.trim();
  }
}

const SHORTCUTS = [
  ["Enter", "shortcut_send"],
  ["Shift + Enter", "shortcut_line"],
  ["Esc", "shortcut_stop"],
  ["Alt + N", "shortcut_new"],
  ["Alt + K", "shortcut_search"],
  ["Alt + M", "shortcut_model"],
  ["Alt + H", "shortcut_history"],
  ["/", "shortcut_box"],
  ["↑ ↓", "shortcut_move"],
  ["?", "shortcut_help"],
];

/** The list of shortcuts. */
export function showShortcuts() {
  if (document.querySelector("dialog[open]")) return;
  const rows = SHORTCUTS.map(([keys, what]) => [
    element(
      "dt",
      {},
      keys.split(" ").map((key) => (key === "+" ? " " : element("kbd", {}, key))),
    ),
    element("dd", {}, say(what)),
  ]);
  show(say("shortcuts"), element("dl", { class: "shortcuts" }, rows), [cancelling(say("close"))]);
}

/** What can be set about a conversation; gives what changed, or `null`. */
export async function editSettings({ title, system, memory, limits, tags }) {
  const fields = {
    title: element("input", { type: "text", value: title, maxlength: "300" }),
    system: element("textarea", { rows: "3", value: system ?? "" }),
    memory: element("textarea", { rows: "3", value: memory ?? "" }),
  };
  const tagField = element("input", { type: "text", value: tags.join(", ") });
  const limitFields = {
    max_rounds: element("input", { type: "number", min: "1", required: true, value: limits.max_rounds }),
    max_failed_rounds: element("input", { type: "number", min: "1", required: true, value: limits.max_failed_rounds }),
    seconds: element("input", { type: "number", min: "0.1", step: "any", value: limits.seconds ?? "" }),
  };
  const answer = await show(
    say("settings"),
    [
      labelled(say("title"), fields.title),
      labelled(say("tagsLabel"), tagField, say("tagsHint")),
      labelled(say("system"), fields.system),
      labelled(say("memory"), fields.memory, say("memoryHint")),
      element(
        "fieldset",
        { class: "limits" },
        element("legend", {}, say("limits")),
        labelled(say("maxRounds"), limitFields.max_rounds),
        labelled(say("maxErrors"), limitFields.max_failed_rounds),
        labelled(say("maxSeconds"), limitFields.seconds),
        element("small", { class: "quiet" }, say("maxSecondsHint")),
      ),
    ],
    [cancelling(), confirming(say("save"))],
  );
  if (answer !== "yes") return null;
  const before = { title, system: system ?? "", memory: memory ?? "" };
  const changed = Object.entries(fields).filter(([name, field]) => field.value !== before[name]);
  /** @type {Record<string, unknown>} */
  const changes = Object.fromEntries(changed.map(([name, field]) => [name, field.value]));
  /** @type {Record<string, number | null>} */
  const chosen = Object.fromEntries(
    Object.entries(limitFields).map(([name, field]) => [name, field.value === "" ? null : Number(field.value)]),
  );
  const given = tagField.value
    .split(/[,，]/)
    .map((tag) => tag.trim())
    .filter(Boolean);
  if (given.join() !== tags.join()) changes.tags = given;
  if (Object.keys(chosen).some((name) => chosen[name] !== (limits[name] ?? null))) changes.limits = chosen;
  return changes;
}
