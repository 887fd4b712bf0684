// @ts-check
/* The texts of the page in the reader's language. A text is a key in both dictionaries; `{name}` in it is filled in as text. The
 * language is what the reader chose here before, else the browser's. Components redraw their texts on `language`. */

import { CHINESE } from "./locales/zh.js";
import { ENGLISH } from "./locales/en.js";
import { lasting } from "./storage.js";

/** @type {Record<string, Record<string, string>>} */
const DICTIONARIES = { en: ENGLISH, zh: CHINESE };
const KEPT = "antiphon.language";

/** @type {"en" | "zh" | string} */
let language = lasting.get(KEPT) ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
if (!(language in DICTIONARIES)) language = "en";
document.documentElement.lang = language;

/** The words for a key. */
export function say(key, values = /** @type {Record<string, unknown>} */ ({})) {
  /** @type {string} */
  const words = DICTIONARIES[language][key] ?? ENGLISH[key] ?? key;
  return words.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function currentLanguage() {
  return language;
}

/** Switch to the other language. */
export function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  lasting.set(KEPT, language);
  document.documentElement.lang = language;
  translatePage();
  document.dispatchEvent(new CustomEvent("language"));
}

/** Fill in the texts of the static page: `data-say` is its text, the others attributes. */
export function translatePage() {
  for (const node of all("[data-say]")) node.textContent = say(node.dataset.say);
  for (const node of all("[data-say-label]")) {
    node.setAttribute("aria-label", say(node.dataset.sayLabel));
    if (node.matches("button, a")) node.title = say(node.dataset.sayLabel);
  }
  for (const node of all("[data-say-placeholder]"))
    node.setAttribute("placeholder", say(node.dataset.sayPlaceholder));
}

/** @param {string} selector */
function all(selector) {
  return /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(selector));
}

const locale = () => (language === "zh" ? "zh-CN" : "en-GB");

/** A number with thousands separators. */
export function formatNumber(number) {
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: 1 }).format(number);
}

/** Dollars: two decimals from one dollar on, else four; the smallest amounts as such. */
export function formatMoney(dollars) {
  const amount = Number(dollars);
  if (amount > 0 && amount < 0.0001) return "< $0.0001";
  const digits = amount >= 1 ? 2 : 4;
  return `$${new Intl.NumberFormat(locale(), { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(amount)}`;
}

/** A time span, in its shortest form. */
export function formatDuration(seconds) {
  if (seconds < 0.0995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 99.5) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** A size, in kilobytes where that is shorter. */
export function formatSize(bytes) {
  return bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${formatNumber(bytes / 1000)} kB` : `${formatNumber(bytes / 1e6)} MB`;
}

/** The time of day, to the second. */
export function formatClock(timestamp) {
  return new Date(timestamp).toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** The time of day today, the date before. */
export function formatTime(timestamp) {
  const date = new Date(timestamp);
  if (Number.isNaN(date.getTime())) return "";
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday
    ? date.toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString(locale(), { day: "numeric", month: "short", year: "numeric" });
}
