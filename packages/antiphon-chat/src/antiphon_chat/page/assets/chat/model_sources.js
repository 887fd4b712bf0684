// @ts-check
/* The sources of models: providers with a key, servers on this machine, the small local model, the tour. The card of the
 * first minute and the menu of models show the same list. A pasted key goes to the server and is kept nowhere in the page. */

import { button, element } from "antiphon/dom.js";
import { cancelling, confirming, labelled, show } from "../ui/dialogs.js";
import { formatNumber, say } from "antiphon/texts.js";

/** One phrase that says what a source is. */
export function describeSource(/** @type {ModelSource} */ source) {
  const about =
    source.kind === "key" || source.kind === "server"
      ? source.is_stored
        ? say("source_stored")
        : source.variable
          ? say("source_variable", { variable: source.variable })
          : say("source_found")
      : source.kind === "local"
        ? say(source.is_ready ? "source_local" : "source_local_missing")
        : source.kind === "tour"
          ? say("source_tour")
          : "";
  const count = source.models.length;
  return count > 1 ? [about, say("source_models", { count: formatNumber(count) })].filter(Boolean).join(" · ") : about;
}

/**
 * The card of the first minute: one button per source.
 *
 * @param {ModelSource[]} sources
 * @param {string} current the model in use
 * @param {{ choose(model: string): void, pasteKey(): void, search(provider: string): void }} actions
 */
export function sourceCard(sources, current, { choose, pasteKey, search }) {
  const rows = sources.map((source) =>
    element(
      "li",
      {},
      element(
        "button",
        {
          type: "button",
          class: "source",
          "aria-pressed": String(source.model === current),
          disabled: !source.is_ready,
          onclick: () => (source.model ? choose(source.model) : search(source.provider)),
        },
        element("span", { class: "name" }, source.kind === "tour" ? say("guidedTour") : source.model || `${source.provider}/…`),
        element("span", { class: "about" }, describeSource(source)),
      ),
    ),
  );
  return element(
    "section",
    { class: "sources", "aria-label": say("sourcesTitle") },
    element("h3", {}, say("sourcesTitle")),
    element("ul", {}, rows),
    button(say("pasteKey"), pasteKey),
  );
}

/**
 * Ask for a key of a provider; gives what was entered, or `null`.
 *
 * @param {string[]} providers
 * @param {ModelSource[]} sources
 * @param {(provider: string) => void} forget removes a key that was pasted or stored
 */
export async function askForProviderKey(providers, sources, forget) {
  const provider = element(
    "select",
    {},
    providers.map((name) => element("option", { value: name }, name)),
  );
  const field = element("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const keep = element("input", { type: "checkbox" });
  const stored = sources.filter((source) => source.is_stored);
  const answer = await show(
    say("pasteKey"),
    [
      labelled(say("provider"), provider),
      labelled(say("apiKey"), field, say("apiKeyHint")),
      element("label", { class: "check" }, keep, element("span", {}, say("storeKey"))),
      stored.length > 0 &&
        element(
          "ul",
          { class: "stored-keys" },
          stored.map((source) =>
            element(
              "li",
              {},
              element("span", {}, say("storedKey", { provider: source.provider })),
              button(say("forgetKey"), (event) => {
                event.target.closest("dialog").close("");
                forget(source.provider);
              }),
            ),
          ),
        ),
    ],
    [cancelling(), confirming(say("useKey"))],
    { class: "small" },
  );
  const key = field.value.trim();
  field.value = "";
  return answer === "yes" && key ? { provider: provider.value, key, store: keep.checked } : null;
}
