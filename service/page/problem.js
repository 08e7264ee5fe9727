// What the page says when there is no row to show: kindly, with what to do, and with the service's own words.

import { ask } from "./api.js";
import { copyButton, count, counted, h } from "./dom.js";
import { format, request } from "./route.js";
import { blanksMarked, marked } from "./text.js";
import { tokenWanted } from "./token.js";

const TITLES = {
  0: "The service did not answer",
  400: "The question was not understood",
  401: "A token is needed",
  403: "This token may not ask that",
  406: "The service cannot answer in this form",
  409: "The file changed since it was indexed",
  413: "That is more than the service gives at once",
  429: "Too many questions at once",
  500: "The service failed",
  501: "This kind of file cannot be read",
  503: "Not available just now",
};
const HINTS = {
  0: "Check that the service runs and that this machine reaches it.",
  403: "Another token may; forget this one above.",
  409: "Its row is not shown, for it could be another one. The next build of the index takes the file in.",
  413: "Ask for fewer rows or fewer columns: both are among the options.",
  429: "Wait for a moment, then ask again.",
  500: "Whoever runs the service finds the reason in its log by the request id below.",
  503: "This often passes. If it stays, tell whoever runs the service, with the request id below.",
};
const PASSING = new Set([0, 409, 429, 500, 503]);

/** What a failure is, in a few words. */
export function headline({ status, problem }) {
  if (problem.type?.endsWith(":partition-not-found")) return "There is no such partition";
  return TITLES[status] ?? problem.title ?? "That did not work";
}

/** The view of a failure. `again` asks once more; `words` stand for those of the service, where they are plainer;
 *  `otherwise` is what may be asked instead. */
export function problemView(failure, again, words = null, otherwise = null) {
  const { status, problem } = failure;
  const detail = words ?? (status === 401 ? tokenWanted(failure.message) : problem.detail ?? problem.title ?? "");
  return h("div", { class: "problem", role: "alert" },
    h("h1", null, headline(failure)),
    h("p", { class: "detail" }, marked(String(detail))),
    HINTS[status] && h("p", null, HINTS[status]),
    otherwise && h("ul", { class: "tries" }, otherwise),
    h("div", { class: "buttons" }, PASSING.has(status) && againButton(failure.retryAfterSeconds, again)),
    factsOf([["Status", status && `${status} ${problem.title ?? ""}`], ["Request id", failure.requestId]]));
}

function factsOf(facts) {
  const known = facts.filter(([, value]) => value);
  return known.length > 0 && h("dl", { class: "facts" }, known.map(([name, value]) =>
    h("div", null, h("dt", null, name), h("dd", null, h("code", null, value),
      name === "Request id" && copyButton("Copy", () => value, "Copy the request id")))));
}

/** A button that waits as long as the service asks to be left alone. It stays in reach of the keyboard meanwhile. */
function againButton(seconds, again) {
  const button = h("button", { type: "button", class: "main" });
  let left = Math.min(Math.ceil(seconds), 3600);
  const show = () => {
    button.textContent = left > 0 ? `Try again in ${left} s` : "Try again";
    button.setAttribute("aria-disabled", String(left > 0));
  };
  button.addEventListener("click", () => left > 0 || again());
  show();
  const timer = setInterval(() => {
    left -= 1;
    show();
    if (left <= 0 || !button.isConnected) clearInterval(timer);
  }, 1000);
  return button;
}

/** The view of a key that no row has. `asked` is {index, keys, values, options}, `info` what is known of the index. */
export function notFoundView(problem, asked, info) {
  const covered = problem.covered;
  const where = Object.entries(asked.options.where);
  const found = h("ul", { class: "tries" });
  const view = h("article", { class: "problem not-found" },
    h("h1", null, asked.range ? "No key in this range" : "No row has this key"),
    h("p", { class: "detail" }, keyText(asked)),
    h("p", null, covered
      ? `Snapshot ${count(problem.snapshot)} covers ${counted(covered.rows, "row")} of ${counted(covered.source_files, "source file")}${where.length ? "; only the partitions asked for were looked at." : asked.range ? ", and none of them has a key in this range." : ", and it is in none of them."}`
      : problem.detail),
    found,
    h("p", { class: "faint" }, "Keys match exactly: capital letters, spaces and a slash at the end all count."));
  const suggest = (values, options, text) => found.append(suggestion(asked, values, options, text));
  if (where.length) found.append(allPartitions(asked));
  if (asked.options.snapshot !== "") suggest(asked.values, { ...asked.options, snapshot: "" }, "Ask the newest snapshot");
  const coverage = info.coverage;
  if (coverage && coverage.new + coverage.changed > 0) {
    const waiting = counted(coverage.new + coverage.changed, "source file");
    found.append(h("li", null, `${waiting} came or changed since the index was built. The next build takes them in.`));
  }
  if (!asked.range) lookNearby(asked, suggest);
  return view;
}

function keyText({ keys, values }) {
  return keys.map((name, place) => h("span", { class: "key-part" }, keys.length > 1 && h("span", { class: "faint" }, `${name} `),
    values[place] === null ? h("span", { class: "null" }, "null") : values[place] === "" ? h("span", { class: "null" }, "empty text") : keyCode(values[place])));
}

/** The same key in all partitions. */
export function allPartitions(asked) {
  const named = Object.entries(asked.options.where).map((pair) => pair.join("=")).join(", ");
  return suggestion(asked, asked.values, { ...asked.options, where: {} }, `Ask all partitions, not ${named} alone`);
}

function suggestion(asked, values, options, text) {
  return h("li", null, h("a", { href: format({ ...asked, values, options }) }, text));
}

const keyCode = (value) => h("code", { class: "exact" }, blanksMarked(value));

/** Spellings that people often mean, each offered only if the index has it. */
async function lookNearby(asked, suggest) {
  if (asked.values.includes(null)) return;
  await Promise.all(nearby(asked.values).map(async (values) => {
    try {
      const { url, method } = request(asked.index, asked.keys, values, { ...asked.options, limit: "", columns: [] });
      if (method !== "GET") return;
      await ask(url, { method: "HEAD", quiet: true });
      const shown = values.flatMap((value, place) => [place > 0 && " · ", keyCode(value)]);
      suggest(values, asked.options, ["This key is there: ", ...shown]);
    } catch {
      // not there, or not to be had: then it is not offered
    }
  }));
}

const MOST_TRIED = 6;

/** Keys to try in place of one that is not there: other spellings of its only value, or of one of its values. */
function nearby(values) {
  if (values.length === 1) return spellings(values[0]).map((spelling) => [spelling]);
  const trimmed = values.map((value) => value.trim());
  const cased = trimmed.flatMap((value, place) => [value.toLowerCase(), value.toUpperCase()].map((other) => trimmed.with(place, other)));
  const found = new Map([trimmed, ...cased].map((one) => [JSON.stringify(one), one]));
  found.delete(JSON.stringify(values));
  return [...found.values()].slice(0, MOST_TRIED);
}

/** Other spellings of a key: a slash more or less, in small letters, in capital ones, https for http, decoded. */
function spellings(key) {
  const trimmed = key.trim();
  const isUrl = /^https?:/i.test(trimmed);
  const slashed = (text) => (text.endsWith("/") ? text.slice(0, -1) : `${text}/`);
  const tried = [trimmed, slashed(trimmed), trimmed.toLowerCase()];
  if (!isUrl) tried.push(trimmed.toUpperCase());
  if (/^https?:/.test(trimmed)) {
    const other = trimmed.startsWith("https:") ? `http:${trimmed.slice(6)}` : `https:${trimmed.slice(5)}`;
    tried.push(other, slashed(other));
  }
  try {
    tried.push(decodeURIComponent(trimmed));
  } catch {
    // it holds a percent sign that escapes nothing
  }
  return [...new Set(tried)].filter((one) => one !== key && one !== "").slice(0, MOST_TRIED);
}
