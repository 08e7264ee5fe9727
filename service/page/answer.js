// The rows of a key.

import { bytes, columnFilter, copyButton, count, counted, h } from "./dom.js";
import { Obj, plain } from "./exact.js";
import { pathView } from "./lookup.js";
import { textView } from "./text.js";
import { valueView } from "./values.js";
import { comparisonView, tableView } from "./versions.js";

const AT_ONCE = 20;
const MOST_CARDS = 5; // of rows that begin as cards

/** What an answer holds, from one key or from a batch of one. Throws what makes it unreadable. */
export function readAnswer(value) {
  if (!(value instanceof Obj)) throw new Error("The answer is no JSON that this page can read.");
  const result = value.get("results")?.[0] ?? value;
  return {
    rows: result.get("rows") ?? [],
    count: plain(result.get("count") ?? 0),
    snapshot: plain(value.get("snapshot")),
    key: result.get("key"),
    error: plain(result.get("error") ?? null),
    next: cursorIn(plain(value.get("next") ?? null)),
    explain: plain(value.get("explain") ?? null),
  };
}

/** The cursor in the link to the next page of a range. */
function cursorIn(link) {
  return link === null ? null : new URL(link, location.href).searchParams.get("_after");
}

/** The view of an answer with rows. `reply` is what `api.ask` gave, `curl` the command that asks the same, `range` is of
 *  the rows of several keys: `hrefOf` gives the address of a row's key, `next` is that of the next page, if one follows. */
export function answerView(answer, reply, info, { curl, name, range = null }) {
  const types = new Map(info.columns.map((column) => [column.name, column.type]));
  const keys = new Set(info.keys.map((key) => key.name));
  return h("article", { "aria-labelledby": "answer-title" },
    h("header", { class: "answer-head" },
      h("h1", { id: "answer-title" }, title(answer)),
      h("p", { class: "faint" }, facts(answer, reply)),
      h("div", { class: "buttons" },
        copyButton("Copy link", () => location.href),
        copyButton("Copy as curl", () => curl),
        downloadButton(reply.bytes, name))),
    rowsView(answer.rows, answer.explain?.files ?? null, types, keys, range),
    range?.next && h("p", { class: "next" }, h("a", { class: "plain", href: range.next, rel: "next" }, "Next rows")),
    answer.explain && pathView(answer.explain, info));
}

function title({ count: all, rows, next }) {
  if (next !== null) return `${counted(rows.length, "row")}, more follow`;
  return rows.length < all ? `${counted(all, "row")}, the first ${count(rows.length)} shown` : counted(all, "row");
}

function facts({ snapshot }, reply) {
  return `snapshot ${count(snapshot)} · ${bytes(reply.bytes.byteLength)} in ${reply.milliseconds.toFixed(reply.milliseconds < 10 ? 1 : 0)} ms`;
}

/** A file of exactly the bytes that were answered. */
function downloadButton(content, name) {
  const button = h("button", { type: "button", class: "quiet small" }, "Download JSON");
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([content], { type: "application/json" }));
    h("a", { href: url, download: `${name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 80) || "row"}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click has returned
  });
  return button;
}

/** The rows as cards; where there are several, also as a table and compared. More than a few begin as a table, and those
 *  of a range, which has its keys in front. */
function rowsView(rows, files, types, keys, range) {
  const cards = () => {
    const part = h("div", { class: "rows" }, rowViews(rows, files, types, keys));
    return h("div", null, columnFilter(part, rows[0]?.entries.length ?? 0), part);
  };
  if (rows.length < 2) return cards();
  const views = [["Cards", cards], ["Table", () => tableView(rows, files, range && { keys, hrefOf: range.hrefOf })], ["Compare", () => comparisonView(rows, files)]];
  const body = h("div");
  const made = new Map();
  const buttons = views.map(([label], place) => h("button", { type: "button", class: "quiet small", onclick: () => show(place) }, label));
  function show(place) {
    if (!made.has(place)) made.set(place, views[place][1]());
    body.replaceChildren(made.get(place));
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === place)));
  }
  show(range || rows.length > MOST_CARDS ? 1 : 0);
  return h("div", null, h("div", { class: "switch of-rows", role: "group", "aria-label": "Views of the rows" }, buttons), body);
}

function rowViews(rows, files, types, keys) {
  const label = (place) => `Row ${place + 1} of ${rows.length}${files ? ` · ${files[place]}` : ""}`;
  const view = (row, place) => rowView(row, rows.length > 1 ? label(place) : null, types, keys);
  const views = rows.slice(0, AT_ONCE).map(view);
  if (rows.length > AT_ONCE) {
    const button = h("button", { type: "button", class: "plain" }, `Show the other ${count(rows.length - AT_ONCE)} rows`);
    button.addEventListener("click", () => button.replaceWith(...rows.slice(AT_ONCE).map((row, at) => view(row, at + AT_ONCE))));
    views.push(button);
  }
  return views;
}

function rowView(row, label, types, keys) {
  const lines = row.entries.map(([name, value]) =>
    h("div", { class: keys.has(name) ? "line of-key" : "line", "data-column": name },
      h("dt", null, h("span", { class: "column" }, name), h("span", { class: "faint type" }, shortType(types.get(name) ?? ""))),
      h("dd", null, valueView(value, types.get(name), name))));
  return h("section", { class: "row", "aria-label": label ?? "Row" }, label && h("h2", null, label), h("dl", null, lines));
}

/** A type that fits beside a name: the members of nested ones are seen in the value. */
function shortType(type) {
  return type.replace(/^(\w+)<.*$/s, "$1<…>");
}

/** An answer that cannot be read: as it came. */
export function rawView(reply, why) {
  return h("article", null, h("h1", null, "An answer this page cannot read"), h("p", null, why), textView(reply.text, "The answer"));
}
