// The question: a box for each column of the key, and the options.

import { columnFilter, count, counted, h } from "./dom.js";
import { hint, taken } from "./kinds.js";

export const LIMIT = 100; // rows shown where the user sets no limit

const LINE_ENDS = /[\r\n]/g;
const RANGES = [
  ["", "this key"],
  ["prefix", "the keys that begin with it"],
  ["from", "the keys from it on"],
  ["until", "the keys up to it, backwards"],
];

/** The form for one index; `onask` is called when the user asks. */
export class QuestionForm {
  constructor(element, onask) {
    this.element = element;
    this.untouched = null; // the box that holds what was asked, until it is edited
    element.addEventListener("input", () => (this.untouched = null));
    element.addEventListener("submit", (event) => {
      event.preventDefault();
      onask();
    });
  }

  /** Make the boxes for an index. What was typed for another one is gone. */
  show(info, chooser) {
    this.info = info;
    this.boxes = info.keys.map((key, place) => keyBox(key, place));
    this.options = new Options(info);
    this.kind = h("select", { id: "which" }, RANGES.map(([value, text]) => h("option", { value }, text)));
    this.element.replaceChildren(
      ...[chooser].filter(Boolean),
      h("div", { class: this.boxes.length > 1 ? "keys several" : "keys" },
        this.boxes.map((box) => box.element),
        h("button", { type: "submit", class: "main" }, "Ask")),
      h("div", { class: "which" }, h("label", { for: "which" }, "Rows of"), this.kind),
      this.options.element);
    this.element.hidden = false;
  }

  values() {
    return this.boxes.map((box) => box.value());
  }

  /** Which keys are asked for: "" for this one, or the kind of a range. */
  range() {
    return this.kind.value;
  }

  fill(values, range, options) {
    this.clearFaults();
    this.kind.value = range;
    this.boxes.forEach((box, place) => box.fill(values ? values[place] : ""));
    this.options.fill(options);
  }

  focus() {
    if (this.element.hidden) return;
    this.untouched = null;
    const box = this.boxes?.find((one) => one.input.value === "") ?? this.boxes?.[0];
    box?.input.focus();
    box?.input.select();
  }

  /** Select the box that the user typed in, or the first: what is typed next is the next key. A box that was not edited
   *  since takes the first `/` for the shortcut. */
  answered() {
    const active = document.activeElement;
    const inOther = active !== document.body && !active.matches?.(".key input[type=text], .ask [type=submit]");
    if (this.element.hidden || inOther || matchMedia("(pointer: coarse)").matches) return;
    const box = this.boxes.find((one) => one.input === active) ?? this.boxes.find((one) => !one.input.disabled);
    box?.input.focus({ preventScroll: true });
    box?.input.select();
    this.untouched = box?.input ?? null;
  }

  /** Whether `/` typed into an element is the shortcut: once, in a box whose whole text is the key that was asked, and
   *  is selected. */
  takesSlash(element) {
    const { value, selectionStart, selectionEnd } = element;
    return element === this.untouched && value !== "" && selectionStart === 0 && selectionEnd === value.length;
  }

  /** Mark the box of the column whose value the service could not take; what to do, in words. */
  fault(column, expected) {
    const type = this.info.keys.find((key) => key.name === column)?.type;
    const box = this.boxes.find((one) => one.name === column);
    box?.fault(`Type ${taken(type ?? expected)}.`);
    if (this.element.contains(document.activeElement)) box?.input.focus();
    return `${box ? "The box " : ""}“${column}” takes ${taken(type ?? expected)}.`;
  }

  clearFaults() {
    this.boxes.forEach((box) => box.fault(null));
  }
}

function keyBox({ name, type, partition }, place) {
  const ids = { input: `key-${place}`, hint: `key-${place}-hint`, fault: `key-${place}-fault` };
  const input = h("input", {
    type: "text", id: ids.input, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
    "aria-describedby": `${ids.hint} ${ids.fault}`, enterkeyhint: "search",
  });
  const none = h("input", { type: "checkbox", "aria-label": `${name} is null` });
  none.addEventListener("change", () => (input.disabled = none.checked));
  const wrong = h("span", { class: "fault", id: ids.fault });
  let exact = null; // a text with line ends, which a box cannot hold: it shows blanks in their place
  const show = (text) => {
    input.value = text.replace(LINE_ENDS, " ");
    exact = input.value === text ? null : text;
    wrong.textContent = exact === null ? "" : "This key holds line ends. They are asked for until the text is changed.";
  };
  input.addEventListener("input", () => {
    if (exact !== null) wrong.textContent = "";
    exact = null;
  });
  input.addEventListener("paste", (event) => {
    const pasted = event.clipboardData.getData("text/plain").replaceAll("\r\n", "\n");
    if (exact === null && !pasted.includes("\n") && !pasted.includes("\r")) return;
    event.preventDefault();
    const { selectionStart: begin, selectionEnd: end } = input;
    const text = exact ?? input.value;
    show(text.slice(0, begin) + pasted + text.slice(end));
    input.setSelectionRange(begin + pasted.length, begin + pasted.length);
  });
  const element = h("div", { class: "key" },
    h("div", { class: "label" },
      h("label", { for: ids.input }, name),
      h("span", { class: "faint", id: ids.hint }, hint(type), partition ? ", a partition" : ""),
      h("label", { class: "null-box", title: "Ask for rows that have null here" }, none, "null")),
    input, wrong);
  return {
    name, element, input,
    value: () => (none.checked ? null : exact ?? input.value),
    fill(value) {
      none.checked = value === null;
      input.disabled = none.checked;
      show(value ?? "");
    },
    fault(text) {
      wrong.textContent = text ?? "";
      if (text === null) input.removeAttribute("aria-invalid");
      else input.setAttribute("aria-invalid", "true");
    },
  };
}

/** Columns, partitions, limit and snapshot, in a part of the form that opens. */
class Options {
  constructor(info) {
    this.columns = info.columns.map(({ name }) => h("input", { type: "checkbox", value: name }));
    this.where = new Map(info.partition_columns.map((name) => [name, partitionBox(name, info.partitions)]));
    this.limit = h("input", { id: "limit", type: "text", inputmode: "numeric", placeholder: String(LIMIT), "aria-describedby": "limit-hint" });
    this.snapshot = snapshotBox(info);
    const chips = h("div", { class: "chips", tabindex: this.columns.length > 40 ? "0" : null },
      this.columns.map((box) => h("label", { class: "chip", "data-column": box.value }, box, box.value)));
    this.hint = h("span", { class: "faint" });
    this.element = h("details", { class: "options" },
      h("summary", null, "Options ", this.hint),
      h("div", { class: "grid" },
        h("fieldset", { class: "columns" }, h("legend", null, "Columns ", h("span", { class: "faint" }, "all, where none is chosen")),
          columnFilter(chips, this.columns.length), chips),
        [...this.where].map(([name, box]) =>
          h("div", { class: "field" }, h("label", { for: box.input.id }, "Only where ", h("code", null, name), " is"), box.input, box.list)),
        h("div", { class: "field" }, h("label", { for: "snapshot" }, "Snapshot"), this.snapshot),
        h("div", { class: "field" }, h("label", { for: "limit" }, "Most rows"), this.limit,
          h("span", { class: "faint", id: "limit-hint" }, "the count is of all"))));
    this.element.addEventListener("input", () => this.describe());
  }

  read() {
    const where = [...this.where].filter(([, { input }]) => input.value !== "").map(([name, { input }]) => [name, input.value]);
    return {
      columns: this.columns.filter((box) => box.checked).map((box) => box.value),
      where: Object.fromEntries(where),
      limit: this.limit.value.trim(),
      snapshot: this.snapshot.value,
    };
  }

  fill({ columns, where, limit, snapshot }) {
    for (const box of this.columns) box.checked = columns.includes(box.value);
    for (const [name, { input }] of this.where) input.value = where[name] ?? "";
    this.limit.value = limit;
    if (![...this.snapshot.options].some((option) => option.value === snapshot)) {
      this.snapshot.append(h("option", { value: snapshot }, snapshot)); // of a link: it may be gone, the service says so
    }
    this.snapshot.value = snapshot;
    this.describe();
  }

  describe() {
    const { columns, where, limit, snapshot } = this.read();
    const said = [
      columns.length && counted(columns.length, "column"),
      ...Object.entries(where).map(([name, value]) => `${name}=${value}`),
      snapshot && `snapshot ${snapshot}`,
      limit && `at most ${limit}`,
    ];
    this.hint.textContent = said.filter(Boolean).join(" · ");
  }
}

function partitionBox(name, partitions) {
  const values = new Set(partitions.map(({ partition }) => valueIn(partition, name)).filter((value) => value !== null));
  const list = h("datalist", { id: `values-${name}` }, [...values].map((value) => h("option", { value })));
  const input = h("input", { id: `where-${name}`, type: "text", list: list.id, spellcheck: "false", autocomplete: "off", placeholder: "any" });
  return { input, list };
}

/** The value of one column in a partition's name, `dt=2026-01-01/country=de`; null where it has none. */
function valueIn(partition, name) {
  const part = partition.split("/").find((one) => one.startsWith(`${name}=`));
  if (part === undefined) return null;
  try {
    return decodeURIComponent(part.slice(name.length + 1));
  } catch {
    return null; // a hint less; the box takes any text
  }
}

function snapshotBox({ snapshot, snapshots }) {
  const older = snapshots.filter(({ snapshot: number }) => number !== snapshot.number).reverse();
  const option = ({ snapshot: number, committed_at: at, rows }) =>
    h("option", { value: String(number) }, at === null ? `${number} · cannot be read` : `${number} · ${at.slice(0, 16).replace("T", " ")} · ${count(rows)} rows`);
  return h("select", { id: "snapshot" }, h("option", { value: "" }, "newest"), older.map(option));
}
