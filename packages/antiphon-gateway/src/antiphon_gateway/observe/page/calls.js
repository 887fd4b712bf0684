// @ts-check
/* The calls: newest first, one line each, narrowed down by one field of words. What is kept in memory is filtered at once; the
 * ledger, which has everything, is searched after a pause. */

import { button, element, fill, icon, note } from "antiphon/dom.js";
import { formatDuration, formatNumber, formatShort, say, sayCount } from "antiphon/texts.js";
import { heading, seconds, table } from "./sections.js";

const SHOWN = matchMedia("(max-width: 720px)").matches ? 15 : 30;
const PAUSE = 500;
const OUTCOMES = ["failed", "refused", "answered", "cancelled"];
/** @type {Map<string, (record: any) => boolean>} calls that a word finds */
const KINDS = new Map([
  ["second", isSecondTry],
  ["repaired", (record) => record.repairs.length > 0],
  ["lossy", (record) => record.losses.length > 0],
]);

/** `search(query)` gives the status with what the ledger has. */
export class CallList {
  /** @param {(query: Record<string, string>) => Promise<any>} search */
  constructor(search) {
    this._search = search;
    this._status = null;
    this._limit = SHOWN;
    this._timer = 0;
    this._ledger = null;
    /** @type {Set<string>} the calls that are open */
    this._open = new Set();
    this._drawn = "";
    this._words = "";
    this.node = element("section", { "aria-labelledby": "calls" });
    this._field = element("input", { type: "search", spellcheck: "false", autocomplete: "off" });
    this._field.addEventListener("input", () => this._filter(this._field.value));
    this._shortcuts = element("div", { class: "shortcuts" });
    this._list = element("ol", { class: "calls" });
    this._note = element("p", { class: "about", role: "status" });
    this._more = element("div", {});
    this._found = element("div", {});
    this.redraw();
  }

  show(status) {
    this._status = status;
    this._draw();
  }

  /** Draw everything again, in the language of now. */
  redraw() {
    this._drawn = "";
    this._field.placeholder = say("filterExample");
    this._field.title = say("filterHelp");
    this._field.setAttribute("aria-label", say("filter"));
    fill(
      this.node,
      heading("calls", "calls_title", element("span", { class: "about" }, say("newest"))),
      element(
        "div",
        { class: "filter" },
        element("label", { class: "search-field" }, icon("search"), this._field),
        this._shortcuts,
      ),
      this._note,
      this._list,
      this._more,
      this._found,
    );
    if (this._status) this._draw();
  }

  _filter(words) {
    this._words = words;
    if (this._field.value !== words) this._field.value = words;
    this._limit = SHOWN;
    this._ledger = null;
    this._draw();
    clearTimeout(this._timer);
    const query = queryOf(words);
    if (Object.keys(query).length) this._timer = setTimeout(() => this._ask(words, query), PAUSE);
  }

  async _ask(words, query) {
    const status = await this._search(query).catch(() => null);
    if (status === null || words !== this._words) return;
    const before = query.before ? (this._ledger?.page?.rows ?? []) : [];
    this._ledger = status.ledger && {
      ...status.ledger,
      page: { ...status.ledger.page, rows: [...before, ...(status.ledger.page?.rows ?? [])] },
    };
    this._draw();
  }

  _draw() {
    const { server } = this._status;
    const requests = this._status.requests.filter((one) => one.operation !== "status_login" || one.outcome !== "answered");
    const matches = filterOf(this._words);
    const found = requests.filter(matches);
    const shown = found.slice(0, this._limit);
    const state = JSON.stringify([shown.map((one) => one.id), found.length, requests.length, this._words, this._ledger]);
    if (state === this._drawn) return;
    this._drawn = state;
    const choices = [
      ["", say("all")],
      ["failed", say("failedCount", { count: formatNumber(requests.filter((one) => one.outcome === "failed").length) })],
      ["second", say("secondCount", { count: formatNumber(requests.filter(isSecondTry).length) })],
    ];
    fill(
      this._shortcuts,
      choices.map(([words, label]) =>
        button(label, () => this._filter(words), { "aria-pressed": String(this._words.trim() === words), class: "button" }),
      ),
    );
    fill(
      this._note,
      this._words ? say("shown", { shown: formatNumber(found.length), count: formatNumber(requests.length) }) : "",
    );
    fill(
      this._list,
      requests.length
        ? found.length
          ? shown.map((one) => this._row(one, server.now))
          : element("li", { class: "empty" }, say("none_found"))
        : element("li", { class: "empty" }, say("no_requests")),
    );
    fill(this._more, found.length > shown.length && button(say("showMore"), () => ((this._limit += 100), this._draw())));
    fill(this._found, this._ledger && this._ledgerTable());
  }

  _row(record, now) {
    const when =
      record.time.slice(0, 10) === now.slice(0, 10) ? record.time.slice(11, 19) : record.time.slice(0, 16).replace("T", " ");
    const tags = [
      isSecondTry(record) && ["partial", sayCount("tries", record.attempts.length)],
      record.repairs.length && ["second", sayCount("repaired", record.repairs.length)],
      record.losses.length && ["partial", sayCount("lossy", record.losses.length)],
      record.cache?.lost_tokens && ["partial", say("cache_miss")],
    ];
    const details = element(
      "details",
      {
        open: this._open.has(record.id),
        ontoggle: () => {
          if (!details.open) return this._open.delete(record.id);
          this._open.add(record.id);
          return details.childElementCount > 1 || details.append(detailsOf(record));
        },
      },
      element(
        "summary",
        {},
        note(noteOf(record)),
        element("span", { class: "when quiet" }, when),
        element("span", { class: "model" }, record.model || "–"),
        element("span", { class: "key quiet" }, record.key || (record.status === 401 ? say("unknownKey") : "–")),
        element(
          "span",
          { class: `outcome ${toneOf(record)}` },
          wordsOf(record),
          tags.filter(Boolean).map(([kind, words]) => [" ", element("span", { class: `tag ${kind}` }, words)]),
        ),
        element("span", { class: "right" }, seconds(record.seconds)),
        element("span", { class: "right quiet" }, tokensOf(record)),
      ),
    );
    if (this._open.has(record.id)) details.append(detailsOf(record));
    return element("li", {}, details);
  }

  _ledgerTable() {
    const { page, problem } = this._ledger;
    if (problem) return element("p", { class: "alarm" }, problem);
    const rows = page.rows.map((row) => [
      row.time.slice(0, 19).replace("T", " "),
      [String(row.status || "–"), row.outcome === "ok" ? "" : ` ${row.outcome}`],
      row.key || "–",
      row.model,
      [row.provider, row.target_model].filter(Boolean).join("/"),
      [
        `${formatNumber(row.prompt_tokens)} + ${formatNumber(row.completion_tokens)}`,
        row.metering === "estimated" ? ` ${say("estimate")}` : "",
      ],
      seconds(row.seconds),
      element("code", {}, row.request_id),
    ]);
    const older =
      page.next && button(say("older"), () => this._ask(this._words, { ...queryOf(this._words), before: String(page.next) }));
    return [
      element("h3", {}, say("in_ledger")),
      rows.length
        ? table(["time", "status_code", "client_key", "model", "target", "tokens", "duration", "request_id"], rows, 9, [5, 6])
        : element("p", { class: "quiet" }, say("none_in_ledger")),
      element(
        "p",
        { class: "about" },
        page.searched_to && say("searched_to", { time: page.searched_to.slice(0, 10) }),
        " ",
        older,
      ),
    ];
  }
}

function isSecondTry(record) {
  return record.outcome === "answered" && record.attempts.length > 1;
}

function noteOf(record) {
  if (record.outcome === "failed") return "failed";
  if (record.outcome === "refused" || record.outcome === "cancelled") return "asked";
  return isSecondTry(record) ? "partial" : "";
}

function toneOf(record) {
  if (record.outcome === "failed") return "word-bad";
  return isSecondTry(record) ? "word-partial" : record.outcome === "answered" ? "" : "quiet";
}

/** What happened, in a few words. */
function wordsOf(record) {
  const why = record.error.replace(/^\w+: /, "") || String(record.status);
  const status = record.status >= 400 && !why.includes(String(record.status)) ? ` (${record.status})` : "";
  if (record.outcome === "failed") return say("o_failed", { why: shortened(why) + status });
  if (record.outcome === "refused") return say("o_refused", { why: shortened(why) + status });
  if (record.outcome === "cancelled") return say("o_cancelled");
  return record.fallbacks.length ? say("o_answeredBy", { target: record.target }) : say("o_answered");
}

const shortened = (text) => (text.length > 90 ? `${text.slice(0, 90)}…` : text);

function tokensOf(record) {
  const count = record.prompt_tokens + record.completion_tokens;
  return count
    ? element(
        "span",
        { title: `${formatNumber(record.prompt_tokens)} + ${formatNumber(record.completion_tokens)}` },
        say("tokens_count", { count: formatShort(count) }),
      )
    : "–";
}

function detailsOf(record) {
  const formats = [...new Set([record.client_format, record.upstream_format].filter(Boolean))].join(" → ");
  const flags = [record.streamed && say("streamed"), record.began_early && say("began_early")].filter(Boolean);
  const facts = [
    ["request_id", element("code", {}, record.id)],
    ["client_key", record.key || "–"],
    ["target", record.target || "–"],
    ["status_code", String(record.status)],
    ["format", [formats || "–", ...flags].join(", ")],
    ["first_token", seconds(record.first_token_seconds)],
    ["overhead", seconds(record.overhead_seconds)],
    [
      "prompt",
      [
        say("tokens_count", { count: formatNumber(record.prompt_tokens) }),
        record.cached_tokens > 0 && `, ${say("cached", { count: formatNumber(record.cached_tokens) })}`,
      ],
    ],
    [
      "completion",
      [
        say("tokens_count", { count: formatNumber(record.completion_tokens) }),
        record.reasoning_tokens > 0 && `, ${say("reasoning", { count: formatNumber(record.reasoning_tokens) })}`,
      ],
    ],
  ];
  const lists = [
    ["fallbacks", record.fallbacks],
    ["repairs", record.repairs],
    ["losses", record.losses],
  ];
  const attempts = record.attempts.map((one) => [
    [one.provider, one.model].filter(Boolean).join("/"),
    one.credential || "–",
    String(one.status ?? "–"),
    formatDuration(one.seconds ?? 0),
    element("span", { class: "error" }, one.error || "–"),
  ]);
  return element(
    "div",
    { class: "inside" },
    listOf(facts),
    record.error && element("p", { class: record.outcome === "failed" ? "word-bad" : "" }, record.error),
    lists
      .filter(([, lines]) => lines.length)
      .map(([name, lines]) => [
        element("h3", {}, say(name)),
        element(
          "ul",
          {},
          lines.map((line) => element("li", {}, line)),
        ),
      ]),
    record.cache && cacheOf(record),
    attempts.length > 0 && [
      element("h3", {}, say("attempts")),
      table(["target", "credential", "status_code", "duration", "error"], attempts, 9, [3]),
    ],
  );
}

/** What the cache doctor found. */
function cacheOf({ cache, cached_tokens: read }) {
  const reason = say(`cache_${cache.verdict}`, {
    field: cache.field ?? "",
    change: cache.change ? say(`change_${cache.change}`) : "",
    minimum: formatNumber(cache.minimum ?? 0),
  });
  const money =
    cache.lost_usd === null || cache.lost_usd === undefined
      ? say("cache_price_unknown")
      : `$${Number(cache.lost_usd).toFixed(4)}`;
  const facts = [
    ["cache_predicted", say("tokens_count", { count: formatNumber(cache.predicted_tokens ?? 0) })],
    ["cache_read", say("tokens_count", { count: formatNumber(read) })],
    cache.byte !== undefined &&
      cache.byte !== null && ["cache_field", say("cache_byte", { field: cache.field ?? "", byte: formatNumber(cache.byte) })],
    cache.lost_tokens && ["cache_lost", `${say("tokens_count", { count: formatNumber(cache.lost_tokens) })}, ${money}`],
  ];
  return [
    element("h3", {}, say("cache_title")),
    element("p", {}, reason),
    listOf(facts.filter(Boolean)),
  ];
}

/** Facts by the keys of their names. */
function listOf(facts) {
  return element(
    "dl",
    { class: "facts" },
    facts.map(([name, value]) => element("div", {}, element("dt", {}, say(name)), element("dd", {}, value))),
  );
}

/** The words of the field as fields: `key:laptop` and so on; words without a name are text. */
function wordsIn(text) {
  /** @type {Record<string, string>} */
  const fields = {};
  const free = [];
  /** @type {((record: any) => boolean)[]} */
  const kinds = [];
  for (const word of text.trim().toLowerCase().split(/\s+/).filter(Boolean)) {
    const [, name, value] = /^(key|model|status|day|after|before):(.*)$/.exec(word) ?? [];
    const isKind = KINDS.get(word);
    if (name) fields[name] = value;
    else if (OUTCOMES.includes(word)) fields.outcome = word;
    else if (isKind) kinds.push(isKind);
    else free.push(word);
  }
  return { fields, kinds, free };
}

/** Whether a call is one that the words look for. */
function filterOf(text) {
  const { fields, kinds, free } = wordsIn(text);
  return (record) => {
    const time = record.time.slice(11, 19);
    const texts = [
      record.id,
      record.error,
      ...record.attempts.map((one) => one.error ?? ""),
      ...record.fallbacks,
      ...record.repairs,
      ...record.losses,
    ]
      .join("\n")
      .toLowerCase();
    return (
      (!fields.key || (record.key || "").toLowerCase().includes(fields.key)) &&
      (!fields.model || `${record.model}\n${record.target}`.toLowerCase().includes(fields.model)) &&
      (!fields.status || String(record.status).startsWith(fields.status)) &&
      (!fields.day || record.time.startsWith(fields.day)) &&
      (!fields.after || time >= fields.after) &&
      (!fields.before || time < fields.before) &&
      (!fields.outcome || record.outcome === fields.outcome) &&
      kinds.every((isKind) => isKind(record)) &&
      free.every((word) => texts.includes(word))
    );
  };
}

/** What the server is asked for, for the ledger; nothing if it has no such field. */
function queryOf(text) {
  const { fields, free } = wordsIn(text);
  const wanted = {
    q: free.join(" "),
    key: fields.key,
    model: fields.model,
    status: fields.status,
    day: fields.day,
    outcome: fields.outcome,
  };
  return Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
}
