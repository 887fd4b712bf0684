"""The style sheet of the status page, and the hash by which the page's policy allows it.

One column; colour never carries meaning alone, every state is also a word. Light and dark follow the reader's setting. Under 44
rem tables become cards, each value with the name of its column.
"""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #1c1f24; --quiet: #626973; --rule: #e3e3dd; --faint: #f2f2ee; --edge: #8a9099;
  --good: #2c7a50; --warn: #9a5b00; --bad: #b3261e; --line: #2b5f9e; --line-2: #8a5fb0; --bar: #7ba6d4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #131518; --card: #1a1d21; --ink: #e4e5e3; --quiet: #9ba2ac; --rule: #2c3037; --faint: #20242a; --edge: #6d7580;
    --good: #6cc495; --warn: #e0a54a; --bad: #f08a80; --line: #7fb2ec; --line-2: #c3a0e6; --bar: #4a78ab;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 66rem; margin: 0 auto; }
h1 { margin: 0; font-size: 1.6rem; font-weight: 600; letter-spacing: -0.015em; line-height: 1.2; }
h2 { margin: 0 0 0.75rem; font-size: 1rem; font-weight: 600; }
h3 { margin: 1rem 0 0.25rem; font-size: 0.8rem; font-weight: 600; color: var(--quiet); }
section { margin-top: 2.75rem; }
p { margin: 0.25rem 0 0; max-width: 46rem; }
a { color: inherit; text-underline-offset: 0.2em; text-decoration-color: var(--quiet); }
code, .id { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: 0.88em; }
bdi { overflow-wrap: anywhere; }
.quiet { color: var(--quiet); }
.note { color: var(--quiet); font-size: 0.87rem; margin-bottom: 0.75rem; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.state { white-space: nowrap; font-weight: 500; }
.state::before {
  content: ""; display: inline-block; width: 0.5em; height: 0.5em; margin-right: 0.5em; border-radius: 50%;
  background: currentColor; vertical-align: 0.1em;
}
.top { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: 0.5rem 1.5rem; }
.menu { display: flex; align-items: baseline; gap: 1rem; font-size: 0.9rem; }
button, input, select {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--edge); border-radius: 6px;
  padding: 0.3rem 0.7rem; min-width: 0; max-width: 100%;
}
button { cursor: pointer; font-size: 0.87rem; white-space: nowrap; }
button:hover { background: var(--faint); }
button:focus-visible, input:focus-visible, select:focus-visible { outline: 2px solid var(--line); outline-offset: 2px; }
label { display: block; color: var(--quiet); font-size: 0.82rem; }
form.search {
  display: grid; grid-template-columns: 2fr 1fr 1fr 5rem 8rem auto; gap: 0.75rem; align-items: end; margin: 0 0 1rem;
}
form.search input, form.search select { width: 100%; }
form.search .go { display: flex; align-items: center; gap: 0.75rem; font-size: 0.87rem; }
form.login { display: grid; gap: 0.6rem; max-width: 24rem; margin-top: 2rem; }
form.login button { justify-self: start; padding: 0.45rem 1.2rem; }
.spend {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1rem 2.5rem; align-items: start;
}
.small { display: block; font-size: 0.8rem; letter-spacing: 0; white-space: nowrap; }
.spend h3 { margin-top: 0; }
.spend td:first-child { min-width: 5rem; }
.alarm { margin-top: 1.25rem; padding: 0.75rem 1rem; border-left: 3px solid var(--bad); background: var(--faint); }
.alarm ul { margin: 0.35rem 0 0; padding-left: 1.1rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1.25rem; margin: 2rem 0 0; }
.figures div { border-top: 1px solid var(--rule); padding-top: 0.6rem; }
.figures dt { color: var(--quiet); font-size: 0.82rem; }
.figures dd { margin: 0; font-size: 1.55rem; font-weight: 500; letter-spacing: -0.01em; line-height: 1.35; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; padding: 1rem 1rem 0.75rem; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0.25rem 1rem; font-size: 0.85rem; }
figcaption b { font-weight: 600; }
.key { color: var(--quiet); white-space: nowrap; }
.key span + span { margin-left: 0.8em; }
.key span::before {
  content: ""; display: inline-block; width: 0.65em; height: 0.65em; margin-right: 0.4em; border-radius: 2px;
  background: currentColor;
}
.key .answered::before { color: var(--bar); } .key .refused::before { color: var(--warn); }
.key .failed::before { color: var(--bad); } .key .p50::before { color: var(--line); } .key .p95::before { color: var(--line-2); }
.plot { display: block; width: 100%; height: auto; margin-top: 0.6rem; }
.plot .grid { stroke: var(--rule); stroke-width: 1; }
.plot .mark { fill: var(--quiet); font-size: 11px; }
.plot rect.answered { fill: var(--bar); } .plot rect.refused { fill: var(--warn); } .plot rect.failed { fill: var(--bad); }
.plot path { fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.plot path.p50 { stroke: var(--line); } .plot path.p95 { stroke: var(--line-2); }
.plot circle.p50 { fill: var(--line); } .plot circle.p95 { fill: var(--line-2); }
table { width: 100%; border-collapse: collapse; font-size: 0.9rem; }
th { text-align: left; font-weight: 500; color: var(--quiet); font-size: 0.82rem; padding: 0 1rem 0.4rem 0; white-space: nowrap; }
td { padding: 0.5rem 1rem 0.5rem 0; border-top: 1px solid var(--rule); vertical-align: top; }
td:first-child { min-width: 7rem; }
td .left { white-space: nowrap; }
th.number, td.number { text-align: right; }
th:last-child, td:last-child { padding-right: 0; }
details.figures-table { margin-top: 1rem; font-size: 0.87rem; }
details.figures-table table { max-width: 38rem; margin-top: 0.75rem; }
summary { cursor: pointer; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--line); outline-offset: 2px; border-radius: 3px; }
ol.requests { list-style: none; margin: 0; padding: 0; border-bottom: 1px solid var(--rule); }
ol.requests > li { border-top: 1px solid var(--rule); }
ol.requests summary {
  display: grid; grid-template-columns: 4.6rem 3rem minmax(0, 1fr) auto 4.5rem; gap: 0 1rem; align-items: baseline;
  padding: 0.55rem 0.25rem; list-style: none; font-size: 0.9rem;
}
ol.requests summary::-webkit-details-marker { display: none; }
ol.requests summary:hover, ol.requests details[open] summary { background: var(--faint); }
.took { text-align: right; white-space: nowrap; }
.code { font-weight: 600; }
.tags { display: flex; flex-wrap: wrap; gap: 0.15rem 0.9rem; font-size: 0.82rem; }
.more { padding: 0.25rem 0.25rem 1.25rem 5.85rem; font-size: 0.9rem; }
.more dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 0.7rem 1.5rem; margin: 0.5rem 0 0; }
.more dt { color: var(--quiet); font-size: 0.8rem; }
.more dd { margin: 0; overflow-wrap: anywhere; }
.more ul { margin: 0.2rem 0 0; padding-left: 1.1rem; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
footer { margin-top: 3rem; padding-top: 0.75rem; border-top: 1px solid var(--rule); color: var(--quiet); font-size: 0.85rem; }
@media (max-width: 44rem) {
  body { padding: 1.5rem 1rem 3rem; }
  section { margin-top: 2.25rem; }
  .figures { grid-template-columns: 1fr 1fr; gap: 1rem; }
  .figures dd { font-size: 1.35rem; }
  table.cards, table.cards tbody, table.cards tr, table.cards td { display: block; }
  table.cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table.cards tr { border-top: 1px solid var(--rule); padding: 0.6rem 0; }
  table.cards td { display: grid; grid-template-columns: 7rem minmax(0, 1fr); gap: 0.75rem; border: 0; padding: 0.1rem 0; }
  table.cards td.number { text-align: left; }
  table.cards td.nothing { display: none; }
  table.cards td::before { content: attr(data-column); color: var(--quiet); font-size: 0.85rem; }
  ol.requests summary { grid-template-columns: 4.4rem 2.6rem minmax(0, 1fr) auto; }
  ol.requests .tags { grid-column: 3 / -1; grid-row: 2; }
  .more { padding-left: 0.25rem; }
  .more dl { grid-template-columns: 1fr 1fr; }
  .plot .mark { font-size: 12px; }
  form.search { grid-template-columns: 1fr 1fr; }
  form.search > div:first-child { grid-column: 1 / -1; }
  button, input, select { min-height: 2.75rem; font-size: 1rem; }
  table.cards td button { min-height: 2.5rem; }
}
@media print { body { padding: 0; } }
"""

STYLE_HASH = f"sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}"
"""The hash of this style sheet for the Content-Security-Policy."""
