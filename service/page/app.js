// The page: the address says what is shown; asking changes the address. So back, forward and links just work.

import { answerView, rawView, readAnswer } from "./answer.js";
import { ask, Failure, figures } from "./api.js";
import { counted, h, say } from "./dom.js";
import { Num } from "./exact.js";
import { LIMIT, QuestionForm } from "./form.js";
import { healthView, summaryView } from "./health.js";
import { allPartitions, headline, notFoundView, problemView } from "./problem.js";
import { BadAddress, format, parse, rangeRequest, request, values } from "./route.js";

const main = document.getElementById("main");
const form = new QuestionForm(document.getElementById("ask"), submit);
const infos = new Map(); // what is known of each index: asked for once, and again for its health
let indexes = [];
let current = null; // the index the form is made for
let running = new AbortController();

const SLOW_MILLISECONDS = 150; // an answer that comes sooner needs no sign that it is waited for

function show(view, title) {
  main.replaceChildren(...[view].flat().filter(Boolean));
  document.title = title ? `${title} · Gnomon` : "Gnomon";
}

async function info(name, anew = false) {
  if (anew || !infos.has(name)) infos.set(name, await figures(`indexes/${encodeURIComponent(name)}`));
  return infos.get(name);
}

/** Do what the address says; what was on its way before is given up. */
async function follow() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const slow = setTimeout(() => main.setAttribute("aria-busy", "true"), SLOW_MILLISECONDS);
  try {
    await showRoute(parse(location.hash), signal);
  } catch (error) {
    if (signal.aborted) return;
    show(faultView(error), headline(asFailure(error)));
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function faultView(error) {
  if (!(error instanceof Failure || error instanceof BadAddress)) console.error(error);
  return problemView(asFailure(error), follow);
}

function asFailure(error) {
  if (error instanceof Failure) return error;
  const known = error instanceof BadAddress;
  return new Failure(known ? 400 : 500, { title: known ? "Bad address" : "Fault of this page", detail: error.message });
}

async function showRoute(route, signal) {
  if (!indexes.length) indexes = (await figures("indexes", { signal })).indexes;
  const name = route.index ?? indexes.find((one) => one.default)?.name ?? indexes[0].name;
  navigation(name, route.view);
  const known = await info(name, route.view === "health").catch((error) => error);
  if (signal.aborted) return;
  if (known instanceof Error) return closed(name, route.view, known);
  prepare(name, known);
  form.element.hidden = route.view === "health" || !known.keys.length;
  if (route.view === "health") return show([chooser(name, "health"), healthView(known)], `${name}, health`);
  if (route.key === null) {
    form.fill(null, route.range, route.options);
    const examples = h("p", { class: "examples" });
    show(summaryView(known, examples), name);
    return offer(examples, name, known, signal);
  }
  const keys = known.keys.map((key) => key.name);
  const key = values(route, keys);
  form.fill(key, route.range, route.options);
  const { range, after, options } = route;
  await answered({ index: name, keys, values: key, range, after, options }, known, signal);
}

/** Offer the first keys of an index, for those who know none. Where it shows no keys, or has none, nothing is offered. */
async function offer(examples, index, known, signal) {
  const keys = known.keys.map((key) => key.name);
  if (!keys.length || !known.snapshot.rows) return;
  const { url } = rangeRequest(index, keys.map(() => ""), "from", "", { columns: keys, limit: "3" });
  try {
    const { rows } = readAnswer((await ask(url, { signal })).value);
    const addresses = new Map(rows.map((row) => [hrefOf(row, { index, keys, options: {} }), row]));
    const links = [...addresses].filter(([href]) => href !== null).map(([href, row]) =>
      h("a", { href }, keys.map((name) => textOf(row.get(name)) ?? "null").join(", ") || "empty text"));
    if (links.length) examples.append("Keys to try: ", ...links.flatMap((one, place) => (place ? [" · ", one] : [one])));
  } catch (error) {
    if (!(error instanceof Failure) && !signal.aborted) throw error;
  }
}

/** An index that cannot be described; the others stay within reach. */
function closed(name, view, error) {
  current = null;
  form.element.hidden = true;
  form.element.replaceChildren();
  show([chooser(name, view), faultView(error)], name);
}

async function answered(asked, known, signal) {
  const { index, keys, values: key, range, after } = asked;
  const options = { ...asked.options, limit: asked.options.limit || String(LIMIT) };
  const { url, method, body } = range ? rangeRequest(index, key, range, after, options) : request(index, keys, key, options);
  const explained = range ? url : `${url}${url.includes("?") ? "&" : "?"}_explain=true`;
  const title = `${key.map((one) => one ?? "null").join(", ")}${range && " …"} · ${index}`;
  try {
    const reply = await ask(explained, { method, body, signal });
    const answer = read(reply);
    if (signal.aborted) return;
    if (answer instanceof Error) return show(rawView(reply, answer.message), title);
    if (answer.error) throw new Failure(answer.error.status, answer.error);
    if (!answer.count && !range) throw new Failure(404, { type: NO_KEY, detail: `No row has this key in snapshot ${answer.snapshot}.`, snapshot: answer.snapshot });
    const ranged = range ? { hrefOf: (row) => hrefOf(row, asked), next: answer.next && format({ ...asked, after: answer.next }) } : null;
    show(answerView(answer, reply, known, { curl: curl(url, method, body), name: `${index}-${key.join("-")}`, range: ranged }), title);
    say(`${counted(answer.count, "row")} found${answer.next ? ", more follow" : ""}`);
    if (after) main.focus(); // the top of the page of rows
    else form.answered();
  } catch (error) {
    if (signal.aborted || !(error instanceof Failure)) throw error;
    refused(error, asked, known, title);
    form.answered();
  }
}

/** The address of the key of a row in a range; null where the row does not show all of it. */
function hrefOf(row, { index, keys, options }) {
  const found = keys.map((name) => row.get(name));
  if (found.includes(undefined)) return null;
  return format({ index, keys, values: found.map(textOf), options: { ...options, limit: "" } });
}

/** The value of a key column as it is typed. */
const textOf = (value) => (value === null ? null : value instanceof Num ? value.text : String(value));

const NO_KEY = "urn:gnomon:problem:key-not-found";
const NO_PARTITION = "urn:gnomon:problem:partition-not-found";

function refused(failure, asked, known, title) {
  if (failure.problem.type === NO_KEY) {
    show(notFoundView(failure.problem, asked, known), `No row · ${title}`);
    say(asked.range ? "No key in this range" : "No row has this key");
    return;
  }
  const { column, expected } = failure.problem;
  const otherwise = failure.problem.type === NO_PARTITION ? allPartitions(asked) : null;
  show(problemView(failure, follow, column && form.fault(column, expected), otherwise), `${headline(failure)} · ${asked.index}`);
}

function read(reply) {
  try {
    return readAnswer(reply.value);
  } catch (error) {
    return error;
  }
}

function curl(url, method, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl", quoted(new URL(url, document.baseURI).href)];
  if (method === "POST") parts.push("-H", quoted("content-type: application/json"), "-d", quoted(body));
  return parts.join(" ");
}

function prepare(name, known) {
  if (current === name) return;
  current = name;
  const focused = form.element.contains(document.activeElement) || document.activeElement === document.body;
  form.show(known, chooser(name, "lookup"));
  if (focused && !matchMedia("(pointer: coarse)").matches) form.focus(); // on a phone it would raise the keyboard
}

function chooser(name, view) {
  const known = indexes.some((one) => one.name === name);
  if (indexes.length < 2 && known) return null;
  const id = `index-${view}`;
  const select = h("select", { id },
    !known && h("option", { value: name, selected: true }, `${name} (not there)`),
    indexes.map((one) => h("option", { value: one.name, selected: one.name === name }, one.open ? one.name : `${one.name} (not open)`)));
  select.addEventListener("change", () => (location.hash = format({ index: select.value, view })));
  return h("div", { class: "chooser" }, h("label", { for: id }, "Index"), select);
}

function navigation(name, view) {
  document.getElementById("views").hidden = false;
  for (const [id, of] of [["to-lookup", "lookup"], ["to-health", "health"]]) {
    const link = document.getElementById(id);
    link.href = format({ index: name, view: of });
    if (of === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function submit() {
  try {
    const keys = form.info.keys.map((key) => key.name);
    const next = format({ index: current, keys, values: form.values(), range: form.range(), options: form.options.read() });
    if (next === location.hash) follow();
    else location.hash = next;
  } catch (error) {
    show(faultView(error), "Not asked");
  }
}

// `/` puts the cursor into the first box. It is a slash where somebody types, but not in a box that still holds the key
// that was asked: there it selects that key.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (form.element.hidden) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]") && !form.takesSlash(event.target)) return;
  event.preventDefault();
  form.focus();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the page's own
  main.focus();
});

addEventListener("hashchange", follow);
follow();
