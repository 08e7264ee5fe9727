// The rows of one key beside each other: a table of all, with the file of each, and two of them compared.

import { count, counted, h } from "./dom.js";
import { Num, written } from "./exact.js";
import { marked, scrollable } from "./text.js";
import { leaf } from "./trees.js";

const CELL_CHARACTERS = 80;
const CONTEXT_CHARACTERS = 40;
const DIFFERENT_CHARACTERS = 400;
const AT_ONCE = 200;
const MOST_NAMED = 20;

const folder = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/")));
const file = (path) => path.slice(path.lastIndexOf("/") + 1);

/** The columns in which rows differ, and the others. */
function columnsOf(rows) {
  const names = rows[0].entries.map(([name]) => name);
  const differ = names.filter((name) => {
    const first = written(rows[0].get(name));
    return rows.some((row) => written(row.get(name)) !== first);
  });
  return { differ, same: names.filter((name) => !differ.includes(name)) };
}

/** The columns of the key, then the others in which rows differ. */
function columnsBehind(keys, rows) {
  const { differ, same } = columnsOf(rows);
  const isOther = (name) => !keys.has(name);
  const first = rows[0].entries.map(([name]) => name).filter((name) => keys.has(name));
  return { differ: [...first, ...differ.filter(isOther)], same: same.filter(isOther) };
}

function sameView(same) {
  if (!same.length) return null;
  const named = same.slice(0, MOST_NAMED).join(", ");
  return h("p", { class: "faint" }, `The same in all of them: ${named}${same.length > MOST_NAMED ? ` and ${counted(same.length - MOST_NAMED, "column")} more` : ""}.`);
}

/** All rows as a table of the columns in which they differ. `files` are the paths of their source files, if known.
 *  Rows of a range have the columns of its `keys` in front, the address of their key by `hrefOf`, and no marks. */
export function tableView(rows, files, range = null) {
  const { differ, same } = range ? columnsBehind(range.keys, rows) : columnsOf(rows);
  const heads = ["Row", ...(files ? ["Partition", "File"] : []), ...differ];
  const body = h("tbody");
  const box = h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))), body));
  scrollable(box, true, "All rows");
  const more = h("button", { type: "button", class: "plain", onclick: grow });
  function grow() {
    const begin = body.childElementCount;
    const above = (at) => (range ? undefined : rows[begin + at - 1]);
    const href = (row) => range?.hrefOf(row) ?? null;
    body.append(...rows.slice(begin, begin + AT_ONCE).map((row, at) => lineView(row, above(at), begin + at, differ, files, href(row))));
    const left = rows.length - body.childElementCount;
    more.textContent = `Show ${count(Math.min(left, AT_ONCE))} of ${count(left)} more rows`;
    if (left <= 0) more.remove();
  }
  grow();
  return h("section", { class: "card versions" }, box, rows.length > AT_ONCE && more,
    !range && differ.length > 0 && h("p", { class: "faint" }, h("mark", null, "Marked"), " values differ from those of the row above."),
    sameView(same));
}

function lineView(row, above, place, columns, files, href) {
  const where = files ? [folder(files[place]) || "–", file(files[place])] : [];
  return h("tr", null, h("th", { scope: "row" }, href === null ? count(place + 1) : h("a", { href }, count(place + 1))), where.map((text) => h("td", null, text)),
    columns.map((name) => {
      const [value, before] = [row.get(name), above?.get(name)];
      const differs = above !== undefined && written(value) !== written(before);
      return h("td", null, differs ? h("mark", null, cellView(value, before)) : cellView(value));
    }));
}

const inLine = (value) => (typeof value === "string" ? value : written(value).replace(/\n\s*/g, " "));

/** A value in one line. Of a long one the part where it begins to differ from the value `before` it; all of it stands in
 *  the row's card. */
function cellView(value, before = null) {
  if (value === null || typeof value === "boolean" || value instanceof Num) return leaf(value);
  const text = inLine(value);
  if (text === "") return h("span", { class: "null" }, "empty text");
  const differs = before === null ? 0 : sameBegin(text, inLine(before));
  const from = text.length > CELL_CHARACTERS ? Math.max(0, Math.min(differs, text.length) - CELL_CHARACTERS / 2) : 0;
  return h("span", null, from > 0 && "…", marked(text.slice(from, from + CELL_CHARACTERS)), from + CELL_CHARACTERS < text.length && "…");
}

/** How many characters two texts begin with together. */
function sameBegin(a, b) {
  const most = Math.min(a.length, b.length);
  let begin = 0;
  while (begin < most && a[begin] === b[begin]) begin += 1;
  return begin;
}

/** Two of the rows beside each other, to begin with the last two. */
export function comparisonView(rows, files) {
  const choices = [rows.length - 2, rows.length - 1].map((chosen, side) =>
    h("select", { id: `version-${side}`, onchange: show }, rows.map((_, place) =>
      h("option", { value: String(place), selected: place === chosen }, `Row ${count(place + 1)}${files ? ` · ${files[place]}` : ""}`))));
  const shown = h("div", { class: "pair" });
  function show() {
    const [one, other] = choices.map((choice) => rows[Number(choice.value)]);
    const { differ, same } = columnsOf([one, other]);
    shown.replaceChildren(...[
      differ.length ? pairsView(one, other, differ, choices.map((choice) => `Row ${count(Number(choice.value) + 1)}`)) : h("p", null, "These two rows are the same in every column."),
      sameView(same),
    ].filter(Boolean));
  }
  show();
  return h("section", { class: "card versions" }, h("div", { class: "choices" }, choices.map((choice, side) =>
    h("div", { class: "field" }, h("label", { for: choice.id }, side ? "with" : "Compare"), choice))), shown);
}

function pairsView(one, other, columns, labels) {
  const box = h("div", { class: "scroll" }, h("table", { class: "pairs" },
    h("thead", null, h("tr", null, ["Column", ...labels].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", null, columns.map((name) => h("tr", null, h("th", { scope: "row", class: "column" }, name),
      differing(one.get(name), other.get(name)).map((parts) => h("td", null, parts)))))));
  scrollable(box, true, "What differs");
  return box;
}

const plainText = (value) => (typeof value === "string" ? value : written(value));

/** Two values with the part marked in which they differ. */
function differing(one, other) {
  if (one === null || other === null) return [one, other].map((value) => value === null ? leaf(null) : h("pre", { class: "text" }, part(plainText(value), 0, plainText(value).length)));
  const [a, b] = [plainText(one), plainText(other)];
  const begin = sameBegin(a, b);
  let behind = 0;
  while (behind < Math.min(a.length, b.length) - begin && a[a.length - 1 - behind] === b[b.length - 1 - behind]) behind += 1;
  return [a, b].map((text) => h("pre", { class: "text" }, part(text, begin, text.length - behind)));
}

function part(text, begin, end) {
  const from = Math.max(0, begin - CONTEXT_CHARACTERS);
  const until = Math.min(end, begin + DIFFERENT_CHARACTERS);
  const to = Math.min(text.length, end + CONTEXT_CHARACTERS);
  return [
    from > 0 && "…", marked(text.slice(from, begin)),
    begin < end && h("mark", null, marked(text.slice(begin, until))),
    until < end ? `… ${counted(end - until, "character")} more` : [marked(text.slice(end, to)), to < text.length && "…"],
  ];
}
