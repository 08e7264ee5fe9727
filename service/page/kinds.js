// The types of key columns in words: what a box takes, beside it in short, and whole where it was given something else.

const whole = (least, most) => ({ short: "a whole number", range: ` from ${least} to ${most}`, like: "42" });
const MOMENT = { short: "a moment", like: "2026-01-31T12:00:00Z", more: "; UTC without an offset" };
const DATE_AND_TIME = { short: "a date and time", like: "2026-01-31T12:00:00", more: ", without an offset" };
const KINDS = {
  string: { short: "text" },
  boolean: { short: "true or false" },
  tinyint: whole("-128", "127"),
  smallint: whole("-32,768", "32,767"),
  int: whole("-2,147,483,648", "2,147,483,647"),
  bigint: whole("-9,223,372,036,854,775,808", "9,223,372,036,854,775,807"),
  uint64: whole("0", "18,446,744,073,709,551,615"),
  half: { short: "a number", like: "1.5" },
  float: { short: "a number", like: "1.5" },
  double: { short: "a number", like: "1.5" },
  date: { short: "a date", like: "2026-01-31" },
  timestamp: MOMENT,
  timestamp_ntz: DATE_AND_TIME,
  "timestamp(ns)": MOMENT,
  "timestamp_ntz(ns)": DATE_AND_TIME,
  binary: { short: "bytes in base64", like: "SGVsbG8=" },
  uuid: { short: "a UUID", like: "123e4567-e89b-12d3-a456-426614174000" },
};
const SHOWN_BESIDE = new Set(["date", "timestamp", "timestamp_ntz", "timestamp(ns)", "timestamp_ntz(ns)"]);

function kind(type) {
  if (type.startsWith("time(")) return { short: "a time of day", like: "12:00:00" };
  const [, precision, scale] = /^decimal\((\d+),\s*(\d+)\)$/.exec(type) ?? [];
  if (precision) {
    const behind = Number(scale) ? `, ${scale} of them behind the point` : "";
    return { short: "a number", range: ` of at most ${precision} digits${behind}`, like: Number(scale) ? "1.5" : "42" };
  }
  return KINDS[type] ?? { short: type };
}

/** What stands beside the box. */
export function hint(type) {
  const { short, like, more = "" } = kind(type);
  return SHOWN_BESIDE.has(type) ? `${short}, like ${like}${more}` : short;
}

/** What is said where the box was given something else. */
export function taken(type) {
  const { short, range = "", like, more = "" } = kind(type);
  return `${short}${range}${like ? `, like ${like}` : ""}${more}`;
}
