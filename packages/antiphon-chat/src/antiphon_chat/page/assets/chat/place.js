// @ts-check
/* What stays in view while the thread changes: its end, which is followed, or the words that a search found.
 * Otherwise what the person reads stays where it is. */

const NEAR = 120;
const SCROLL_KEYS = new Set(["PageUp", "ArrowUp", "Home", "PageDown", "ArrowDown", "End", " "]);

export class Place {
  /**
   * @param {HTMLElement} scroller
   * @param {HTMLElement} node what is scrolled
   * @param {HTMLElement} latest the button that scrolls to the end
   */
  constructor(scroller, node, latest) {
    this._scroller = scroller;
    this._latest = latest;
    this.isFollowing = true;
    /** @type {Element | null} what was found; it stays in the middle until the person scrolls */
    this._found = null;
    this._isScrolledByPerson = false;
    /** Where it was scrolled to last. */
    this._seen = { top: 0, height: 0 };
    latest.addEventListener("click", () => this.follow());
    this._listen();
    // What grows by itself (a diagram, a picture) must not push the end, or what was found, out of view.
    new ResizeObserver(() => this._settle()).observe(node);
  }

  get top() {
    return this._scroller.scrollTop;
  }

  /** Bring the end into view, and keep it there. */
  follow() {
    this._found = null;
    this.isFollowing = true;
    this._settle();
  }

  /** Bring what was found into view, and keep it there. */
  hold(/** @type {Element} */ found) {
    this._found = found;
    this.isFollowing = false;
    this._settle();
  }

  /** Go back to where the person read. */
  restore(/** @type {number} */ top) {
    this._found = null;
    this.isFollowing = false;
    this._scroller.scrollTop = top;
    this._settle();
  }

  /** After a change at the end. */
  settleSoon() {
    if (this.isFollowing) requestAnimationFrame(() => this._settle());
  }

  /**
   * Draw something in the place of each of some nodes, so that what is in the middle of the view stays there.
   *
   * @param {Element[]} nodes in the order in which they stand; something follows them
   * @param {() => void} draw inserts before each
   */
  replace(nodes, draw) {
    const scroller = this._scroller;
    const { top, height: view } = scroller.getBoundingClientRect();
    const middle = scroller.scrollTop + view / 2;
    /** From the beginning of what is scrolled. */
    const startOf = (/** @type {Element} */ node) => node.getBoundingClientRect().top - top + scroller.scrollTop;
    const before = nodes.map((node) => {
      const start = startOf(node);
      return { start, height: startOf(/** @type {Element} */ (node.nextElementSibling)) - start };
    });
    draw();
    let inserted = 0;
    let shift = 0;
    for (const [index, { start, height }] of before.entries()) {
      const drawn = startOf(nodes[index]) - start - inserted;
      inserted += drawn;
      shift += (drawn - height) * Math.min(Math.max((middle - start) / height, 0), 1);
    }
    for (const node of nodes) node.remove();
    scroller.scrollTop = middle - view / 2 + shift;
    this._settle();
  }

  _settle() {
    if (this.isFollowing) this._scroller.scrollTop = this._scroller.scrollHeight;
    else this._found?.scrollIntoView({ block: "center" });
    this._seen = { top: this._scroller.scrollTop, height: this._scroller.scrollHeight };
    this._latest.hidden = this.isFollowing;
  }

  _listen() {
    const byPerson = () => (this._isScrolledByPerson = true);
    const done = () => (this._isScrolledByPerson = false);
    for (const name of ["wheel", "touchmove"]) this._scroller.addEventListener(name, byPerson, { passive: true });
    this._scroller.addEventListener("pointerdown", (event) => {
      if (event.target === this._scroller) byPerson(); // the scroll bar
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select");
      if (SCROLL_KEYS.has(event.key) && !isTyping) byPerson();
    });
    this._scroller.addEventListener("scroll", () => this._onScroll(), { passive: true });
    this._scroller.addEventListener("scrollend", done);
  }

  _onScroll() {
    const { scrollHeight: height, scrollTop: top, clientHeight } = this._scroller;
    const moved = top - this._seen.top;
    // Find-in-page scrolls too, and the page does not get the keys for it. What is drawn above may move the thread with it;
    // only find-in-page moves it by far while nothing changes, or up while it grows.
    const isByFind = this._seen.height === height ? Math.abs(moved) > NEAR : moved < -NEAR && height > this._seen.height;
    this._seen = { top, height };
    const isAtEnd = height - top - clientHeight < NEAR;
    if (this._isScrolledByPerson || isByFind) {
      this._found = null;
      this.isFollowing = isAtEnd;
    } else if (isAtEnd && !this._found) this.isFollowing = true;
    this._latest.hidden = this.isFollowing;
  }
}
