// @ts-check
/* The MCP servers of this machine's owner: what each runs or reaches, its state, and which of its calls need approval. A command
 * is shown in full before it is first run. Secrets are sent once and never come back. */

import { cancelling, confirming, isSure, show } from "../ui/dialogs.js";
import { button, element, fill } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";
import { notice, showError } from "../ui/notifications.js";
import { enterServer } from "./mcp_form.js";

const POLL_MILLISECONDS = { idle: 3000, changing: 400 };
const APPROVALS = ["ask", "allow", "never"];

/** The list of servers and what can be done with them. */
export class McpView {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {HTMLElement} node
   */
  constructor(api, node) {
    this._api = api;
    this._node = node;
    /** @type {McpServer[]} */
    this._servers = [];
    /** @type {Map<string, McpReport>} */
    this._reports = new Map();
    /** @type {Set<string>} the servers that a request is being made for */
    this._busy = new Set();
    this._drawn = "";
    this._lostFocus = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._polling = undefined;
  }

  /** Load the list, and follow it while it is shown: a server may end by itself. */
  async show() {
    this.close();
    await this._load(true).catch(showError);
    this._poll();
  }

  close() {
    clearTimeout(this._polling);
  }

  _poll() {
    const isChanging = this._servers.some((server) => ["starting", "restarting"].includes(server.state));
    this.close();
    this._polling = setTimeout(
      async () => {
        if (this._node.closest("[hidden]")) return;
        if (!document.hidden && this._busy.size === 0) await this._load().catch(() => {});
        this._poll();
      },
      isChanging ? POLL_MILLISECONDS.changing : POLL_MILLISECONDS.idle,
    );
  }

  async _load(isForced = false) {
    const { servers } = await this._api.get("mcp");
    this._servers = servers;
    this._draw(isForced);
  }

  /** Draw the list, unless nothing changed; the focus and what was expanded stay. */
  _draw(isForced = false) {
    const state = JSON.stringify([this._servers, [...this._busy], [...this._reports]]);
    if (!isForced && state === this._drawn) return;
    this._drawn = state;
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    const focused = active?.dataset?.focus ?? (active === document.body ? this._lostFocus : "");
    const expanded = [...this._node.querySelectorAll("details[open]")].map((one) => one.getAttribute("data-server"));
    fill(
      this._node,
      element(
        "div",
        { class: "settings" },
        element("p", { class: "quiet" }, say("mcpAbout")),
        button(say("mcpAdd"), () => this._add(), { class: "button main", "data-focus": "add" }),
        this._servers.length === 0 && element("p", { class: "quiet empty" }, say("mcpNone")),
        this._servers.map((server) => this._card(server, expanded.includes(server.name))),
      ),
    );
    const control =
      focused && /** @type {HTMLElement | null} */ (this._node.querySelector(`[data-focus="${CSS.escape(focused)}"]`));
    if (control) control.focus();
    // A control that is disabled while a request runs gets the focus back after it.
    this._lostFocus = control && control.matches(":disabled") ? focused : "";
  }

  /** @param {McpServer} server @param {boolean} isExpanded */
  _card(server, isExpanded) {
    const isBusy = this._busy.has(server.name);
    const details = [
      server.folder && say("mcpInFolder", { folder: server.folder }),
      server.variables.length > 0 && say("mcpWithVariables", { names: server.variables.join(", ") }),
      server.headers.length > 0 && say("mcpWithHeaders", { names: server.headers.join(", ") }),
    ].filter(Boolean);
    return element(
      "section",
      { class: "server", "aria-label": server.name, "aria-busy": isBusy ? "true" : null },
      element(
        "header",
        {},
        element("h2", {}, server.name),
        server.is_fixed && element("span", { class: "tag" }, say("mcpFixed")),
        element("span", { class: `state ${server.state}` }, say(isBusy ? "mcp_starting" : `mcp_${server.state}`)),
      ),
      element("code", { class: "where" }, server.where),
      details.map((text) => element("p", { class: "quiet" }, text)),
      server.error &&
        element("pre", { class: "problem", tabindex: "0", role: "group", "aria-label": say("mcpProblem") }, server.error),
      this._reportOf(server),
      !server.is_fixed && this._controls(server, isBusy),
      server.tools.length > 0 && this._tools(server, isExpanded, isBusy),
    );
  }

  /** @param {McpServer} server @param {boolean} isBusy */
  _controls(server, isBusy) {
    const { name } = server;
    const enabled = element("input", {
      type: "checkbox",
      checked: server.is_enabled,
      disabled: isBusy,
      "data-focus": `on ${name}`,
      onchange: () => this._switch(server, enabled.checked),
    });
    return element(
      "div",
      { class: "controls" },
      element("label", { class: "check" }, enabled, element("span", {}, say("mcpEnabled"))),
      element(
        "label",
        { class: "choice" },
        element("span", {}, say("mcpApproval")),
        this._choice(
          `approval ${name}`,
          server.approval,
          null,
          isBusy,
          (approval) => this._change(name, { approval }),
          say("mcpApproval"),
        ),
      ),
      element(
        "div",
        { class: "buttons" },
        button(say("mcpTest"), () => this._test(server), { disabled: isBusy, "data-focus": `test ${name}` }),
        button(say("edit"), () => this._edit(server), {
          class: "button bare",
          disabled: isBusy,
          "data-focus": `edit ${name}`,
        }),
        button(say("mcpRemove"), () => this._remove(server), { class: "button bare", disabled: isBusy }),
      ),
    );
  }

  /** @param {McpServer} server @param {boolean} isExpanded @param {boolean} isBusy */
  _tools(server, isExpanded, isBusy) {
    const fallback = say("mcpAsServer", { approval: say(`mcp_approval_${server.approval}`) });
    return element(
      "details",
      { class: "server-tools", "data-server": server.name, open: isExpanded },
      element("summary", {}, say("mcpTools", { count: server.tools.length })),
      element(
        "ul",
        {},
        server.tools.map((tool) =>
          element(
            "li",
            {},
            element(
              "div",
              { class: "words" },
              element("code", {}, tool.name),
              tool.effect === "read" && element("span", { class: "tag" }, say("mcpReadOnly")),
              element("small", {}, tool.description),
            ),
            !server.is_fixed &&
              this._choice(
                `tool ${tool.name}`,
                tool.approval,
                fallback,
                isBusy,
                (approval) => this._change(server.name, { tools: { [tool.name]: approval || null } }),
                say("mcpApprovalOf", { tool: tool.name }),
              ),
          ),
        ),
      ),
    );
  }

  /**
   * @param {string} focus
   * @param {string} current
   * @param {string | null} fallback the text of no own choice, if there is that
   * @param {boolean} isBusy
   * @param {(approval: string) => void} choose
   * @param {string | null} label
   */
  _choice(focus, current, fallback, isBusy, choose, label = null) {
    const offered = fallback === null ? APPROVALS : ["", ...APPROVALS];
    const field = element(
      "select",
      { "aria-label": label, disabled: isBusy, "data-focus": focus, onchange: () => choose(field.value) },
      offered.map((one) => element("option", { value: one }, one === "" ? fallback : say(`mcp_approval_${one}`))),
    );
    field.value = current;
    return field;
  }

  /** @param {McpServer} server */
  _reportOf(server) {
    const report = this._reports.get(server.name);
    if (!report) return null;
    if (report.error)
      return element("pre", { class: "problem", tabindex: "0", role: "group", "aria-label": say("mcpProblem") }, report.error);
    const found = { tools: report.tools.length, resources: report.resources.length, prompts: report.prompts.length };
    return element(
      "div",
      { class: "report", role: "status" },
      element("p", {}, say("mcpFound", found)),
      report.resources.length > 0 && element("p", { class: "quiet" }, `${say("mcpResources")}: ${report.resources.join(", ")}`),
      report.prompts.length > 0 && element("p", { class: "quiet" }, `${say("mcpPrompts")}: ${report.prompts.join(", ")}`),
    );
  }

  async _add() {
    await enterServer(null, async (entered) => {
      const { servers } = await this._api.post("mcp", entered);
      this._servers = servers;
      this._draw(true);
      const added = this._servers.find((one) => one.name === entered.name);
      if (added) this._switch(added, true);
    });
  }

  /** @param {McpServer} server */
  async _edit(server) {
    await enterServer(server, async ({ name, ...changed }) => {
      this._reports.delete(server.name);
      await this._patch(server.name, changed);
      const after = this._servers.find((one) => one.name === server.name);
      if (server.is_enabled && after && !after.is_enabled) this._switch(after, true);
    });
  }

  /** @param {McpServer} server */
  async _remove(server) {
    if (!(await isSure(say("mcpRemoveSure", { name: server.name }), say("mcpRemove")))) return;
    await this._request(server.name, async () => {
      const { servers } = await this._api.delete(`mcp/${encodeURIComponent(server.name)}`);
      this._reports.delete(server.name);
      this._servers = servers;
      notice(say("mcpRemoved", { name: server.name }));
    });
  }

  /** @param {McpServer} server @param {boolean} enabled */
  async _switch(server, enabled) {
    const confirm = enabled ? await confirmCommand(server) : "";
    if (confirm === null) return this._draw(true);
    return this._change(server.name, { enabled, ...(confirm && { confirm }) });
  }

  /** @param {McpServer} server */
  async _test(server) {
    const confirm = await confirmCommand(server);
    if (confirm === null) return;
    await this._request(server.name, async () => {
      const { report, servers } = await this._api.post(`mcp/${encodeURIComponent(server.name)}/test`, { confirm });
      this._reports.set(server.name, report);
      this._servers = servers;
    });
  }

  _change(name, changes) {
    this._reports.delete(name);
    return this._request(name, () => this._patch(name, changes));
  }

  async _patch(name, changes) {
    const { servers } = await this._api.patch(`mcp/${encodeURIComponent(name)}`, changes);
    this._servers = servers;
    this._draw(true);
  }

  /** Make a request about a server, which is marked as busy meanwhile. */
  async _request(name, act) {
    this._busy.add(name);
    this._draw();
    try {
      await act();
    } catch (error) {
      showError(error);
    } finally {
      this._busy.delete(name);
      this._draw(true);
    }
  }
}

/**
 * Show the exact command before it is first run: its digest, empty if it was confirmed before, `null` if it must not run.
 *
 * @param {McpServer} server
 */
async function confirmCommand(server) {
  if (server.is_confirmed) return "";
  const answer = await show(
    say("mcpConfirmTitle", { name: server.name }),
    [
      element("p", {}, say("mcpConfirmText")),
      element(
        "pre",
        { class: "arguments", tabindex: "0", role: "group", "aria-label": say("mcpCommand") },
        element("code", {}, server.where),
      ),
      server.folder && element("p", {}, say("mcpInFolder", { folder: server.folder })),
      server.variables.length > 0 && element("p", {}, say("mcpWithVariables", { names: server.variables.join(", ") })),
    ],
    [cancelling(), confirming(say("mcpRun"))],
  );
  return answer === "yes" ? server.digest : null;
}
