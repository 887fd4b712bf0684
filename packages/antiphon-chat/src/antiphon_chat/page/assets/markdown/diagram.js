// @ts-check
/* Diagrams in Mermaid, drawn as pictures.
 *
 * Mermaid is large and makes markup out of what a model wrote. It is loaded when the first diagram comes into view, in a frame
 * without our origin, and what it makes is shown as an image, in which nothing runs. The source stays one button away, and is
 * what is seen until the diagram is drawn, or if it cannot be. */

import { element } from "antiphon/dom.js";
import { say } from "antiphon/texts.js";

const FRAME = "page/diagram/frame.html";
const LONGEST = 20_000;
const SETTLED_MS = 300;
const PATIENCE_MS = 15_000;
const NEAR = "600px";

/** @type {Promise<Window> | null} */
let frame = null;
/** @type {Map<number, (svg: string | undefined) => void>} */
const asked = new Map();
/** @type {Map<string, Promise<string | undefined>>} what was drawn, by look and text */
const drawings = new Map();
let count = 0;

/** Show the diagram of `text` in `place` when it comes near; `shown(isDrawn)` is called when that is known. */
export function showDiagram(place, text, shown) {
  if (text.length > LONGEST) return;
  const draw = async () => {
    if (!place.isConnected) return; // an answer that grows is drawn again and again
    const svg = await drawing(text);
    if (!svg) return shown(false);
    place.replaceChildren(image(svg, text));
    shown(true);
  };
  const watcher = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      setTimeout(draw, SETTLED_MS);
    },
    { rootMargin: NEAR },
  );
  watcher.observe(place);
  document.addEventListener("appearance", () => place.querySelector("img") && draw());
}

/** @returns {Promise<string | undefined>} */
function drawing(text) {
  const look = lookOfPage();
  const key = JSON.stringify([look, text]);
  const known = drawings.get(key) ?? request(text, look);
  drawings.set(key, known);
  return known;
}

async function request(text, look) {
  frame ??= openFrame();
  const target = await frame;
  count += 1;
  const number = count;
  return new Promise((resolve) => {
    asked.set(number, resolve);
    setTimeout(() => asked.delete(number) && resolve(undefined), PATIENCE_MS);
    target.postMessage({ number, text, look }, "*");
  });
}

/** @returns {Promise<Window>} */
function openFrame() {
  const node = element("iframe", {
    class: "diagram-frame",
    sandbox: "allow-scripts",
    title: say("diagram"),
    "aria-hidden": "true",
    tabindex: "-1",
  });
  node.src = FRAME;
  return new Promise((resolve) => {
    addEventListener("message", ({ data, source }) => {
      if (source === null || source !== node.contentWindow) return;
      if (data.isReady) resolve(node.contentWindow);
      asked.get(data.number)?.(typeof data.svg === "string" ? data.svg : undefined);
      asked.delete(data.number);
    });
    document.body.append(node);
  });
}

/** The colours of the page, as Mermaid calls them. A picture has no fonts of the page, so the system's are measured and drawn. */
function lookOfPage() {
  const probe = element("span", { hidden: true });
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const [ink, quiet, edge, sunk, raised, answer, second] = ["ink", "quiet", "edge", "sunk", "raised", "answer-wash", "second-wash"].map(
    colour,
  );
  probe.remove();
  const font = "system-ui, sans-serif";
  return {
    fontFamily: font,
    themeVariables: {
      fontFamily: font,
      background: sunk,
      primaryColor: raised,
      primaryTextColor: ink,
      primaryBorderColor: edge,
      secondaryColor: answer,
      tertiaryColor: second,
      lineColor: quiet,
      textColor: ink,
      mainBkg: raised,
      edgeLabelBackground: sunk,
      noteBkgColor: second,
      noteTextColor: ink,
    },
  };
}

/** @param {string} svg @param {string} text */
function image(svg, text) {
  const node = element("img", { class: "diagram", alt: say("diagramOf", { kind: text.trim().split(/\s/, 1)[0] }) });
  const [, width, height] = /viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"/.exec(svg) ?? [];
  if (width && height) {
    node.width = Math.ceil(Number(width));
    node.height = Math.ceil(Number(height));
  }
  // As an image an SVG has the size of its width and height, which Mermaid leaves to the page.
  const sized = svg.replace(/ width="100%"/, ` width="${node.width}" height="${node.height}"`);
  node.src = URL.createObjectURL(new Blob([sized], { type: "image/svg+xml" }));
  node.addEventListener("load", () => URL.revokeObjectURL(node.src), { once: true });
  return node;
}
