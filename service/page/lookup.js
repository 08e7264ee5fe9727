// The path of a look-up: bucket, nodes, source file, pages; then each step with what it read and when, as a list that
// has its bars beside it.

import { bytes, count, counted, h, microseconds, svg } from "./dom.js";

const WIDE = 1000;
const THINNEST = 4;
const AT_ONCE = 40;

const TEXTS = {
  key: ({ bucket, index_files: files }) => `Key read${bucket === undefined ? "" : `: bucket ${count(bucket)}`}${files === undefined ? "" : `, ${counted(files, "index file")} to ask`}`,
  filter: (step) => (step.answer === "absent" ? "Bloom filter asked: the key is not in this file" : "Bloom filter asked: perhaps in this file"),
  index_file: () => "Index file opened",
  node: (step) => step.nodes ? `${counted(step.nodes, "node")} read in long ranges` : `${step.level ? `Node, level ${step.level}` : "Root node"}${step.entries === undefined ? "" : `, ${counted(step.entries, "entry", "entries")}`}`,
  source_ahead: () => "Source file opened while the index was asked",
  source_file: () => "Source file opened and compared",
  page_map: () => "Page map read",
  pages: (step) => `${counted(step.pages ?? 0, "page")} of ${counted(step.columns ?? 0, "column")}`,
  decode: () => "Values decoded",
  key_check: () => "Key of the row compared",
};
const OF_INDEX = new Set(["key", "filter", "index_file", "node"]);

// Many steps that are alike come as one, with their count.
const endOf = (step) => step.end_us ?? step.begin_us + step.microseconds;
const steppedTimes = (steps) => steps.reduce((sum, step) => sum + (step.count ?? 1), 0);

const named = (path) => path.slice(path.lastIndexOf("/") + 1);

/** What `explain` of an answer says, drawn. */
export function pathView(explain, info) {
  const steps = explain.steps ?? [];
  const end = Math.max(1, ...steps.map(endOf));
  const list = h("ol", { class: "steps" });
  const show = (most) => list.append(...steps.slice(list.childElementCount, most).map((step) => line(step, end)));
  show(AT_ONCE);
  const section = h("section", { class: "path", "aria-labelledby": "path-title" },
    h("h2", { id: "path-title" }, "How it was found"),
    stages(explain, steps, info, end));
  if (!steps.length) return section;
  section.append(h("details", { open: true }, h("summary", null, `${counted(steppedTimes(steps), "step")}, ${microseconds(end)}`), list, legend(steps)));
  if (steps.length > AT_ONCE) {
    const button = h("button", { type: "button", class: "quiet small" }, "Show all of them");
    button.addEventListener("click", () => {
      show(steps.length);
      button.remove();
    });
    list.after(button);
  }
  return section;
}

function stages({ bucket, index, source }, steps, info, end) {
  const opened = steps.filter(({ step }) => step === "source_file");
  const files = source.files === 1 ? [...new Set(opened.map(({ file }) => file))].filter(Boolean) : [];
  const pages = steps.filter(({ step }) => step === "pages").reduce((sum, step) => sum + (step.pages ?? 0), 0);
  const total = steps.length ? end : index.microseconds + source.microseconds;
  const place = bucket ?? steps.find((step) => step.bucket !== undefined)?.bucket;
  const asked = index.filter_checks ? `${counted(index.filter_checks, "Bloom filter")} asked` : null;
  const shown = [
    ["Bucket", place === undefined ? "–" : count(place), `of ${count(info.buckets)}`, asked],
    ["Index", counted(index.nodes, "node"), `${counted(index.reads, "read")}, ${bytes(index.bytes + index.filter_bytes)}`, microseconds(index.microseconds)],
    ["Source", files.length === 1 ? named(files[0]) : counted(source.files, "file"), files.length === 1 ? folder(files[0]) : null, null],
    ["Pages", pages ? counted(pages, "page") : counted(source.reads, "read"), `${counted(source.reads, "read")}, ${bytes(source.bytes + source.page_map_bytes)}`, microseconds(source.microseconds)],
    ["Together", microseconds(total), `${bytes(index.bytes + index.filter_bytes + source.bytes + source.page_map_bytes)} read`, null],
  ];
  return h("ol", { class: "stages" }, shown.map(([label, value, ...more]) =>
    h("li", null, h("span", { class: "stage" }, label), h("strong", { title: value }, value),
      more.filter(Boolean).map((text) => h("span", { class: "faint" }, text)))));
}

const folder = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/"))) || null;

function line(step, end) {
  const kind = step.cached ? "cached" : OF_INDEX.has(step.step) ? "of-index" : "of-source";
  const begin = (step.begin_us / end) * WIDE;
  const wide = Math.min(WIDE - begin, Math.max(THINNEST, ((endOf(step) - step.begin_us) / end) * WIDE));
  const read = step.cached ? "from memory" : step.bytes ? bytes(step.bytes) : "–";
  const place = step.file ? `${step.file}${step.offset === undefined ? "" : ` at ${count(step.offset)}`}` : null;
  return h("li", null,
    h("span", { class: "what" }, step.count > 1 && `${count(step.count)} × `, (TEXTS[step.step] ?? (() => step.step))(step),
      place && h("span", { class: "faint file", title: place }, place.split("/").slice(-2).join("/"))),
    h("span", { class: "read" }, read, step.reads > 1 ? ` in ${count(step.reads)} reads` : ""),
    h("span", { class: "took" }, microseconds(step.microseconds)),
    svg("svg", { class: "bar", viewBox: `0 0 ${WIDE} 10`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: kind, x: Math.min(begin, WIDE - THINNEST), y: 1, width: Math.max(wide, THINNEST), height: 8 })));
}

function legend(steps) {
  const kinds = [["of-index", "the index"], ["of-source", "the source"]];
  if (steps.some((step) => step.cached)) kinds.push(["cached", "from memory"]);
  return h("p", { class: "legend faint", "aria-hidden": "true" }, kinds.map(([kind, text]) =>
    h("span", null, svg("svg", { viewBox: "0 0 10 10" }, svg("rect", { class: kind, x: 1, y: 1, width: 8, height: 8 })), text)));
}
