// @ts-check
/* The one way nodes are made. Text goes in as text nodes and attributes by name, so nothing that came from a model, a tool or
 * a person can become markup: there is no innerHTML in this page. Addresses are let through by scheme, and handlers are
 * functions; anything else throws, here, once for all callers. */

const SVG = "http://www.w3.org/2000/svg";
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const REFUSED = new Set(["style", "srcdoc", "src", "action", "formaction"]);
const PICTURES = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/;

/**
 * An element with attributes and children; strings become text, `null` and `false` nothing.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} name
 * @param {Record<string, any>} attributes
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) {
      if (typeof value !== "function") throw new TypeError(`${key} must be a function`);
      node.addEventListener(key.slice(2), value);
    } else if (key === "href") {
      node.setAttribute("href", value.startsWith("#") ? value : (safeAddress(value) ?? "#"));
    } else if (key === "value" || key === "checked" || key === "disabled") {
      Object.assign(node, { [key]: value });
    } else {
      if (REFUSED.has(key)) throw new TypeError(`${key} is not set from here`);
      node.setAttribute(key, value === true ? "" : String(value));
    }
  }
  appendAll(node, children);
  return node;
}

/**
 * @param {Element} node
 * @param {Child[]} children
 */
function appendAll(node, children) {
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Give a node these children and no others.
 *
 * @template {Element} T
 * @param {T} node
 * @param {Child[]} children
 */
export function fill(node, ...children) {
  node.replaceChildren();
  appendAll(node, children);
  return node;
}

/**
 * The element of index.html with an id.
 *
 * @param {string} id
 * @returns {any} an HTMLElement of the kind that index.html has there
 */
export function byId(id) {
  const node = document.getElementById(id);
  if (node === null) throw new Error(`index.html has no element #${id}`);
  return node;
}

/** The address if a link may go there (web and mail), else `null`. */
function safeAddress(text) {
  try {
    const address = new URL(text.trim());
    return SCHEMES.has(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}

/** A link out of the page; plain text where the address may not be followed. */
export function outwardLink(address, ...children) {
  const href = safeAddress(address);
  if (href === null) return element("span", {}, children);
  return element("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}

/** An image from inline data, or `null` if the page does not show its type. */
export function picture(mediaType, data, alternative) {
  const source = `data:${mediaType};base64,${data}`;
  if (!PICTURES.test(source)) return null;
  const node = element("img", { class: "picture", alt: alternative, loading: "lazy" });
  node.src = source;
  return node;
}

/** @type {Record<string, string>} */
const ICONS = {
  add: "M8 3v10M3 8h10",
  again: "M12.5 8a4.5 4.5 0 1 1-1.4-3.3M12.5 2.5v3h-3",
  before: "m10 4-4 4 4 4",
  branch: "M4.5 2.5v4A2.5 2.5 0 0 0 7 9h1.5A2.5 2.5 0 0 1 11 11.5v2M4.5 6.5v7",
  check: "m3.5 8.5 3 3 6-7",
  chevron: "m6 4 4 4-4 4",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3l2 1.5",
  close: "m4 4 8 8M12 4l-8 8",
  compare: "M2.5 3.5h4.5v9H2.5zM9 3.5h4.5v9H9z",
  contrast: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 2.5v11",
  copy: "M6 5.5h7V13H6zM3 10.5V3h7",
  down: "m4 6 4 4 4-4",
  edit: "M10.8 2.8 13.2 5.2 6 12.4l-3 .6.6-3z",
  file: "M4 2.5h5L12 5.5v8H4zM9 2.5v3h3",
  menu: "M2.5 6h11M2.5 10h11",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  pin: "M6 2.5h4l-.5 4 2 2v1h-7v-1l2-2zM8 9.5v4",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.2 3.2",
  send: "M8 13V3M3.8 7.2 8 3l4.2 4.2",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.5 9h6l.5-9",
};

/** A small icon. It is never alone: the label of its button describes it. */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", `icon icon-${name}`);
  drawing.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", ICONS[name]);
  drawing.append(line);
  return drawing;
}

/** A button with a sign, and the words for it as label and tooltip. */
export function iconButton(name, label, onclick, attributes = {}) {
  return element(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name),
  );
}

/** The square that stands on the line; `kind` is one of theme.css. */
export function note(kind) {
  return element("i", { class: `note ${kind}`, "aria-hidden": "true" });
}

/** The mark of Antiphon: a call, then its answer. */
export function brandMark() {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 20 20");
  drawing.setAttribute("class", "brand-mark");
  drawing.setAttribute("aria-hidden", "true");
  for (const [name, path] of [
    ["call", "M1 11h8v8H1z"],
    ["reply", "M10 0h10v10H10z"],
  ]) {
    const square = document.createElementNS(SVG, "path");
    square.setAttribute("class", name);
    square.setAttribute("d", path);
    drawing.append(square);
  }
  return drawing;
}

/** A button with words. */
export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", class: "button", onclick, ...attributes }, label);
}
