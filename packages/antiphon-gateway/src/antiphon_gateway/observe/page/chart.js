// @ts-check
/* The last hour as squares on a line, one for each call, and the latency below it as two thin lines. */

import { element } from "antiphon/dom.js";
import { formatDuration, say } from "antiphon/texts.js";

const SPACE = "http://www.w3.org/2000/svg";
const HIGHEST = 20;
const STEP = 8;
const SQUARE = 6;
const FOOT = 18;

/** How many calls one square is, so that no column is higher than `HIGHEST`. */
export function callsPerSquare(minutes) {
  const most = Math.max(1, ...minutes.map((minute) => minute.requests));
  const needed = Math.ceil(most / HIGHEST);
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((size) => size >= needed) ?? needed;
}

/**
 * The squares. `retried` is the number of calls that were answered after a retry, by minute.
 *
 * @param {any[]} minutes
 * @param {Map<string, number>} retried
 */
export function squares(minutes, retried) {
  const size = callsPerSquare(minutes);
  const rows = Math.min(HIGHEST, Math.max(6, ...minutes.map((minute) => Math.ceil(minute.requests / size))));
  const [width, height] = [minutes.length * 16, rows * STEP + FOOT];
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "squares", role: "img" });
  const sum = (name) => minutes.reduce((total, minute) => total + minute[name], 0);
  const label = say("chartLabel", {
    count: sum("requests"),
    minutes: minutes.length,
    failed: sum("failed"),
    refused: sum("refused"),
  });
  drawing.setAttribute("aria-label", label);
  for (let row = 0; row <= rows; row += 4)
    drawing.append(svg("path", { class: "rule", d: `M0 ${height - FOOT - row * STEP + 0.5}h${width}` }));
  minutes.forEach((minute, position) => {
    drawing.append(
      column(minute, retried.get(minute.time) ?? 0, position * 16 + 5, height - FOOT, size, position === minutes.length - 1),
    );
    const time = minute.time.slice(11, 16);
    const isLast = position === minutes.length - 1;
    if (isLast || (Number(time.slice(3)) % 15 === 0 && position < minutes.length - 4)) {
      const words = svg("text", {
        x: position * 16 + (isLast ? 11 : 1),
        y: height - 4,
        class: isLast ? "now" : "time",
        "text-anchor": isLast ? "end" : "start",
      });
      words.textContent = isLast ? say("now") : time;
      drawing.append(words);
    }
  });
  return drawing;
}

function column(minute, retried, x, bottom, size, isNow) {
  const group = svg("g", {});
  const title = svg("title", {});
  const { requests: count, failed, refused } = minute;
  title.textContent = say("minuteTitle", { time: minute.time.slice(11, 16), count, failed, refused });
  group.append(title, svg("path", { class: "touch", d: `M${x - 5} 0h16v${bottom}h-16z` }));
  const answered = Math.max(0, minute.requests - minute.failed - minute.refused - retried);
  const kinds = [
    ["failed", minute.failed],
    ["refused", minute.refused],
    ["second", Math.min(retried, minute.requests - minute.failed - minute.refused)],
    ["answered", answered],
  ];
  let row = 0;
  for (const [kind, count] of kinds) {
    for (let drawn = 0; drawn < count; drawn += size, row += 1) {
      const isHollow = kind === "failed" || kind === "refused";
      const inset = isHollow ? 0.75 : 0;
      const isLast = isNow && kind === "answered" && drawn + size >= count;
      group.append(
        svg("rect", {
          class: isLast ? "answered current" : String(kind),
          x: x + inset,
          y: bottom - (row + 1) * STEP + 1 + inset,
          width: SQUARE - 2 * inset,
          height: SQUARE - 2 * inset,
          rx: 0.75,
        }),
      );
    }
  }
  return group;
}

/** Two lines: the p50 and the p95 of each minute that had answers. */
export function latency(minutes) {
  const [width, height] = [minutes.length * 16, 40];
  const most = Math.max(0.001, ...minutes.map((minute) => minute.p95_seconds ?? 0));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "latency", role: "img", preserveAspectRatio: "none" });
  drawing.setAttribute("aria-label", say("latencyLabel", { most: formatDuration(most) }));
  for (const [name, kind] of [
    ["p95_seconds", "p95"],
    ["p50_seconds", "p50"],
  ])
    drawing.append(
      svg("path", {
        class: kind,
        d: lineOf(
          minutes.map((minute) => minute[name]),
          most,
          height,
        ),
      }),
    );
  return drawing;
}

function lineOf(values, most, height) {
  let isDown = false;
  return values
    .map((value, position) => {
      if (value === null) {
        isDown = false;
        return "";
      }
      const y = (height - 3 - (value / most) * (height - 6)).toFixed(1);
      const point = `${isDown ? "L" : "M"}${position * 16 + 8} ${y}`;
      isDown = true;
      return position === values.length - 1 || values[position + 1] === null ? `${point}h.01` : point;
    })
    .join("");
}

/** A small row of bars, such as the days of a month; the last is today. */
export function sparkline(values, label) {
  const most = Math.max(...values, 1e-9);
  const drawing = svg("svg", {
    viewBox: `0 0 ${values.length * 5} 20`,
    class: "sparkline",
    role: "img",
    preserveAspectRatio: "xMinYMid",
  });
  drawing.setAttribute("aria-label", label);
  values.forEach((value, position) => {
    const height = value > 0 ? Math.max(1, (value / most) * 20) : 0.5;
    drawing.append(
      svg("rect", {
        x: position * 5,
        y: 20 - height,
        width: 3.5,
        height,
        class: position === values.length - 1 ? "current" : "answered",
      }),
    );
  });
  return drawing;
}

/** A bar for a share of the largest value. */
export function bar(share) {
  const node = element("span", { class: "bar", "aria-hidden": "true" });
  const inside = element("span", {});
  inside.style.width = `${Math.max(1, Math.round(share * 100))}%`;
  node.append(inside);
  return node;
}

function svg(name, attributes) {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  return node;
}
