// What the page shows, in the fragment of its address: `#/pages/<key>?columns=a,b&where=dt=2026-01-01&limit=5&snapshot=7`.
//
// The key of one column is all between the name and `?`; of several, each column's value stands between slashes.
// `#/pages` asks for nothing, `#/pages/` for the empty text. `keys=prefix` asks for the keys that begin with this one, `from`
// for those from it on, `until` for those up to it, backwards; `after` has the cursor of the page before. A fragment, unlike a path, is left alone by browsers: in a
// path they would drop the keys `.` and `..`.

const OPTION_PREFIX = "_"; // of options in a query of the service, which holds key columns, too
const SAFE = /%(?:2F|3A|40|2C|24|26|3D|2B|3B)/g; // / : @ , $ & = + ; need no escape in a fragment's path

/** An address that cannot be understood. */
export class BadAddress extends Error {}

function decoded(text, what) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new BadAddress(`${what} of this link is not UTF-8 when percent-decoded: ${text.slice(0, 100)}`);
  }
}

/** The fragment in parts: index, view, options; `key` is as it stands there until the columns are known. */
export function parse(fragment) {
  const [path, ...rest] = fragment.replace(/^#/, "").split("?");
  const slash = path.indexOf("/", 1);
  const options = { columns: [], where: Object.create(null), limit: "", snapshot: "" };
  const route = { index: null, key: null, view: "lookup", nulls: [], range: "", after: "", options };
  if (!path.startsWith("/")) return route;
  route.index = decoded(slash < 0 ? path.slice(1) : path.slice(1, slash), "The index") || null;
  if (slash >= 0) route.key = path.slice(slash + 1);
  for (const pair of rest.join("?").split("&").filter(Boolean)) {
    const equals = pair.indexOf("=");
    const name = decoded(equals < 0 ? pair : pair.slice(0, equals), "An option");
    const value = decoded(equals < 0 ? "" : pair.slice(equals + 1), `The option ${name}`);
    if (name === "view") route.view = value === "health" ? "health" : "lookup";
    else if (name === "columns") options.columns = value.split(",").filter(Boolean);
    else if (name === "where") takeWhere(options.where, value);
    else if (name === "null") route.nulls.push(value);
    else if (name === "keys") route.range = value in ENDS ? value : "";
    else if (name === "after") route.after = value;
    else if (name === "limit" || name === "snapshot") options[name] = value;
  }
  return route;
}

function takeWhere(where, text) {
  const column = text.split("=", 1)[0];
  if (column in where) throw new BadAddress(`This link names ${column} twice; this page takes one value of a partition column.`);
  where[column] = text.slice(text.indexOf("=") + 1);
}

/** The values of a key's columns, null for those the address calls null. */
export function values(route, keys) {
  const parts = keys.length === 1 ? [route.key] : route.key.split("/");
  if (parts.length !== keys.length) {
    throw new BadAddress(`The key of this link has ${parts.length} parts; expected ${keys.length}: ${keys.join(", ")}`);
  }
  return keys.map((name, place) => (route.nulls.includes(name) ? null : decoded(parts[place], "The key")));
}

/** The fragment of an index, a key (null for none) and options. Throws BadAddress for text that is not Unicode. */
export function format({ index, keys = [], values: key = null, view = "lookup", range = "", after = "", options = {} }) {
  let text = `#/${encodeURIComponent(index)}`;
  const query = [];
  if (view === "health") query.push("view=health");
  if (key !== null) {
    const encoded = key.map((value) => encode(value ?? ""));
    text += `/${key.length === 1 ? encoded[0].replace(SAFE, decodeURIComponent) : encoded.join("/")}`;
    keys.forEach((name, place) => key[place] === null && query.push(`null=${encodeURIComponent(name)}`));
  }
  if (range) query.push(`keys=${range}`);
  if (after) query.push(`after=${encode(after)}`);
  query.push(...optionPairs(options).map(([name, value]) => `${name}=${encode(value).replace(SAFE_IN_QUERY, decodeURIComponent)}`));
  return query.length ? `${text}?${query.join("&")}` : text;
}

const SAFE_IN_QUERY = /%(?:2F|3A|2C|3D)/g;

/** Percent-encoded, once. */
function encode(text) {
  try {
    return encodeURIComponent(text);
  } catch {
    throw new BadAddress("The key holds half of a character (a lone surrogate), which no key of an index does.");
  }
}

/** Options as pairs of name and text, as they stand in a link to the page. The service takes them with a prefix. */
function optionPairs({ columns = [], where = {}, limit = "", snapshot = "" }) {
  const pairs = columns.length ? [["columns", columns.join(",")]] : [];
  for (const [name, value] of Object.entries(where)) pairs.push(["where", `${name}=${value}`]);
  if (limit !== "") pairs.push(["limit", limit]);
  if (snapshot !== "") pairs.push(["snapshot", snapshot]);
  return pairs;
}

/** The request for a key. In the path, browsers would take `.` for a folder; so it goes by column name in the query, and
 *  in a body if it holds nulls, or if the name of a column may be that of an option. */
export function request(index, keys, key, options) {
  const place = `indexes/${encodeURIComponent(index)}/rows`;
  const pairs = optionPairs(options).map(([name, value]) => [OPTION_PREFIX + name, value]);
  if (key.includes(null) || keys.some((name) => name.startsWith(OPTION_PREFIX))) {
    const body = JSON.stringify({ keys: [Object.fromEntries(keys.map((name, at) => [name, key[at]]))] });
    return { method: "POST", url: withQuery(place, pairs), body };
  }
  return { method: "GET", url: withQuery(place, [...keys.map((name, at) => [name, key[at]]), ...pairs]) };
}

// The options of the service for each kind of range: with an end, and without.
const ENDS = {
  prefix: { end: "_prefix", more: [], open: [["_reverse", "false"]] },
  from: { end: "_from", more: [], open: [["_reverse", "false"]] },
  until: { end: "_to", more: [["_inclusive", "true"], ["_reverse", "true"]], open: [["_reverse", "true"]] },
};

/** The request for a page of a range, whose end is the key without the empty values behind its last one. */
export function rangeRequest(index, key, range, after, options) {
  if (key.includes(null)) throw new BadAddress("A range has no null as its end. Nulls come first: leave the box empty to begin with them.");
  const { end, more, open } = ENDS[range];
  const values = key.slice(0, key.findLastIndex((value) => value !== "") + 1);
  const ends = values.length ? [...values.map((value) => [end, value]), ...more] : open;
  const pairs = [...ends, ...optionPairs(options).map(([name, value]) => [OPTION_PREFIX + name, value])];
  if (after) pairs.push(["_after", after]);
  return { method: "GET", url: withQuery(`indexes/${encodeURIComponent(index)}/rows`, pairs) };
}

function withQuery(place, pairs) {
  return pairs.length ? `${place}?${pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&")}` : place;
}
