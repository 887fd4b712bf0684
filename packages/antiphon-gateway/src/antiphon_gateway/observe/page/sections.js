// @ts-check
/* The sections of the status page, each drawn from the JSON: the worst fact as a sentence, the hour, the money, the upstreams. */

import { button, element, note } from "antiphon/dom.js";
import {
  formatClock,
  formatDuration,
  formatMoney,
  formatNumber,
  formatShare,
  hasText,
  say,
  sayCount,
} from "antiphon/texts.js";
import { bar, callsPerSquare, latency, sparkline, squares } from "./chart.js";

const MOST_ROWS = 12;
const LATEST = 4;
const PHONE_MINUTES = 20;
/** The class of the word for a state of a key or a target, and its note. */
const STATES = {
  healthy: ["word-good", ""],
  half_open: ["word-partial", "draft"],
  cooling: ["word-partial", "partial"],
  exhausted: ["word-bad", "failed"],
  invalid: ["word-bad", "failed"],
  disabled: ["quiet", "draft"],
  open: ["word-bad", "failed"],
};

/** A word of the field, with what it means on hover and on focus. */
export function term(key, words = say(key)) {
  return element("abbr", { title: say(`${key}_means`), tabindex: "0" }, words);
}

/** A duration in a table; a dash where there is none. */
export function seconds(value) {
  return value === null || value === undefined ? "–" : formatDuration(value);
}

const clock = (time) => time.slice(11, 19);

/** The heading of a section, and what is beside it. */
export function heading(id, title, beside) {
  return element("header", {}, element("h2", { id }, say(title)), beside);
}

function section(id, title, beside, ...inside) {
  return element("section", { "aria-labelledby": id }, heading(id, title, beside), inside);
}

const about = (words) => element("span", { class: "about" }, words);

const quiet = (words) => element("p", { class: "quiet" }, words);

/** What a chart shows, in a table that is closed at first. */
function inNumbers(name, title, shown) {
  return element("details", { class: "numbers", "data-keep": name }, element("summary", {}, say(title)), shown);
}

/** The sentence that names the worst fact. */
export function headline({ server, credentials, requests, hour }) {
  const { failing, answering } = providers(requests);
  const rejected = credentials.find((one) => one.state === "invalid");
  let words = say(hour.requests ? "head_good" : requests.length ? "head_quiet" : "head_none");
  if (hour.failed) words = sayCount("head_failed", hour.failed);
  if (rejected) words = say("head_key", { provider: rejected.provider, key: rejected.name });
  if (failing.length)
    words = say(failing.length === 1 && answering ? "head_target" : "head_targets", {
      target: failing[0],
      targets: failing.join(", "),
    });
  if (server.shared?.is_away) words = say("head_store");
  if (server.reload && !server.reload.is_applied) words = say("head_reload");
  return element("h1", {}, words);
}

/** The providers whose latest attempts all failed, and whether another one answers. */
function providers(requests) {
  /** @type {Map<string, boolean[]>} */
  const latest = new Map();
  for (const record of requests)
    for (const attempt of [...record.attempts].reverse()) {
      const seen = latest.get(attempt.provider) ?? [];
      if (seen.length < LATEST) latest.set(attempt.provider, [...seen, Boolean(attempt.error)]);
    }
  const isFailing = ([, failures]) => failures.length === LATEST && failures.every(Boolean);
  const failing = [...latest].filter(isFailing).map(([name]) => name);
  return { failing, answering: failing.length < latest.size };
}

/** What an operator has to act on. */
export function alarms({ server }) {
  const found = [];
  if (server.reload && !server.reload.is_applied)
    found.push([
      say("reload_refused", { time: clock(server.reload.time) }),
      element(
        "ul",
        {},
        server.reload.problems.map((line) => element("li", {}, line)),
      ),
    ]);
  if (server.shared?.is_away) {
    const { address, since, reason } = server.shared;
    found.push([say("store_down", { address }), element("p", {}, say("store_note", { time: clock(since), reason }))]);
  }
  if (!found.length) return null;
  return element(
    "div",
    {},
    found.map(([title, body]) =>
      element("div", { class: "alarm", role: "alert" }, note("failed"), element("div", {}, element("b", {}, title), body)),
    ),
  );
}

/** The hour in a few numbers. */
export function figures({ hour, spend }) {
  const answered = hour.requests - hour.failed - hour.refused;
  const rows = [
    [say("f_calls"), formatNumber(hour.requests), hour.refused ? [term("refused", sayCount("f_refused", hour.refused))] : ""],
    [
      say("f_answered"),
      formatShare(answered, answered + hour.failed),
      hour.failed ? element("span", { class: "word-bad" }, term("failed", sayCount("f_failed", hour.failed))) : "",
    ],
    [
      [say("f_first"), " ", term("ttft")],
      seconds(hour.first_token_p50_seconds),
      [term("p95"), ` ${seconds(hour.first_token_p95_seconds)}`],
    ],
    [[say("f_whole"), " ", term("p50")], seconds(hour.p50_seconds), [term("p95"), ` ${seconds(hour.p95_seconds)}`]],
    [term("cache", say("f_cache")), formatShare(hour.cached_tokens, hour.prompt_tokens), ""],
    spend?.today && [say("f_today"), cost(spend.today), ""],
  ];
  return element(
    "dl",
    { class: "figures" },
    rows
      .filter(Boolean)
      .map(([name, value, more]) =>
        element(
          "div",
          {},
          element("dt", {}, name),
          element("dd", {}, element("span", { class: "value" }, value), more && element("small", {}, more)),
        ),
      ),
  );
}

/** The calls of the last hour; a narrow screen has room for the last minutes. */
export function hour({ minutes, requests }) {
  const isNarrow = matchMedia("(max-width: 720px)").matches;
  const shown = isNarrow ? minutes.slice(-PHONE_MINUTES) : minutes;
  const retried = new Map();
  for (const record of requests) {
    if (record.outcome !== "answered" || record.attempts.length < 2) continue;
    const minute = shown.find((one) => one.time.slice(0, 16) === record.time.slice(0, 16));
    if (minute) retried.set(minute.time, (retried.get(minute.time) ?? 0) + 1);
  }
  const size = callsPerSquare(shown);
  const key = [
    ["answered", say("o_answered")],
    ["partial", term("secondTry")],
    ["asked", term("refused", say("refused_word"))],
    ["refused", term("failed", say("failed_word"))],
  ];
  const rows = minutes.filter((one) => one.requests).reverse();
  const cells = (one) => [
    one.time.slice(11, 16),
    one.requests,
    one.refused,
    one.failed,
    seconds(one.p50_seconds),
    seconds(one.p95_seconds),
    seconds(one.first_token_p50_seconds),
  ];
  return section(
    "hour",
    isNarrow ? "minutes20" : "hour",
    [
      about(size === 1 ? say("square_one") : say("square", { count: formatNumber(size) })),
      element(
        "ul",
        { class: "key" },
        key.map(([kind, words]) => element("li", {}, note(kind), words)),
      ),
    ],
    squares(shown, retried),
    element("p", { class: "about" }, say("latency")),
    latency(shown),
    inNumbers(
      "numbers",
      "numbers",
      rows.length
        ? table(["minute", "requests", "refused", "failed", "p50", "p95", "first_p50"], rows.map(cells), 1)
        : quiet(say("no_requests")),
    ),
  );
}

/** What was spent: by key, by model and by day. */
export function spend({ spend: spent, server }) {
  if (!spent) return null;
  const period = about(say("spendDays", { days: spent.days }));
  const problem = !spent.is_on
    ? say("spend_off")
    : spent.problem
      ? say("spend_problem", { problem: spent.problem })
      : !spent.by_day.length
        ? say("spend_none")
        : "";
  if (!spent.by_day.length) return section("spend", "spend", period, quiet(problem));
  const days = new Map(spent.by_day.map((row) => [row.day, Number(row.cost ?? 0)]));
  const daily = Array.from({ length: spent.days }, (_, back) => {
    const day = new Date(Date.parse(server.now) - (spent.days - 1 - back) * 86_400_000);
    return days.get(day.toISOString().slice(0, 10)) ?? 0;
  });
  return section(
    "spend",
    "spend",
    [period, sparkline(daily, say("by_day"))],
    problem && quiet(problem),
    element(
      "div",
      { class: "pair" },
      spenders("by_key", spent.by_key, (row) => row.key || say("none")),
      spenders("by_model", spent.by_model, (row) => row.model),
    ),
    inNumbers(
      "days",
      "by_day",
      table(
        ["day", "cost", "calls", "tokens"],
        spent.by_day.map((row) => [row.day, cost(row), calls(row), formatNumber(tokensOf(row))]),
        1,
      ),
    ),
    element("p", { class: "about" }, say("spendNote")),
  );
}

function spenders(title, rows, nameOf) {
  const most = Math.max(...rows.map((row) => Number(row.cost ?? 0)), 1e-9);
  return element(
    "div",
    {},
    element("h3", {}, say(title)),
    element(
      "ul",
      { class: "spenders" },
      rows
        .slice(0, MOST_ROWS)
        .map((row) =>
          element(
            "li",
            {},
            element("span", { class: "name", title: row.provider ? `${row.provider}/${row.model}` : null }, nameOf(row)),
            bar(Number(row.cost ?? 0) / most),
            element("span", { class: "number" }, cost(row)),
            element("span", { class: "number quiet", title: `${formatNumber(tokensOf(row))} ${say("tokens")}` }, [
              calls(row),
              " ",
              say("calls").toLowerCase(),
            ]),
          ),
        ),
    ),
    rows.length > MOST_ROWS &&
      element("p", { class: "about" }, say("more_rows", { count: formatNumber(rows.length - MOST_ROWS) })),
  );
}

const tokensOf = (row) => row.usage.total_tokens || (row.usage.prompt_tokens ?? 0) + (row.usage.completion_tokens ?? 0);

function cost(row) {
  const money = Number(row.cost ?? 0);
  if (!money && (row.cost === null || row.unpriced_calls)) return element("span", { class: "word-partial" }, say("unknown"));
  const more =
    row.unpriced_calls > 0 &&
    element("small", { class: "word-partial" }, ` ${say("unpriced", { count: formatNumber(row.unpriced_calls) })}`);
  return element("span", {}, formatMoney(money), more);
}

function calls(row) {
  const estimated =
    row.estimated_calls > 0 &&
    element("small", { class: "quiet" }, ` ${say("estimated", { count: formatNumber(row.estimated_calls) })}`);
  return element("span", {}, formatNumber(row.calls), estimated);
}

/** How each target answers. */
export function targets({ targets: all, requests }) {
  if (!all.length) return null;
  const rows = all
    .slice(0, MOST_ROWS)
    .map((one) => [
      element(
        "span",
        { class: "target" },
        note(one.failed === one.requests ? "failed" : one.failed ? "partial" : ""),
        one.target,
      ),
      formatNumber(one.requests),
      one.failed
        ? element(
            "span",
            { class: one.failed === one.requests ? "word-bad" : "word-partial" },
            formatShare(one.failed, one.requests),
          )
        : "0 %",
      seconds(one.p50_seconds),
      seconds(one.p95_seconds),
      seconds(one.ttft_p50_seconds),
      seconds(one.ttft_p95_seconds),
      formatShare(one.cached_tokens, one.prompt_tokens),
    ]);
  const heads = [
    say("target"),
    say("requests"),
    term("failed", say("error_rate")),
    term("p50"),
    term("p95"),
    [term("ttft"), " ", term("p50")],
    [term("ttft"), " ", term("p95")],
    term("cache", say("f_cache")),
  ];
  return section(
    "targets",
    "targets",
    about(say("targets_note", { count: formatNumber(requests.length) })),
    table(heads, rows, 1),
  );
}

/** The keys of the providers, which can be switched off and on. */
export function credentials({ credentials: all, server }, choose) {
  const rows = all.map((row) => {
    const isOff = row.state === "disabled";
    const act = button(
      [say(isOff ? "enable" : "disable"), element("span", { class: "unseen" }, ` ${row.name}`)],
      () => choose(row, isOff),
      { class: "button small", "data-focus": `${row.provider} ${row.name}` },
    );
    const shown = row.name === row.masked ? row.name : [row.name, " ", element("span", { class: "quiet" }, row.masked)];
    return [
      element("span", { class: "target" }, note(STATES[row.state]?.[1] ?? ""), row.provider),
      element("span", {}, shown),
      element(
        "div",
        {},
        states(row).map((one) => element("div", {}, state(one, server.now))),
      ),
      formatNumber(row.calls),
      row.failures ? element("span", { class: "word-partial" }, formatNumber(row.failures)) : "0",
      element("span", { class: "error" }, row.last_error || "–"),
      act,
    ];
  });
  return section(
    "credentials",
    "credentials",
    server.workers > 1 && about(say("per_worker")),
    rows.length
      ? table(["provider", "credential", "state", "calls", "failed", "last_error", "action"], rows, 3, [3, 4], "keys")
      : quiet(say("no_credentials")),
  );
}

/** The state of a key and those for single models; the first only if it is none of the others. */
function states(row) {
  const models = row.resting;
  const isOfModel = models.some((one) => one.state === row.state && one.until === row.until);
  return isOfModel ? models : [{ model: "", state: row.state, until: row.until }, ...models];
}

function state({ state: name, until, model = "" }, now) {
  const words = hasText(`state_${name}`) ? say(`state_${name}`) : name;
  const [tone] = STATES[name] ?? ["word-partial"];
  const left = until ? formatDuration(Math.max(0, (Date.parse(until) - Date.parse(now)) / 1000)) : "";
  return [
    element("span", { class: tone }, hasText(`${name}_means`) ? term(name, words) : words),
    until && ` ${say("until", { time: clock(until) })} `,
    until && element("span", { class: "quiet" }, `(${left})`),
    model && ` ${say("for_model", { model })}`,
  ];
}

/** The targets that are skipped after failures in a row. */
export function circuits({ circuits: all, server }) {
  if (!all.length) return null;
  const rows = all.map((row) => [
    element("span", { class: "target" }, note(row.state === "half_open" ? "draft" : "failed"), row.target),
    element("div", {}, state({ state: row.state === "half_open" ? "half_open" : "open", until: null }, server.now)),
    row.until ? clock(row.until) : say("now"),
    element("span", { class: "error" }, row.last_error || "–"),
  ]);
  return section("circuits", "circuits", null, table(["target", "state", "next_probe", "last_error"], rows, 9));
}

/** The names that clients use, and where they lead. */
export function models({ models: all }) {
  const rows = all.map((row) => [row.name, row.targets.join(say("then"))]);
  return section("models", "models", null, rows.length ? table(["model", "targets"], rows, 9) : quiet(say("no_models")));
}

/** What serves here, and the status as it came. */
export function footer(status) {
  const { server, uptime_seconds: uptime } = status;
  const openJson = () => {
    const address = URL.createObjectURL(new Blob([JSON.stringify(status, null, 2)], { type: "application/json" }));
    open(address, "_blank");
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  const facts = [
    say("version", { version: server.version }),
    say("up", { time: formatDuration(uptime) }),
    server.config_file ? say("configFile", { file: server.config_file }) : say("no_config_file"),
    server.workers > 1 && say("workers", { count: formatNumber(server.workers) }),
    server.reload?.is_applied && say("reloaded", { time: formatClock(server.reload.time) }),
    server.shared &&
      !server.shared.is_away &&
      say("shared", { address: server.shared.address, time: clock(server.shared.since) }),
    say("utc"),
  ];
  return element("footer", {}, `${facts.filter(Boolean).join(" · ")} · `, button(say("asJson"), openJson, { class: "link" }));
}

/**
 * A table. Where it is too wide for a phone, each row is a block, and each cell has its head above it; the roles say that it is a
 * table all the same. Columns from `numbers` on are numbers, or those in `only`.
 *
 * @param {any[]} heads keys of texts, or nodes
 * @param {any[][]} rows
 * @param {number} numbers
 * @param {number[] | null} only
 * @param {string} kind
 */
export function table(heads, rows, numbers, only = null, kind = "") {
  const isNumber = (column) => (only ? only.includes(column) : column >= numbers);
  const named = heads.map((head) =>
    typeof head === "string" && hasText(head) ? (hasText(`${head}_means`) ? term(head) : say(head)) : head,
  );
  return element(
    "div",
    { class: `table ${kind}`, tabindex: "0", role: "group" },
    element(
      "table",
      { role: "table" },
      element(
        "thead",
        { role: "rowgroup" },
        element(
          "tr",
          { role: "row" },
          named.map((head, column) =>
            element(
              "th",
              { scope: "col", role: headText(head).trim() ? "columnheader" : null, class: isNumber(column) ? "right" : null },
              head,
            ),
          ),
        ),
      ),
      element(
        "tbody",
        { role: "rowgroup" },
        rows.map((cells) =>
          element(
            "tr",
            { role: "row" },
            cells.map((cell, column) =>
              element(
                "td",
                { role: "cell", class: isNumber(column) ? "right" : null },
                cell !== "" && element("span", { class: "head", "aria-hidden": "true" }, headText(named[column])),
                cell,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** The words of a head, which is a text, a node, or several. */
function headText(head) {
  if (Array.isArray(head)) return head.map(headText).join("");
  return String((head instanceof Node ? head.textContent : head) ?? "");
}
