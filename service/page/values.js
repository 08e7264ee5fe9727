// One value of a row, in the views that its type allows.

import { copyButton, h } from "./dom.js";
import { Num, Obj, parse, written } from "./exact.js";
import { bytesView, textView } from "./text.js";
import { leaf, tree } from "./trees.js";

const BINARY = /^(?:large_|fixed_size_)?binary/;
const DECIMAL = /^decimal/; // comes as text, to keep its digits
const FLOAT = /^(?:half)?float|^double/;
const NOT_FINITE = new Set(["NaN", "Infinity", "-Infinity"]);
// A comment ends at its first `-->`: were it free to end at a later one, many comments would take years.
const MARKUP = /^\s*(?:<!--(?:(?!-->)[^])*-->\s*)*<(?:!doctype\s+html|html|head|body|div|p|table|h[1-6]|ul|ol|article|section|span|a|br|title|meta)\b/i;
const STRUCTURE = /^\s*[{[]/;

/** What a value is copied as: texts as they are, nested values as JSON with every digit. */
function copied(value) {
  if (value instanceof Num) return value.text;
  return typeof value === "string" ? value : written(value);
}

/** The views of a value: pairs of a name and a function that makes the element. The first is shown. */
export function viewsOf(value, type, name) {
  if (value instanceof Obj || Array.isArray(value)) {
    return [["Tree", () => tree(value)], ["JSON", () => textView(written(value), `${name}, JSON`)]];
  }
  if (typeof value !== "string") return [["Value", () => leaf(value)]];
  if (BINARY.test(type ?? "")) return binaryViews(value, name);
  if (DECIMAL.test(type ?? "") || (FLOAT.test(type ?? "") && NOT_FINITE.has(value))) return [["Value", () => h("span", { class: "number" }, value)]];
  return textViews(value, name);
}

function textViews(text, name) {
  const views = [["Text", () => textView(text, name)]];
  if (STRUCTURE.test(text)) {
    const value = parsed(text);
    if (value !== undefined) views.unshift(["Tree", () => tree(value)]);
  } else if (MARKUP.test(text.slice(0, 5000))) {
    views.push(["Rendered", () => rendered(text, name)]);
  }
  return views;
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

function binaryViews(base64, name) {
  let content;
  try {
    content = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return textViews(base64, name); // bytes come as base64; whatever else this is, it is shown
  }
  const views = [["Bytes", () => bytesView(content, name)]];
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    if (/[^\x00-\x1f]{4}/.test(text)) views.push(...textViews(text, name));
  } catch {
    // not UTF-8: there is no text to show
  }
  return views;
}

/** A document of somebody else's, in a frame that may run nothing, load nothing and go nowhere. */
function rendered(text, name) {
  const frame = h("iframe", { sandbox: "", title: `${name}, rendered`, class: "rendered", referrerpolicy: "no-referrer" });
  frame.srcdoc = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'">${text}`;
  const note = "Without scripts, styles, images or links: nothing is loaded.";
  return h("div", null, frame, h("p", { class: "faint" }, note));
}

/** The value with a switch between its views, where it has several, and a button that copies it. */
export function valueView(value, type, name) {
  const views = viewsOf(value, type, name);
  const body = h("div", { class: "shown" }, views[0][1]());
  const copy = value === null ? null : copyButton("Copy", () => copied(value), `Copy ${name}`);
  if (views.length === 1) return h("div", { class: "value" }, body, h("div", { class: "handles" }, copy));
  const made = new Map([[0, body.firstChild]]);
  const buttons = views.map(([label], place) =>
    h("button", { type: "button", class: "quiet small", "aria-pressed": String(place === 0), onclick: () => show(place) }, label),
  );
  const show = (place) => {
    if (!made.has(place)) made.set(place, views[place][1]());
    body.replaceChildren(made.get(place));
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === place)));
  };
  const group = h("div", { class: "switch", role: "group", "aria-label": `Views of ${name}` }, buttons);
  return h("div", { class: "value" }, body, h("div", { class: "handles" }, copy, group));
}
