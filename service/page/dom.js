// Elements, numbers as people read them, and what the page says to a screen reader.

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element. Children are nodes and texts: nothing is ever read as markup. */
export function h(tag, properties, ...children) {
  return build(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function svg(tag, properties, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

const grouped = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (number) => grouped.format(number);

/** `1 row`, `2 rows`. */
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A size in units of 1,000 bytes. */
export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let size = number;
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? short.format(size) : size} ${units[unit]}`;
}

export function microseconds(number) {
  if (number < 1000) return `${number} µs`;
  return number < 1e6 ? `${short.format(number / 1000)} ms` : `${short.format(number / 1e6)} s`;
}

/** How long ago, in the largest unit that fits. */
export function ago(seconds) {
  if (seconds < 10) return "just now";
  for (const [size, name] of [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]) {
    if (seconds >= size) return `${counted(Math.floor(seconds / size), name)} ago`;
  }
  return "just now";
}

/** Tell a screen reader; what is said twice is heard twice. */
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = place.textContent === text ? `${text}\u00a0` : text;
}

const MANY_COLUMNS = 20;

/** A box that leaves only those columns of a part of the page whose name has the typed text; null where there are few.
 *  An element with a column's name in `data-column` is that column. */
export function columnFilter(part, columns) {
  if (columns <= MANY_COLUMNS) return null;
  const box = h("input", { type: "text", class: "filter", placeholder: `Filter ${counted(columns, "column")}`, "aria-label": "Filter the columns", spellcheck: "false", autocomplete: "off" });
  const apply = () => {
    const wanted = box.value.trim().toLowerCase();
    for (const element of part.querySelectorAll("[data-column]")) element.hidden = !element.dataset.column.toLowerCase().includes(wanted);
  };
  box.addEventListener("input", apply);
  box.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault()); // in a form it would ask
  part.addEventListener("click", apply); // it may have shown more rows
  return box;
}

/** A button that copies, and says that it did. */
export function copyButton(label, text, name = label) {
  const button = h("button", { type: "button", class: "quiet small copy", "aria-label": name === label ? null : name }, label);
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      done = byHand(text()); // the clipboard is refused where the page came over plain HTTP from another machine
    }
    button.textContent = done ? "Copied" : "Not allowed";
    say(button.textContent);
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

function byHand(text) {
  const focused = document.activeElement;
  const area = h("textarea", { class: "unseen", value: text });
  (focused?.closest("dialog") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}
