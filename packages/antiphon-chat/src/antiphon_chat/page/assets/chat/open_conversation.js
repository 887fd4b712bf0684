// @ts-check
/* The conversation the page has open: what the server knows of it, followed event by event.
 *
 * It is loaded once and then updated by events, in every tab that has it open. `last_event` is the last event that the loaded
 * entries cover, so the text of a streaming answer is sent again after a reload. If the server no longer has the events in
 * between (`Reset`), or a rollback changed the effective entries, the conversation is loaded again. */

import { EventFeed } from "./event_feed.js";

/** `handlers` has: loaded(state), event(name, data), changed(state), broken(), restored(), gone(). */
export class OpenConversation {
  /**
   * @param {import("../ui/api.js").Api} api
   * @param {string} id
   * @param {ConversationHandlers} handlers
   */
  constructor(api, id, handlers) {
    this.id = id;
    /** @type {ConversationState | null} */
    this.state = null;
    this.isRunning = false;
    this._api = api;
    this._handlers = handlers;
    /** @type {EventFeed | null} */
    this._feed = null;
    this._isClosed = false;
  }

  /** The state, which is there once `loaded` was called. */
  get loadedState() {
    if (this.state === null) throw new Error("the conversation is not loaded yet");
    return this.state;
  }

  get path() {
    return `conversations/${encodeURIComponent(this.id)}`;
  }

  async load() {
    this._feed?.stop();
    const state = await this._api.get(this.path);
    if (this._isClosed) return;
    this.state = state;
    this.isRunning = state.running;
    this._handlers.loaded(state);
    this._feed = new EventFeed(this._api, `${this.path}/events`, state.last_event, {
      event: (name, data) => this._event(name, data),
      broken: () => this._handlers.broken(),
      restored: () => this._restored(),
      gone: () => this._handlers.gone(),
    });
  }

  /** Replace the handlers. */
  setHandlers(handlers) {
    this._handlers = handlers;
  }

  close() {
    this._isClosed = true;
    this._feed?.stop();
  }

  /** Load again what is not in the events: tokens, usage, pending calls, the title. */
  async refresh() {
    const known = this.loadedState.entries.at(-1)?.sequence_number ?? 0;
    const state = await this._api.get(`${this.path}?after=${known}`).catch(() => null);
    if (state === null || this._isClosed) return;
    this.state = { ...state, entries: this.loadedState.entries };
    this._handlers.changed(this.loadedState);
  }

  async _restored() {
    this._handlers.restored();
    await this.refresh();
  }

  _event(name, data) {
    if (name === "Gone") return this._handlers.gone();
    if (name === "Reset" || (name === "EntryAppended" && data.entry.kind === "rollback")) {
      return this.load().catch(() => this._handlers.broken());
    }
    if (name === "TurnStarted" || name === "RoundStarted") this.isRunning = true;
    if (name === "EntryAppended") {
      const last = this.loadedState.entries.at(-1)?.sequence_number ?? 0;
      if (data.entry.sequence_number > last) this.loadedState.entries.push(data.entry);
    }
    if (name === "LoopFinished") this.isRunning = false;
    this._handlers.event(name, data);
    if (name === "LoopFinished") this.refresh();
    return null;
  }
}
