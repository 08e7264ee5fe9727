// Requests to the service. An answer that is no success is thrown as a Failure that holds its problem.

import { parse, plain } from "./exact.js";
import { askToken, token } from "./token.js";

const PROBLEM = "application/problem+json";

/** What the service refused. `status` is 0 where it could not be reached. */
export class Failure extends Error {
  constructor(status, problem, headers) {
    super(problem.detail ?? problem.title);
    this.status = status;
    this.problem = problem;
    this.requestId = problem.request_id ?? headers?.get("x-request-id") ?? null;
    this.retryAfterSeconds = Number(headers?.get("retry-after") ?? 0) || 0;
  }
}

function headersFor(body) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (token() !== null) headers.authorization = `Bearer ${token()}`;
  return headers;
}

/** The answer: its bytes, the value they hold, and how long it took. Asks the user for a token where one is needed. */
export async function ask(url, { method = "GET", body, signal, quiet = false } = {}) {
  const begin = performance.now();
  const response = await fetched(url, { method, body, signal, headers: headersFor(body), cache: "no-store" });
  const bytes = await response.arrayBuffer();
  if (response.ok) {
    return { bytes, ...decoded(bytes), headers: response.headers, milliseconds: performance.now() - begin };
  }
  const failure = new Failure(response.status, problemOf(bytes, response), response.headers);
  if (failure.status === 401 && !quiet && (await askToken(failure.message))) return ask(url, { method, body, signal });
  throw failure;
}

async function fetched(url, options) {
  try {
    return await fetch(new URL(url, document.baseURI), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, { title: "No answer", detail: "The service did not answer: it may be down, or the network is." });
  }
}

/** The text and value of a body; `value` is undefined where it is no JSON that can be read, which the view then says. */
function decoded(bytes) {
  if (!bytes.byteLength) return { text: "", value: null };
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return { text, value: parse(text) };
  } catch {
    return { text: text ?? new TextDecoder("latin1").decode(bytes), value: undefined };
  }
}

function problemOf(bytes, response) {
  const known = response.headers.get("content-type")?.startsWith(PROBLEM) ? plain(decoded(bytes).value) : null;
  return known ?? { title: response.statusText || `Status ${response.status}`, detail: "The answer came from something before the service." };
}

/** The figures of an answer as ordinary objects. */
export async function figures(url, options) {
  return plain((await ask(url, options)).value);
}
