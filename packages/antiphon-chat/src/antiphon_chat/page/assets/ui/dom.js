// @ts-check
/* The one way nodes are made. Text goes in as text nodes and attributes by name, so nothing that came from a model, a tool or
 * a person can become markup: there is no innerHTML in this page. Addresses are let through by scheme, and handlers are
 * functions; anything else throws, here, once for all callers. */

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
  close: "m4 4 8 8M12 4l-8 8",
  edit: "M10.8 2.8 13.2 5.2 6 12.4l-3 .6.6-3z",
  fork: "M5 3v4.5A2.5 2.5 0 0 0 7.5 10H11M5 3v10M9 8l2.2 2L9 12",
  copy: "M6 5.5h7V13H6zM3 10.5V3h7",
  chevron: "m6 4 4 4-4 4",
  before: "m10 4-4 4 4 4",
  again: "M12.5 8a4.5 4.5 0 1 1-1.4-3.3M12.5 2.5v3h-3",
  compare: "M2.5 3.5h4.5v9H2.5zM9 3.5h4.5v9H9z",
  check: "m3.5 8.5 3 3 6-7",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3l2 1.5",
  file: "M4 2.5h5L12 5.5v8H4zM9 2.5v3h3",
};

/** A small icon. It is never alone: the label of its button describes it. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", `icon icon-${name}`);
  drawing.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(space, "path");
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

/** A button with words. */
export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", class: "button", onclick, ...attributes }, label);
}
