/* Where a message is written. What was typed is never lost: it is kept for each conversation in this tab over a reload, and
 * comes back when it could not be sent. A message written while an answer comes in waits for its end, or interrupts it. */

import { Attachments } from "./attachments.js";
import { button, element, fill } from "./dom.js";
import { notice } from "./notices.js";
import { say } from "./words.js";

const LONG_PASTE = 20_000;
const KEPT = "antiphon.draft.";

/** `does` has: send(content, interrupts) that resolves when the server took it, and stop(). */
export class Composer {
  constructor(does) {
    this._does = does;
    this._form = document.getElementById("composer");
    this._field = document.getElementById("composer-text");
    this._button = document.getElementById("send");
    this._queue = document.getElementById("queue");
    this._attachments = new Attachments(document.getElementById("attachments"));
    this._place = "";
    this._isRunning = false;
    this._isSending = false;
    this._queued = null;
    this._listen();
  }

  /** Write for the conversation `place` from here on. */
  open(place) {
    this._place = place;
    this._queued = null;
    this._field.value = sessionStorage.getItem(KEPT + place) ?? "";
    this._attachments.clear();
    this._draw();
  }

  focus() {
    this._field.focus();
  }

  /** Put words into the box, for a person to send. */
  suggest(text) {
    this._field.value = text;
    this._keep();
    this.focus();
  }

  /** Say whether an answer is being made; what waited for its end is sent then. */
  running(isRunning) {
    this._isRunning = isRunning;
    this._draw();
    if (!isRunning && this._queued !== null && !this._isSending) {
      const content = this._queued;
      this._queued = null;
      this._send(content, false);
    }
  }

  _listen() {
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this._isRunning && !this._content().length) this._does.stop();
      else this._submit();
    });
    this._field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this._submit();
    });
    this._field.addEventListener("input", () => this._keep());
    this._field.addEventListener("paste", (event) => this._paste(event));
    const picker = document.getElementById("files");
    document.getElementById("attach").addEventListener("click", () => picker.click());
    picker.addEventListener("change", async () => {
      await this._attachments.take([...picker.files]);
      picker.value = "";
      this._draw();
    });
    this._listenForDrops();
  }

  _listenForDrops() {
    const target = document.getElementById("chat");
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
      await this._attachments.take([...event.dataTransfer.files]);
      this._draw();
    });
  }

  async _paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (!files.length && text.length <= LONG_PASTE) return;
    event.preventDefault();
    if (files.length) await this._attachments.take(files);
    else await this._attachments.takeText(text);
    this._draw();
  }

  _content() {
    const text = this._field.value.trim();
    return [...(text ? [{ type: "text", text }] : []), ...this._attachments.parts];
  }

  _submit() {
    const content = this._content();
    if (!content.length || this._isSending) return;
    this._empty();
    if (this._isRunning) {
      this._queued = this._queued === null ? content : [...this._queued, ...content];
      this._draw();
    } else {
      this._send(content, false);
    }
  }

  async _send(content, interrupts) {
    this._isSending = true;
    this._draw();
    try {
      await this._does.send(content, interrupts);
    } catch (error) {
      this._giveBack(content);
      notice(say("notSent", { why: error.message }), true);
    }
    this._isSending = false;
    this._draw();
  }

  _giveBack(content) {
    const words = content
      .filter((part) => part.type === "text")
      .map((part) => part.text)
      .join("\n\n");
    this._field.value = [words, this._field.value].filter(Boolean).join("\n\n");
    this._attachments.put([...content.filter((part) => part.type !== "text"), ...this._attachments.parts]);
    this._keep();
  }

  _empty() {
    this._field.value = "";
    this._attachments.clear();
    this._keep();
  }

  _keep() {
    try {
      sessionStorage.setItem(KEPT + this._place, this._field.value);
    } catch {
      // The tab's storage is full: the words are still in the box.
    }
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
      fill(
        this._queue,
        element("span", {}, say("queued")),
        button(
          say("sendNow"),
          () => {
            const content = this._queued;
            this._queued = null;
            this._send(content, true);
          },
          { class: "button quiet" },
        ),
        button(
          say("takeBack"),
          () => {
            const content = this._queued;
            this._queued = null;
            this._giveBack(content);
            this.focus();
          },
          { class: "button quiet" },
        ),
      );
    }
  }
}
