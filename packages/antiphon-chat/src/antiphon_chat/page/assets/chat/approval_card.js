// @ts-check
/* A call that waits for a person: approve it once, approve the tool from now on, deny it with a
 * reason, or approve it with other arguments. The card is removed when a
 * decision is in the log, from any user and any tab. */

import { button, element, fill } from "antiphon/dom.js";
import { highlighted } from "../markdown/highlight.js";
import { showError } from "../ui/notifications.js";
import { pretty } from "./tool_chip.js";
import { say } from "antiphon/texts.js";

/** The card for `call`; `decide({decision, reason?, arguments?, always?})` sends the decision. */
export class ApprovalCard {
  /**
   * @param {ToolCall} call
   * @param {(decision: { decision: string, reason?: string, arguments?: string, always?: boolean }) => Promise<unknown>} decide
   */
  constructor(call, decide) {
    this.call = call;
    this._decide = decide;
    this._edits = false;
    this.node = element("section", {
      class: "approval",
      role: "group",
      "aria-label": say("approvalTitle", { tool: call.tool_name }),
    });
    this.draw();
  }

  draw() {
    const reason = element("input", { type: "text", placeholder: say("reason"), "aria-label": say("reason") });
    // A free-form call takes any text.
    const isJson = !this.call.freeform;
    const written = isJson ? pretty(this.call.arguments) : this.call.arguments;
    const field = element("textarea", {
      rows: Math.min(12, written.split("\n").length + 1),
      value: written,
      spellcheck: "false",
      "aria-label": say("arguments"),
    });
    const problem = element("p", { class: "problem", role: "alert" });
    const run = () => {
      if (!this._edits) return this._send({ decision: "approve" });
      try {
        if (isJson) JSON.parse(field.value);
      } catch (error) {
        return fill(problem, say("notJson", { why: error.message }));
      }
      return this._send({ decision: "edit", arguments: field.value });
    };
    fill(
      this.node,
      element(
        "header",
        {},
        element("h2", {}, say("approvalTitle", { tool: this.call.tool_name })),
        element("p", {}, say("approvalText")),
      ),
      this._edits
        ? field
        : element(
            "pre",
            { class: "arguments", tabindex: "0", role: "group", "aria-label": say("arguments") },
            element("code", {}, isJson ? highlighted(written, "json") : written),
          ),
      problem,
      element(
        "div",
        { class: "buttons" },
        button(say(this._edits ? "approveEdited" : "approve"), run, { class: "button primary" }),
        !this._edits && button(say("alwaysApprove"), () => this._send({ decision: "approve", always: true })),
        button(say("deny"), () => this._send({ decision: "deny", reason: reason.value.trim() })),
        button(
          say(this._edits ? "cancel" : "editArguments"),
          () => {
            this._edits = !this._edits;
            this.draw();
            /** @type {HTMLElement} */ (this.node.querySelector("textarea, .primary")).focus();
          },
          { class: "button quiet" },
        ),
      ),
      reason,
    );
  }

  async _send(decision) {
    for (const control of this.node.querySelectorAll("button, input, textarea")) control.setAttribute("disabled", "");
    try {
      await this._decide(decision);
    } catch (error) {
      showError(error);
      this.draw();
    }
  }
}
