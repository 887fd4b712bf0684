// @ts-check
/* The server's API: JSON over same-origin requests. The key, where the server wants one, lives in this tab's storage and is
 * sent in a header, never in an address. Every failure is an `ApiError` whose message can be shown unchanged. */

import { currentLanguage, say } from "antiphon/texts.js";
import { ofTab } from "antiphon/storage.js";

const KEPT = "antiphon.key";
const ROOT = "/chat/api/";

/** A request that the server refused, or that did not reach it (`status` 0). */
class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The server, as the page talks to it. `askForKey` gives a key a person typed. */
export class Api {
  /** @param {(wasRefused: boolean) => Promise<string>} askForKey */
  constructor(askForKey) {
    this._askForKey = askForKey;
    /** @type {Promise<string> | null} */
    this._asking = null;
  }

  /**
   * @param {string} path
   * @returns {Promise<any>}
   */
  get(path) {
    return this._json("GET", path);
  }

  /**
   * @param {string} path
   * @returns {Promise<any>}
   */
  post(path, body = {}) {
    return this._json("POST", path, body);
  }

  /**
   * @param {string} path
   * @param {object} body
   * @returns {Promise<any>}
   */
  patch(path, body) {
    return this._json("PATCH", path, body);
  }

  /** @param {string} path */
  delete(path) {
    return this._json("DELETE", path);
  }

  /**
   * The response to a request, once it is known to be a good one.
   *
   * @param {string} method
   * @param {string} path
   * @param {{ body?: object, headers?: Record<string, string>, signal?: AbortSignal }} options
   * @returns {Promise<Response>}
   */
  async request(method, path, { body, headers = {}, signal } = {}) {
    /** @type {Record<string, string>} */
    const sent = { "accept-language": currentLanguage(), ...headers };
    if (method !== "GET") Object.assign(sent, { "content-type": "application/json", "x-antiphon-chat": "1" });
    const key = ofTab.get(KEPT);
    if (key) sent.authorization = `Bearer ${key}`;
    let response;
    try {
      response = await fetch(ROOT + path, {
        method,
        headers: sent,
        signal,
        cache: "no-store",
        keepalive: method === "DELETE", // also while the page is being left
        body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
      });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new ApiError(say(navigator.onLine ? "noServer" : "offline"), 0);
    }
    if (response.ok) return response;
    if (response.status === 401) {
      // Many requests may be refused at once; the user is prompted once.
      this._asking ??= this._askForKey(Boolean(key)).finally(() => {
        this._asking = null;
      });
      ofTab.set(KEPT, await this._asking);
      return this.request(method, path, { body, headers, signal });
    }
    throw await refusal(response);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   */
  async _json(method, path, body) {
    const response = await this.request(method, path, { body });
    const text = await response.text();
    return text ? JSON.parse(text) : {};
  }
}

/** @param {Response} response */
async function refusal(response) {
  const payload = await response.json().catch(() => null);
  const what = payload?.error?.message ?? response.statusText ?? "";
  return new ApiError(what || say("serverStatus", { status: response.status }), response.status);
}
