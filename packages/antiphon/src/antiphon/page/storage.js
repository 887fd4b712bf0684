// @ts-check
/* What the page keeps in the browser. A browser may block storage or have no room left: the page works all the same, and
 * values last as long as the tab. */

/** One of the browser's storages, with memory as the fallback. */
class BrowserStorage {
  /** @param {() => Storage} open gives the storage; a browser that blocks it throws here */
  constructor(open) {
    /** @type {Map<string, string>} */
    this._memory = new Map();
    /** @type {Storage | null} */
    this._storage = null;
    try {
      this._storage = open();
    } catch {
      // blocked
    }
  }

  /**
   * @param {string} key
   * @returns {string | null}
   */
  get(key) {
    if (this._memory.has(key)) return this._memory.get(key) ?? null;
    try {
      return this._storage?.getItem(key) ?? null;
    } catch {
      return null;
    }
  }

  /**
   * @param {string} key
   * @param {string} value
   */
  set(key, value) {
    this._memory.set(key, value);
    try {
      this._storage?.setItem(key, value);
    } catch {
      // full or blocked: the value is in memory
    }
  }
}

/** Kept for good. */
export const lasting = new BrowserStorage(() => localStorage);

/** Kept for this tab. */
export const ofTab = new BrowserStorage(() => sessionStorage);
