// Text as it is. What a screen would hide, merge or replace (control and format characters, halves of characters, the
// replacement character itself) is named where it stands, so that two keys that look alike do not.

import { count, h } from "./dom.js";

// But line ends and tabs; and the joiners, without which emoji and Persian come apart.
const HIDDEN = /(?![ \n\t\u200c\u200d]|\r\n)[\p{Cc}\p{Cf}\p{Cs}\p{Zs}\p{Zl}\p{Zp}\ufffd]/u;
const EACH_HIDDEN = new RegExp(HIDDEN, "gu");
const MOST_MARKS = 2000; // then names without an element of their own: a binary text would make millions of them
const FOLDED_CHARACTERS = 600;
const FOLDED_LINES = 9;

const named = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** The text as nodes, hidden characters named. */
export function marked(text) {
  if (!HIDDEN.test(text)) return [text];
  const nodes = [];
  let at = 0;
  let marks = 0;
  for (const found of text.matchAll(EACH_HIDDEN)) {
    if (marks === MOST_MARKS) {
      nodes.push(text.slice(at).replace(EACH_HIDDEN, (one) => `[${named(one)}]`));
      return nodes;
    }
    nodes.push(text.slice(at, found.index), h("span", { class: "hidden-character" }, named(found[0])));
    at = found.index + found[0].length;
    marks += 1;
  }
  nodes.push(text.slice(at));
  return nodes;
}

const BLANKS = /^[ \n\t]+|[ \n\t]+$|[ \n\t]{2,}|[\n\t]/g; // that nobody sees in a line of text

/** The text of a key as nodes: as `marked`, and blanks named at its ends, where several follow each other, and where
 *  they end a line. */
export function blanksMarked(text) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(BLANKS)) {
    nodes.push(...marked(text.slice(at, found.index)));
    const runs = found[0].match(/ +|\n+|\t+/g);
    nodes.push(...runs.slice(0, MOST_MARKS).map((run) => h("span", { class: "hidden-character" }, run.length > 1 ? `${named(run[0])} × ${count(run.length)}` : named(run[0]))));
    at = found.index + found[0].length;
  }
  return [...nodes, ...marked(text.slice(at))];
}

function fold(text) {
  let end = Math.min(text.length, FOLDED_CHARACTERS);
  let line = -1;
  for (let lines = 0; lines < FOLDED_LINES; lines += 1) {
    line = text.indexOf("\n", line + 1);
    if (line < 0 || line >= end) return end;
  }
  end = Math.min(end, line);
  const code = text.charCodeAt(end - 1);
  return code >= 0xd800 && code <= 0xdbff ? end - 1 : end; // not between the halves of a character
}

/** A text, long ones folded. `name` is for the box that it scrolls in. */
export function textView(text, name) {
  if (text === "") return h("span", { class: "faint" }, "empty text");
  const end = fold(text);
  if (text.length <= end * 1.2) return h("pre", { class: "text" }, marked(text));
  const box = h("pre", { class: "text", id: nextId() });
  const button = h("button", { type: "button", class: "quiet small more", "aria-controls": box.id });
  let open = true;
  const turn = () => {
    open = !open;
    box.replaceChildren(...(open ? marked(text) : [...marked(text.slice(0, end)), "…"]));
    box.classList.toggle("tall", open);
    scrollable(box, open, name);
    button.textContent = open ? "Show less" : `Show all ${count(text.length)} characters`;
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", turn);
  turn();
  return h("div", null, box, button);
}

/** A box that scrolls must be within reach of the keyboard, and have a name. */
export function scrollable(box, on, name) {
  for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) {
    if (on) box.setAttribute(attribute, value);
    else box.removeAttribute(attribute);
  }
}

let ids = 0;
function nextId() {
  ids += 1;
  return `part-${ids}`;
}

const ROW = 16;
const FOLDED_BYTES = 16 * ROW;
const MOST_BYTES = 64 * 1024; // shown at once: beyond it a reader wants a file

/** Bytes as offsets, hexadecimal and ASCII. */
export function bytesView(content, name) {
  if (!content.length) return h("span", { class: "faint" }, "no bytes");
  const width = matchMedia("(max-width: 40rem)").matches ? ROW / 2 : ROW;
  const box = h("pre", { class: "hex" });
  scrollable(box, true, `${name}, bytes`);
  const show = (most) => (box.textContent = dump(content.subarray(0, most), width));
  show(FOLDED_BYTES);
  if (content.length <= FOLDED_BYTES) return h("div", null, box, h("p", { class: "faint" }, `${count(content.length)} bytes`));
  const all = content.length <= MOST_BYTES ? "all" : `the first ${count(MOST_BYTES)} of`;
  const more = h("button", { type: "button", class: "quiet small more" }, `Show ${all} ${count(content.length)} bytes`);
  more.addEventListener("click", () => {
    show(MOST_BYTES);
    box.classList.add("tall");
    box.focus();
    more.remove();
  });
  return h("div", null, box, more);
}

function dump(content, width) {
  const lines = [];
  for (let at = 0; at < content.length; at += width) {
    const row = [...content.subarray(at, at + width)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const halves = [hex.slice(0, 8).join(" "), hex.slice(8).join(" ")].filter(Boolean).join("  ");
    const ascii = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${halves.padEnd(width * 3 - (width > 8 ? 0 : 1))}  ${ascii}`);
  }
  return lines.join("\n");
}
