// How an index fares: what it covers, how even it is, how it grew.

import { bars, line } from "./charts.js";
import { ago, bytes, count, counted, h } from "./dom.js";

/** The view of `/indexes/{name}`. */
export function healthView(info) {
  return h("article", { class: "health" },
    head(info, `${info.format} · key ${keysOf(info) || "not shown"} · ${counted(info.buckets, "bucket")}`),
    notices(info),
    tiles(info),
    h("div", { class: "charts" }, snapshots(info), partitions(info), buckets(info)),
    columns(info));
}

/** A line or two on the index, for the page before a question. `examples` is a paragraph for keys to try. */
export function summaryView(info, examples) {
  return h("div", { class: "summary" }, head(info, info.keys.length ? `rows by ${keysOf(info)}` : ""), examples, notices(info), tiles(info), columns(info));
}

const keysOf = ({ keys }) => keys.map(({ name }) => name).join(", ");

function head({ name }, text) {
  return h("header", { class: "answer-head" }, h("h1", null, name), h("p", { class: "faint" }, text));
}

function notices({ keys, refused, coverage_error: unlisted, coverage }) {
  const shown = [];
  if (!keys.length) shown.push(["warn", "The columns of the key are not shown.", "This page can ask for no row of the index."]);
  if (refused) shown.push(["bad", "The newest snapshot is refused, an older one served on.", refused]);
  if (unlisted) shown.push(["bad", "The source cannot be listed.", unlisted]);
  if (coverage?.changed || coverage?.vanished) {
    const gone = [coverage.changed && `${counted(coverage.changed, "file")} changed`, coverage.vanished && `${counted(coverage.vanished, "file")} vanished`];
    shown.push(["warn", `${gone.filter(Boolean).join(", ")} since the index was built.`, "Rows of these files are refused until the next build."]);
  }
  if (coverage?.lake_table) {
    shown.push(["bad", `The source is part of a ${coverage.lake_table}, indexed file by file.`, "Rows that the table deleted or replaced are answered, too."]);
  }
  return shown.map(([kind, title, detail]) => h("p", { class: `notice ${kind}` }, h("strong", null, title), " ", detail));
}

function tiles(info) {
  const { snapshot, coverage } = info;
  const covered = coverage === null ? ["unknown", "the source was not listed yet"]
    : coverage.new + coverage.changed + coverage.vanished === 0 ? ["complete", `listed ${ago(coverage.age_seconds)}`]
      : [`${count(coverage.new)} new`, `${count(coverage.changed)} changed, ${count(coverage.vanished)} vanished · listed ${ago(coverage.age_seconds)}`];
  const perRow = snapshot.rows ? `${(info.index_bytes / snapshot.rows).toFixed(1)} bytes a row` : "no rows";
  const shown = [
    ["Rows", count(snapshot.rows), `in ${counted(info.source_files, "source file")}`],
    ["Snapshot", count(snapshot.number), `${snapshot.operation}, ${ago(snapshot.age_seconds)}`],
    ["Coverage", ...covered],
    ["Index", bytes(info.index_bytes), `${perRow} · ${counted(info.index_files, "file")}`],
  ];
  return h("dl", { class: "tiles" }, shown.map(([name, value, more]) =>
    h("div", null, h("dt", null, name), h("dd", null, h("strong", null, value), h("span", { class: "faint" }, more)))));
}

function chartCard(title, said, chart, more = null) {
  return h("section", { class: "card" }, h("h2", null, title), h("p", { class: "faint" }, said), chart, more);
}

const minute = (text) => text.slice(0, 16).replace("T", " ");

/** The ends of a stretch of time: days, or minutes where it is within one day. */
function ends(first, last) {
  const cut = first.slice(0, 10) === last.slice(0, 10) ? minute : (text) => text.slice(0, 10);
  return { low: cut(first), high: first === last ? "" : cut(last) };
}

function snapshots({ snapshots: all }) {
  const kept = all.filter(({ rows }) => rows !== null); // of one that cannot be read the number alone is known
  if (!kept.length) return null;
  const points = kept.map(({ snapshot, committed_at: at, rows, operation }) => ({
    at: Date.parse(at), value: rows, name: `snapshot ${snapshot} · ${operation} · ${minute(at)} · ${counted(rows, "row")}`,
  }));
  const [first, last] = [kept[0], kept[kept.length - 1]];
  const said = kept.length === 1 ? `one is kept, of ${counted(first.rows, "row")}` : `${count(kept.length)} kept, from ${count(first.rows)} rows in snapshot ${first.snapshot} to ${count(last.rows)} in ${last.snapshot}`;
  const chart = line(points, { label: `Rows of each snapshot: ${said}`, ...ends(first.committed_at, last.committed_at) });
  const cells = [...kept].reverse().map((one) => [one.snapshot, one.committed_at.slice(0, 19).replace("T", " "), one.operation, count(one.rows)]);
  return chartCard("Rows over time", said, chart, table("Every snapshot", ["Snapshot", "Committed", "Operation", "Rows"], cells));
}

function partitions({ partitions: shown, partitions_total: total }) {
  if (!shown.length || (shown.length === 1 && !shown[0].partition)) return null;
  const rows = shown.map((one) => one.rows);
  const all = rows.reduce((sum, one) => sum + one, 0);
  const largest = shown[rows.indexOf(Math.max(...rows))];
  const newest = total > shown.length ? `the newest ${count(shown.length)} of ${count(total)}` : counted(total, "partition");
  const said = `${newest}; ${average(all / shown.length)} rows on average, most in ${largest.partition}: ${count(largest.rows)}`;
  const chart = bars(rows, {
    label: `Rows of each partition: ${said}`, low: shown[0].partition, high: shown.length > 1 ? shown[shown.length - 1].partition : "",
    name: (at) => `${shown[at].partition} · ${counted(shown[at].rows, "row")} · ${counted(shown[at].source_files, "file")} ${indexOf(shown[at], " · ")}`,
  });
  const cells = shown.map((one) => [one.partition, count(one.rows), count(one.source_files), indexOf(one)]);
  return chartCard("Partitions", said, chart, table("Every partition", ["Partition", "Rows", "Source files", "Index"], cells));
}

const average = (mean) => (mean < 10 ? String(Math.round(mean * 10) / 10) : count(Math.round(mean)));

// In a flat index no index file is of one partition.
const indexOf = ({ index_bytes: size }, before = "") => (size === null ? "" : `${before}${bytes(size)}`);

function buckets({ bucket_rows: rows, bucket_bytes: sizes }) {
  if (!rows.length) return null;
  const sum = rows.reduce((all, one) => all + one, 0);
  const mean = sum / rows.length;
  const largest = rows.reduce((most, one) => Math.max(most, one), 0);
  const empty = rows.filter((one) => !one).length;
  const skew = mean ? largest / mean : 1;
  const said = `${average(mean)} rows on average, ${count(largest)} in the largest: ${skew.toFixed(2)} times as many${empty ? `; ${count(empty)} empty` : ""}`;
  const chart = bars(rows, {
    label: `Rows of each bucket: ${said}`, mean, low: "bucket 0", high: `bucket ${count(rows.length - 1)}`,
    name: (at, { begin, end }) => `bucket ${count(at)}${end - begin > 1 ? `, the largest of ${count(begin)} to ${count(end - 1)}` : ""} · ${counted(rows[at], "row")} · ${bytes(sizes[at] ?? 0)}`,
  });
  return chartCard("Buckets", said, chart, h("p", { class: "legend faint", "aria-hidden": "true" }, h("span", null, h("i", { class: "dash" }), "mean")));
}

/** A table that is made when it is opened: 400 rows cost nothing before. */
function table(title, heads, cells) {
  const details = h("details", null, h("summary", null, title));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const body = h("table", null,
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", null, cells.map((line) => h("tr", null, line.map((cell) => h("td", null, cell))))));
    details.append(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, body));
  });
  return details;
}

function columns({ columns: shown, keys, included }) {
  const roles = new Map([...included.map((name) => [name, "in the index"]), ...keys.map(({ name }) => [name, "key"])]);
  const list = h("ul", { class: "columns-list" }, shown.map(({ name, type }) =>
    h("li", null, h("span", { class: "column" }, name), h("span", { class: "faint type" }, type), roles.has(name) && h("span", { class: "badge" }, roles.get(name)))));
  return h("section", { class: "card" }, h("h2", null, counted(shown.length, "column")), list);
}
