// @ts-check
/* The events of one conversation, from an id on, until it is closed.
 *
 * The stream is fetched, not an EventSource, so that it can carry the key. Every event has an id; after a break the next
 * request resumes after the last id received, so no event is missed or repeated. A stream that sends nothing, not even a
 * ping, for QUIET is treated as dead: a laptop that slept has such connections. Reconnects use backoff, and happen at once
 * when the network comes back. */

import { showFault } from "../ui/notifications.js";

const PAUSES = [300, 700, 1500, 3000, 6000, 12000];
const QUIET = 45_000;

/** Follows `path`. `handlers.event(name, data)`, `handlers.broken()`, `handlers.restored()` are called as it goes. */
export class EventFeed {
  constructor(api, path, after, handlers) {
    this._api = api;
    this._path = path;
    this._after = after;
    this._handlers = handlers;
    this._stopped = new AbortController();
    this._failures = 0;
    this._follow();
  }

  stop() {
    this._stopped.abort();
  }

  async _follow() {
    while (!this._stopped.signal.aborted) {
      try {
        await this._read();
      } catch (error) {
        if (this._stopped.signal.aborted) return;
        if (error.status === 404) {
          this._handlers.gone();
          return;
        }
        this._failures += 1;
        if (this._failures > 1) this._handlers.broken();
      }
      if (!this._stopped.signal.aborted) await this._pause();
    }
  }

  async _read() {
    const quiet = new AbortController();
    const signal = AbortSignal.any([this._stopped.signal, quiet.signal]);
    const response = await this._api.request("GET", `${this._path}?after=${this._after}`, {
      signal,
      headers: { accept: "text/event-stream", "last-event-id": String(this._after) },
    });
    if (this._failures) {
      this._failures = 0;
      this._handlers.restored();
    }
    const lines = new EventParser();
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    let alarm = 0;
    try {
      for (;;) {
        clearTimeout(alarm);
        alarm = setTimeout(() => quiet.abort(), QUIET);
        const { done, value } = await reader.read();
        if (done) return;
        for (const event of lines.feed(decoder.decode(value, { stream: true }))) {
          if (this._stopped.signal.aborted) return;
          if (event.id !== null) this._after = event.id;
          try {
            this._handlers.event(event.name, event.data);
          } catch (error) {
            // A fault of the page, not of the connection: show it, and continue with the next event.
            showFault(error);
          }
        }
      }
    } finally {
      clearTimeout(alarm);
    }
  }

  _pause() {
    const wait = PAUSES[Math.min(this._failures, PAUSES.length - 1)];
    return /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        const resume = () => {
          clearTimeout(timer);
          removeEventListener("online", resume);
          resolve();
        };
        const timer = setTimeout(resume, wait * (0.75 + Math.random() / 2));
        addEventListener("online", resume);
        this._stopped.signal.addEventListener("abort", resume, { once: true });
      })
    );
  }
}

/** @returns {{ name: string, id: string | null, data: string[] }} */
function noEvent() {
  return { name: "message", id: null, data: [] };
}

/** Text in pieces to whole events. */
class EventParser {
  constructor() {
    this._rest = "";
    this._event = noEvent();
  }

  *feed(text) {
    const lines = (this._rest + text).split(/\r\n|\n|\r(?!$)/);
    this._rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        const { name, id, data } = this._event;
        this._event = noEvent();
        if (data.length) yield { name, id, data: JSON.parse(data.join("\n")) };
      } else if (!line.startsWith(":")) {
        const [, field, value] = /** @type {RegExpExecArray} */ (/^([^:]*):? ?(.*)$/.exec(line));
        if (field === "event") this._event.name = value;
        else if (field === "id") this._event.id = value;
        else if (field === "data") this._event.data.push(value);
      }
    }
  }
}
