// @ts-check
/* The words of a page in the reader's language, and how numbers, times and money are written in it.
 *
 * A text is a key of both catalogues; `{name}` in it is filled in as text. The language is what the reader chose here before,
 * else the browser's. Components redraw their texts on the event `language`. */

import { lasting } from "./storage.js";

const KEPT = "antiphon.language";

/** @type {Record<string, Record<string, string>>} */
let catalogues = { en: {}, zh: {} };
/** @type {string} */
let language = lasting.get(KEPT) ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
if (!(language in catalogues)) language = "en";
document.documentElement.lang = language;

/**
 * Use these catalogues, by language.
 *
 * @param {Record<string, Record<string, string>>} given
 */
export function useTexts(given) {
  catalogues = given;
}

/** The words for a key. */
export function say(key, values = /** @type {Record<string, unknown>} */ ({})) {
  const words = catalogues[language][key] ?? catalogues.en[key] ?? key;
  return words.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** The words for a count: `key_one` for 1, else `key`, with `{count}` filled in. */
export function sayCount(key, count, values = {}) {
  const form = count === 1 && `${key}_one` in catalogues.en ? `${key}_one` : key;
  return say(form, { ...values, count: formatNumber(count) });
}

/** Whether there are words for a key. */
export function hasText(key) {
  return key in catalogues.en;
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
  for (const node of all("[data-say-placeholder]")) node.setAttribute("placeholder", say(node.dataset.sayPlaceholder));
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

/** A number in its shortest form: 12k, 1.2M. */
export function formatShort(number) {
  const [divisor, unit] = number >= 999_500 ? [1e6, "M"] : number >= 1000 ? [1e3, "k"] : [1, ""];
  const scaled = number / divisor;
  return `${scaled >= 10 || divisor === 1 ? Math.round(scaled) : Number(scaled.toFixed(1))}${unit}`;
}

/** A share as a percentage; one decimal where it tells more. */
export function formatShare(part, whole) {
  const percent = whole ? (100 * part) / whole : 0;
  return `${formatNumber(percent > 0 && percent < 10 ? Number(percent.toFixed(1)) : Math.round(percent))} %`;
}

/** Dollars: two decimals, up to three below a dollar and four below a cent if they say more; the smallest amounts as such. */
export function formatMoney(dollars) {
  const amount = Number(dollars);
  if (amount > 0 && amount < 0.0001) return "< $0.0001";
  const digits = amount >= 1 || amount === 0 ? 2 : amount >= 0.01 ? 3 : 4;
  return `$${new Intl.NumberFormat(locale(), { minimumFractionDigits: 2, maximumFractionDigits: digits }).format(amount)}`;
}

/** A time span, in its shortest form. */
export function formatDuration(seconds) {
  if (seconds < 0.0995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 0.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 99.5) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 5400) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 172_800) return `${Math.floor(whole / 3600)} h ${Math.round((whole % 3600) / 60)} min`;
  return say("days", { count: formatNumber(Math.floor(whole / 86_400)) });
}

/** A size, in kilobytes where that is shorter. */
export function formatSize(bytes) {
  return bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${formatNumber(bytes / 1000)} kB` : `${formatNumber(bytes / 1e6)} MB`;
}

/** The time of day, to the second. */
export function formatClock(timestamp) {
  return new Date(timestamp).toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** When it was, in its shortest form: the time today, the weekday this week, the date before. */
export function formatTime(timestamp) {
  const date = new Date(timestamp);
  if (Number.isNaN(date.getTime())) return "";
  const today = new Date();
  if (date.toDateString() === today.toDateString())
    return date.toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit" });
  if (today.getTime() - date.getTime() < 6 * 86_400_000) return date.toLocaleDateString(locale(), { weekday: "short" });
  const year = date.getFullYear() === today.getFullYear() ? undefined : "numeric";
  return date.toLocaleDateString(locale(), { day: "numeric", month: "short", year });
}

/** A day without a time, such as the day a task is due. */
export function formatDay(text) {
  const date = new Date(`${text}T00:00:00`);
  if (!/^\d{4}-\d\d-\d\d$/.test(text) || Number.isNaN(date.getTime())) return text;
  return date.toLocaleDateString(locale(), { weekday: "short", day: "numeric", month: "short" });
}
