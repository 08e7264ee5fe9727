// Nested values as trees that fold. What is folded is built when it is opened: a large value costs what is seen of it.

import { count, counted, h } from "./dom.js";
import { Num, Obj } from "./exact.js";
import { marked } from "./text.js";

const OPEN_LEVELS = 2;
const OPEN_MEMBERS = 30; // a larger object or list begins folded
const AT_ONCE = 100;

/** A value of JSON as a tree; the outer levels open. `label` stands before it, on the same line. */
export function tree(value, level = 0, label = null) {
  if (value instanceof Obj) return branch(value.entries, "member", level, label, ([name, inner]) => [h("span", { class: "name" }, marked(name), ": "), inner]);
  if (Array.isArray(value)) return branch(value, "item", level, label, (inner, at) => [h("span", { class: "place" }, `${at} `), inner]);
  return label ? h("span", null, label, leaf(value)) : leaf(value);
}

/** A value without parts. */
export function leaf(value) {
  if (value === null) return h("span", { class: "null" }, "null");
  if (value instanceof Num) return h("span", { class: "number" }, value.text);
  if (typeof value === "boolean") return h("span", { class: "word" }, String(value));
  return h("span", { class: "string" }, "“", marked(value), "”");
}

function branch(parts, noun, level, label, line) {
  if (!parts.length) return h("span", null, label, h("span", { class: "faint" }, noun === "member" ? "{ } no members" : "[ ] no items"));
  const list = h("ul");
  const details = h("details", { class: "tree" }, h("summary", null, label, counted(parts.length, noun)), list);
  const grow = () => {
    const begin = list.childElementCount;
    for (const [at, part] of parts.slice(begin, begin + AT_ONCE).entries()) {
      const [name, inner] = line(part, begin + at);
      list.append(h("li", null, tree(inner, level + 1, name)));
    }
    const left = parts.length - begin - AT_ONCE;
    if (left > 0) list.append(more(left, list, grow));
  };
  details.addEventListener("toggle", () => details.open && !list.childElementCount && grow());
  if (level < OPEN_LEVELS && parts.length <= OPEN_MEMBERS) {
    grow();
    details.open = true;
  }
  return details;
}

function more(left, list, grow) {
  const item = h("li");
  const button = h("button", { type: "button", class: "quiet small" }, `Show ${count(Math.min(left, AT_ONCE))} of ${count(left)} more`);
  button.addEventListener("click", () => {
    item.remove();
    grow();
  });
  item.append(button);
  return item;
}
