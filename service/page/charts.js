// Small charts of rows in SVG. Each is one path whatever the number of values, stretched to its box; names of values stand beside
// it as text, and its whole content in the words of its label.

import { counted, h, svg } from "./dom.js";

const WIDE = 1000;
const HIGH = 100;
const WIDEST_BAR = 90;
const MOST_BARS = 512; // more than a screen shows apart

/** Groups of neighbours, at most MOST_BARS, each by its largest value. */
function grouped(values) {
  const size = Math.ceil(values.length / MOST_BARS);
  const groups = [];
  for (let begin = 0; begin < values.length; begin += size) {
    const end = Math.min(begin + size, values.length);
    let largest = begin;
    for (let at = begin + 1; at < end; at += 1) if (values[at] > values[largest]) largest = at;
    groups.push({ begin, end, largest, value: values[largest] });
  }
  return groups;
}

/** Bars from the left to the right. `name` gives the words for a value at a place; `mean` is drawn as a line. */
export function bars(values, { label, name, mean = null, low = "", high = "" }) {
  const groups = grouped(values);
  const top = Math.max(...groups.map((group) => group.value), 1);
  const step = WIDE / groups.length;
  const wide = groups.length > 200 ? step : Math.min(step * 0.78, WIDEST_BAR);
  const up = (value) => (value ? Math.max((value / top) * HIGH, 1) : 0);
  const shape = groups.map(({ value }, at) => `M${(at * step + (step - wide) / 2).toFixed(2)} ${HIGH}v${-up(value).toFixed(2)}h${wide.toFixed(2)}V${HIGH}z`);
  const cursor = svg("rect", { class: "cursor", y: 0, height: HIGH, width: step, visibility: "hidden" });
  const drawing = frame(label, svg("path", { class: "bars", d: shape.join("") }), cursor);
  if (mean !== null) {
    const height = HIGH - up(mean);
    drawing.append(svg("path", { class: "mean", d: `M0 ${height}H${WIDE}` }));
  }
  const move = (share) => {
    const group = groups[Math.min(groups.length - 1, Math.max(0, Math.floor(share * groups.length)))];
    cursor.setAttribute("x", String(groups.indexOf(group) * step));
    cursor.setAttribute("visibility", "visible");
    return name(group.largest, group);
  };
  return figure(drawing, move, () => cursor.setAttribute("visibility", "hidden"), { low, high, top });
}

/** A line over time; `points` are {at (milliseconds), value, name}. */
export function line(points, { label, low = "", high = "" }) {
  const [first, last] = [points[0].at, points[points.length - 1].at];
  const top = Math.max(...points.map((point) => point.value), 1);
  const x = (at) => (last > first ? ((at - first) / (last - first)) * (WIDE - 16) + 8 : WIDE / 2);
  const y = (value) => HIGH - (value / top) * (HIGH - 8) - 1;
  // Steps, not slopes: between two snapshots the index had the rows of the first.
  const steps = points.map(({ at, value }, place) => `${place ? `H${x(at).toFixed(2)}V` : `M${x(at).toFixed(2)} `}${y(value).toFixed(2)}`).join("");
  const cursor = svg("path", { class: "dot cursor-dot" });
  const dots = points.length <= 60 ? points.map(({ at, value }) => `M${x(at).toFixed(2)} ${y(value).toFixed(2)}h0`).join("") : "";
  const drawing = frame(label,
    svg("path", { class: "area", d: `${steps}V${HIGH}H${x(first).toFixed(2)}z` }),
    svg("path", { class: "stroke", d: steps }), svg("path", { class: "dot", d: dots }), cursor);
  const move = (share) => {
    const near = points.reduce((best, point) => (Math.abs(x(point.at) / WIDE - share) < Math.abs(x(best.at) / WIDE - share) ? point : best));
    cursor.setAttribute("d", `M${x(near.at).toFixed(2)} ${y(near.value).toFixed(2)}h0`);
    return near.name;
  };
  return figure(drawing, move, () => cursor.removeAttribute("d"), { low, high, top });
}

function frame(label, ...shapes) {
  return svg("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("path", { class: "ground", d: `M0 ${HIGH}H${WIDE}` }), ...shapes);
}

function figure(drawing, move, leave, { low, high, top }) {
  const readout = h("span", { class: "readout" });
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    readout.textContent = move((event.clientX - box.left) / box.width);
  });
  drawing.addEventListener("pointerleave", () => {
    leave();
    readout.textContent = "";
  });
  return h("div", { class: "figure" }, h("div", { class: "over", "aria-hidden": "true" }, h("span", { class: "faint" }, counted(top, "row")), readout), drawing,
    h("div", { class: "ends faint", "aria-hidden": "true" }, h("span", null, low), h("span", null, high)));
}
