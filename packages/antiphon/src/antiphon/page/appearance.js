// @ts-check
/* Light or dark: the system's choice until the reader makes one here, which is kept. */

import { lasting } from "./storage.js";

const KEPT = "antiphon.appearance";
const root = document.documentElement;
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

const kept = lasting.get(KEPT);
if (kept === "light" || kept === "dark") root.dataset.appearance = kept;

/** Turn to the other appearance. */
export function switchAppearance() {
  const now = root.dataset.appearance ?? (systemIsDark.matches ? "dark" : "light");
  root.dataset.appearance = now === "dark" ? "light" : "dark";
  lasting.set(KEPT, root.dataset.appearance);
  document.dispatchEvent(new Event("appearance"));
}

systemIsDark.addEventListener("change", () => document.dispatchEvent(new Event("appearance")));
