// @ts-check
/* PlanCard: a plan to tick and edit in place. Every change is one PATCH and the response is drawn; if the server
 * refuses, an error is shown and the card is unchanged. The log has the plan as it was at the time of a call, the store has
 * the current one: a card is drawn from the log at once and from the store as soon as it answers. */

import { button, element, fill, iconButton } from "antiphon/dom.js";
import { showError } from "../ui/notifications.js";
import { formatDay, formatNumber, say } from "antiphon/texts.js";

/** One plan. */
export class PlanCard {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {Plan} plan
   */
  constructor(api, plan) {
    this.plan = plan;
    this._api = api;
    this._isGone = false;
    this.node = element("section", { class: "plan", role: "group", "data-plan": plan.id }); // not a landmark: two plans may have one title
    this.draw();
  }

  get _path() {
    return `plans/${encodeURIComponent(this.plan.id)}`;
  }

  /** Ask how the plan is now. */
  async refresh() {
    try {
      this._take(await this._api.get(this._path));
    } catch (error) {
      if (error.status === 404) {
        this._isGone = true;
        this.draw();
      }
    }
  }

  /** Mark the card as replaced by a newer one further down. */
  fold() {
    fill(this.node, element("p", { class: "below" }, say("planBelow", { title: this.plan.title })));
    this.node.classList.add("folded");
  }

  draw() {
    const { plan } = this;
    const done = plan.tasks.filter((task) => task.done).length;
    const progress = say("planProgress", { done: formatNumber(done), all: formatNumber(plan.tasks.length) });
    const bar = element("progress", { max: Math.max(1, plan.tasks.length), value: done, "aria-label": progress });
    this.node.classList.toggle("gone", this._isGone);
    this.node.setAttribute("aria-label", plan.title);
    fill(
      this.node,
      element(
        "header",
        {},
        this._editable(plan.title, say("planTitle"), (title) => ({ title }), "h2"),
        element("span", { class: `status ${plan.status}` }, this._isGone ? say("planGone") : say(`status_${plan.status}`)),
      ),
      plan.goal &&
        element(
          "p",
          { class: "goal" },
          element("span", {}, say("goal")),
          " ",
          this._editable(plan.goal, say("goal"), (goal) => ({ goal }), "span"),
        ),
      element("div", { class: "progress" }, bar, element("span", {}, progress)),
      element(
        "ul",
        {},
        plan.tasks.map((task) => this._task(task)),
      ),
      !this._isGone && this._foot(),
    );
  }

  _task(task) {
    const tick = element("input", {
      type: "checkbox",
      checked: Boolean(task.done),
      disabled: this._isGone,
      "aria-label": task.title,
      onchange: () =>
        this._change({ task_updates: [{ id: task.id, done: tick.checked }] }, `[data-task="${CSS.escape(task.id)}"] input`),
    });
    const words = element(
      "div",
      { class: "words" },
      this._editable(task.title, say("taskTitle"), (title) => ({ task_updates: [{ id: task.id, title }] }), "span"),
      task.notes && element("small", {}, task.notes),
    );
    return element(
      "li",
      { class: task.done ? "done" : "", "data-task": task.id },
      tick,
      words,
      task.due && element("time", { datetime: task.due }, say("due", { date: formatDay(task.due) })),
      !this._isGone &&
        iconButton("close", say("removeTask", { title: task.title }), () => this._change({ remove_tasks: [task.id] })),
    );
  }

  /** Text that becomes a field when it is chosen; Enter keeps, Escape leaves it. */
  _editable(text, label, changeTo, name) {
    if (this._isGone) return element(name, { class: "words" }, text);
    const shown = element(
      name,
      { class: "editable" },
      element("button", { type: "button", title: `${label}: ${say("edit")}`, onclick: () => edit() }, text),
    );
    const edit = () => {
      const field = element("input", { type: "text", value: text, "aria-label": label });
      let isOver = false;
      const end = (keeps) => {
        if (isOver) return;
        isOver = true;
        const value = field.value.trim();
        if (keeps && value && value !== text) this._change(changeTo(value));
        else field.replaceWith(shown);
      };
      field.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && !event.isComposing) end(true);
        if (event.key === "Escape") {
          event.stopPropagation();
          end(false);
          shown.firstChild.focus();
        }
      });
      field.addEventListener("blur", () => end(true));
      shown.replaceWith(field);
      field.select();
    };
    return shown;
  }

  _foot() {
    const field = element("input", {
      type: "text",
      class: "add",
      placeholder: say("addTask"),
      "aria-label": say("addTaskLabel"),
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing && field.value.trim())
        this._change({ add_tasks: [field.value.trim()] }, ".add");
    });
    const next =
      this.plan.status === "active"
        ? [
            ["finish", "done"],
            ["archive", "archived"],
          ]
        : [["reopen", "active"]];
    return element(
      "footer",
      {},
      field,
      next.map(([word, status]) => button(say(word), () => this._change({ status }), { class: "button bare" })),
    );
  }

  /**
   * @param {object} change
   * @param {string | null} focus the selector of what gets the focus afterwards
   */
  async _change(change, focus = null) {
    this.node.setAttribute("aria-busy", "true");
    try {
      this._take(await this._api.patch(this._path, { ...change, version: this.plan.version }));
    } catch (error) {
      showError(error);
      if (error.status === 409 || error.status === 404) await this.refresh();
      else this.draw();
    }
    this.node.removeAttribute("aria-busy");
    // The card was redrawn; keyboard users keep their focus.
    if (focus) /** @type {HTMLElement | null} */ (this.node.querySelector(focus))?.focus();
  }

  _take(answer) {
    this.plan = answer.plan ?? answer;
    this.draw();
  }
}
