// @ts-check
/* The form of an MCP server. It stays open, with everything that was entered, until the server accepts it. */

import { cancelling, confirming, labelled, show } from "../ui/dialogs.js";
import { button, element, fill, iconButton } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";

/**
 * Ask for a server and save it; for one that exists, an empty value keeps the stored secret.
 *
 * @param {McpServer | null} server
 * @param {(entered: Record<string, any>) => Promise<void>} save
 */
export async function enterServer(server, save) {
  const name = element("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false", maxlength: "32" });
  const command = element("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  command.value = server?.where.replace(/\?…$/, "") ?? "";
  const folder = element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  folder.value = server?.folder ?? "";
  const variables = new SecretRows(say("mcpVariables"), server?.variables ?? []);
  const headers = new SecretRows(say("mcpHeaders"), server?.headers ?? []);
  const problem = element("p", { class: "problem", role: "alert" });
  const showMatching = () => {
    const isAddress = /^https?:\/\//.test(command.value.trim());
    forCommands.hidden = isAddress;
    headers.node.hidden = !isAddress;
  };
  const forCommands = element(
    "div",
    { class: "group" },
    labelled(say("mcpFolder"), folder, say("mcpFolderHint")),
    variables.node,
  );
  command.addEventListener("input", showMatching);
  showMatching();
  for (;;) {
    const answer = await show(
      server ? say("mcpEditTitle", { name: server.name }) : say("mcpAdd"),
      [
        !server && labelled(say("mcpName"), name, say("mcpNameHint")),
        labelled(say("mcpCommand"), command, say("mcpCommandHint")),
        forCommands,
        headers.node,
        problem,
      ],
      [cancelling(), confirming(say("save"))],
    );
    if (answer !== "yes") return;
    const isAddress = headers.node.hidden === false;
    try {
      await save({
        name: server?.name ?? name.value.trim(),
        command: command.value.trim(),
        folder: isAddress ? "" : folder.value.trim(),
        variables: isAddress ? {} : variables.values,
        headers: isAddress ? headers.values : {},
      });
      return;
    } catch (error) {
      fill(problem, error.message);
    }
  }
}

/** Names with values that are entered like passwords. */
class SecretRows {
  /** @param {string} title @param {string[]} names the names whose values are stored */
  constructor(title, names) {
    this._title = title;
    this._stored = new Set(names);
    this._rows = element("div", { class: "secret-rows" });
    this.node = element(
      "fieldset",
      { class: "limits" },
      element("legend", {}, title),
      this._rows,
      button(say("mcpAddRow"), () => this._add("").focus()),
    );
    for (const name of names) this._add(name);
  }

  _add(name) {
    const field = element("input", {
      type: "text",
      value: name,
      "aria-label": say("mcpRowName", { title: this._title }),
      autocomplete: "off",
      spellcheck: "false",
    });
    const value = element("input", {
      type: "password",
      "aria-label": say("mcpRowValue", { title: this._title }),
      placeholder: this._stored.has(name) ? say("mcpKeepValue") : null,
      autocomplete: "off",
    });
    const row = element(
      "div",
      { class: "secret-row" },
      field,
      value,
      iconButton("close", say("mcpRemoveRow"), () => row.remove()),
    );
    this._rows.append(row);
    return field;
  }

  /** The values by name; `null` keeps the stored one. */
  get values() {
    /** @type {Record<string, string | null>} */
    const values = {};
    for (const row of this._rows.children) {
      const [name, value] = [...row.querySelectorAll("input")].map((input) => input.value);
      if (name.trim()) values[name.trim()] = value === "" && this._stored.has(name.trim()) ? null : value;
    }
    return values;
  }
}
