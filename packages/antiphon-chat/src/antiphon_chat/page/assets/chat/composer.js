// @ts-check
/* Where a message is written. Nothing that was written is lost: the draft of each conversation is kept (see drafts.js), and a
 * message that could not be sent comes back. A message written while an answer comes in is queued until its end, or interrupts
 * it. */

import { Attachments } from "./attachments.js";
import { button, byId, element, fill } from "antiphon/dom.js";
import { draftOf, keepDraft, withMessage } from "./drafts.js";
import { notice } from "../ui/notifications.js";
import { say } from "antiphon/texts.js";

const LONG_PASTE = 20_000;

/** `actions` has: send(content, interrupts) that resolves when the server took it, and stop(). */
export class Composer {
  constructor(actions) {
    this._actions = actions;
    this._form = byId("composer");
    this._field = byId("composer-text");
    this._button = byId("send");
    this._queue = byId("queue");
    this._attachments = new Attachments(byId("attachments"), () => this._keep());
    this._place = "";
    this._isRunning = false;
    this._isSending = false;
    this._queued = null;
    this._listen();
  }

  /** Write for the conversation `place` from here on. What is queued there is sent when it is known that no answer is made. */
  open(place) {
    this._place = place;
    this._isRunning = false;
    this._show(draftOf(place));
  }

  /** The message that is queued in a conversation, taken out of the queue; null if there is none. */
  takeQueued(place) {
    const { queued } = draftOf(place);
    this._change(place, { ...draftOf(place), queued: null });
    return queued;
  }

  /** Put a message that was not sent back into the draft of its conversation. */
  giveBack(place, content, error) {
    this._change(place, withMessage(draftOf(place), content));
    if (error) notice(say("notSent", { why: error.message }), true);
  }

  focus() {
    this._field.focus();
  }

  /** Put what is queued here back into the box. */
  takeBack() {
    const queued = this.takeQueued(this._place);
    if (queued === null) return;
    this.giveBack(this._place, queued);
    this.focus();
  }

  /** Send a text; what is in the box stays there. */
  submit(text) {
    if (!this._isSending) this._send([{ type: "text", text }], false);
  }

  /** Say whether an answer is being made; what waited for its end is sent then. */
  running(isRunning) {
    this._isRunning = isRunning;
    this._draw();
    if (!isRunning && this._queued !== null && !this._isSending) this._send(this.takeQueued(this._place), false);
  }

  _listen() {
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this._isRunning && !this._content().length) this._actions.stop();
      else this._submit();
    });
    this._field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this._submit();
    });
    this._field.addEventListener("input", () => this._keep());
    this._field.addEventListener("paste", (event) => this._paste(event));
    const picker = byId("files");
    byId("attach").addEventListener("click", () => picker.click());
    picker.addEventListener("change", async () => {
      await this._attach(this._attachments.read([...picker.files]));
      picker.value = "";
    });
    this._listenForDrops();
  }

  _listenForDrops() {
    const target = byId("chat");
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    target.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      target.classList.add("dropping");
    });
    target.addEventListener("dragleave", (event) => {
      if (!target.contains(event.relatedTarget)) target.classList.remove("dropping");
    });
    target.addEventListener("drop", async (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      target.classList.remove("dropping");
      await this._attach(this._attachments.read([...event.dataTransfer.files]));
    });
  }

  async _paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (!files.length && text.length <= LONG_PASTE) return;
    event.preventDefault();
    await this._attach(files.length ? this._attachments.read(files) : this._attachments.readText(text));
  }

  /** Attach files to the message of the conversation that is open now, though another may be when they are read. */
  async _attach(reading) {
    const place = this._place;
    const parts = await reading;
    const draft = draftOf(place);
    this._change(place, { ...draft, parts: [...draft.parts, ...parts] });
  }

  _content() {
    const text = this._field.value.trim();
    return [...(text ? [{ type: "text", text }] : []), ...this._attachments.parts];
  }

  _submit() {
    const content = this._content();
    if (!content.length || this._isSending) return;
    const queued = this._isRunning ? [...(this._queued ?? []), ...content] : this._queued;
    this._change(this._place, { text: "", parts: [], queued });
    if (!this._isRunning) this._send(content, false);
  }

  async _send(content, interrupts) {
    const place = this._place;
    this._isSending = true;
    this._draw();
    try {
      await this._actions.send(content, interrupts);
    } catch (error) {
      this.giveBack(place, content, error);
    }
    this._isSending = false;
    this._draw();
  }

  /** Another draft for a conversation, shown if it is the one that is open. */
  _change(place, draft) {
    keepDraft(place, draft);
    if (place === this._place) this._show(draft);
  }

  _show({ text, parts, queued }) {
    this._queued = queued;
    if (this._field.value !== text) this._field.value = text;
    this._attachments.put(parts);
  }

  _keep() {
    keepDraft(this._place, { text: this._field.value, parts: this._attachments.parts, queued: this._queued });
    this._draw();
  }

  _draw() {
    const stops = this._isRunning && !this._content().length;
    this._button.classList.toggle("stops", stops);
    this._button.disabled = this._isSending || (!stops && !this._content().length);
    this._button.setAttribute("aria-label", say(stops ? "stop" : "send"));
    this._button.title = say(stops ? "stop" : "send");
    this._queue.hidden = this._queued === null;
    if (this._queued !== null) {
      const words = this._queued.map((part) => part.text || part.name || part.media_type || "").filter(Boolean);
      fill(
        this._queue,
        element("p", { class: "typed" }, words.join("\n")),
        element("small", { class: "quiet" }, say("queued")),
        element(
          "span",
          { class: "buttons" },
          button(say("sendNow"), () => this._send(this.takeQueued(this._place), true), { class: "button bare small" }),
          button(say("takeBack"), () => this.takeBack(), { class: "button bare small" }),
        ),
      );
    }
  }
}
