// @ts-check
/* A call that waits for a person: the thing itself, drawn as it will be. They approve it once, approve the tool from now on,
 * deny it with a reason, or approve it with other arguments. The card is removed when a decision is in the log, from any user
 * and any tab. */

import { button, element, fill } from "antiphon/dom.js";
import { highlighted } from "../markdown/highlight.js";
import { showError } from "../ui/notifications.js";
import { pretty } from "./tool_chip.js";
import { formatDay, say } from "antiphon/texts.js";

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
    const plan = plannedBy(this.call);
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
        element("h2", {}, plan ? say("planApproval") : say("approvalTitle", { tool: this.call.tool_name })),
        element("span", { class: "waits" }, say("waitsForYou")),
      ),
      this._edits ? field : plan ? plannedCard(plan) : argumentList(this.call, isJson),
      !this._edits &&
        isJson &&
        element(
          "details",
          { class: "json-details" },
          element("summary", {}, say("callDetails", { tool: this.call.tool_name })),
          element(
            "pre",
            { class: "arguments", tabindex: "0", role: "group", "aria-label": say("arguments") },
            element("code", {}, highlighted(written, "json")),
          ),
        ),
      problem,
      element(
        "div",
        { class: "buttons" },
        button(say(this._edits ? "approveEdited" : plan ? "createPlan" : "approve"), run, { class: "button main" }),
        button(say(plan ? "notNow" : "deny"), () => this._send({ decision: "deny", reason: reason.value.trim() })),
        button(
          say(this._edits ? "cancel" : plan ? "changeIt" : "editArguments"),
          () => {
            this._edits = !this._edits;
            this.draw();
            /** @type {HTMLElement} */ (this.node.querySelector("textarea, .main")).focus();
          },
          { class: "button bare" },
        ),
        !this._edits &&
          button(say("alwaysApprove"), () => this._send({ decision: "approve", always: true }), { class: "button bare always" }),
      ),
      element("details", { class: "why" }, element("summary", {}, say("sayWhy")), reason),
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

/** The plan that a call would create, or null. */
function plannedBy(call) {
  if (call.tool_name !== "create_plan") return null;
  const plan = argumentsOf(call);
  const isDrawable = typeof plan?.title === "string" && (plan.tasks === undefined || Array.isArray(plan.tasks));
  return isDrawable ? plan : null;
}

function argumentsOf(call) {
  try {
    return JSON.parse(call.arguments || "{}");
  } catch {
    return null;
  }
}

/** A plan as it will look. */
function plannedCard({ title, goal, tasks = [] }) {
  const rows = tasks.map((task) => (typeof task === "string" ? { title: task } : task)).filter((task) => task?.title);
  return element(
    "div",
    { class: "proposed" },
    element("h3", {}, title),
    typeof goal === "string" && goal && element("p", { class: "goal" }, goal),
    element(
      "ul",
      {},
      rows.map((task) =>
        element(
          "li",
          {},
          element("span", { class: "box", "aria-hidden": "true" }),
          element("span", { class: "words" }, String(task.title), task.notes && element("small", {}, String(task.notes))),
          task.due && element("time", {}, say("due", { date: formatDay(String(task.due)) })),
        ),
      ),
    ),
  );
}

/** The arguments for a person: one a line, texts as they are. */
function argumentList(call, isJson) {
  const given = isJson ? argumentsOf(call) : null;
  if (given === null || typeof given !== "object" || Array.isArray(given) || !Object.keys(given).length)
    return element("pre", { class: "arguments", tabindex: "0" }, call.arguments === "{}" ? say("noArguments") : call.arguments);
  return element(
    "dl",
    { class: "argument-list", tabindex: "0", role: "group", "aria-label": say("arguments") },
    Object.entries(given).map(([name, value]) => [
      element("dt", {}, name),
      element("dd", {}, typeof value === "string" ? value : JSON.stringify(value, null, 1)),
    ]),
  );
}
