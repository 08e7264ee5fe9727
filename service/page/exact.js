// JSON as it was sent. The browser's own parser rounds integers beyond 2^53, puts members named like numbers first and
// keeps one of two members of the same name; here numbers keep their digits and objects the order of their members.

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const SPACE = /[ \t\n\r]*/y;
const WORDS = [["true", true], ["false", false], ["null", null]];
const DEEPEST = 1000; // beyond it the stack may end; such a text is shown as text

/** A number by its digits. */
export class Num {
  constructor(text) {
    this.text = text;
  }
}

/** An object: `entries` are pairs of name and value, in order. */
export class Obj {
  constructor(entries) {
    this.entries = entries;
  }

  get(name) {
    return this.entries.find(([known]) => known === name)?.[1];
  }
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  fail(expected) {
    throw new SyntaxError(`character ${this.at}: expected ${expected}`);
  }

  space() {
    SPACE.lastIndex = this.at;
    SPACE.test(this.text);
    this.at = SPACE.lastIndex;
  }

  value(depth) {
    if (depth > DEEPEST) this.fail("less than 1,000 levels");
    const first = this.text[this.at];
    if (first === '"') return this.string();
    if (first === "{") return new Obj(this.list("}", () => this.member(depth)));
    if (first === "[") return this.list("]", () => this.value(depth + 1));
    for (const [word, meaning] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return meaning;
      }
    }
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text) ?? this.fail("a value");
    this.at = NUMBER.lastIndex;
    return new Num(found[0]);
  }

  member(depth) {
    if (this.text[this.at] !== '"') this.fail("a name");
    const name = this.string();
    this.space();
    if (this.text[this.at] !== ":") this.fail(":");
    this.at += 1;
    this.space();
    return [name, this.value(depth + 1)];
  }

  list(end, read) {
    const values = [];
    this.at += 1;
    this.space();
    if (this.text[this.at] === end) {
      this.at += 1;
      return values;
    }
    for (;;) {
      values.push(read());
      this.space();
      const next = this.text[this.at];
      if (next !== "," && next !== end) this.fail(`, or ${end}`);
      this.at += 1;
      if (next === end) return values;
      this.space();
    }
  }

  string() {
    let end = this.at;
    let before;
    do {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) this.fail("the end of a text");
      before = end;
      while (this.text[before - 1] === "\\") before -= 1;
    } while ((end - before) % 2); // the quote itself is escaped
    const value = JSON.parse(this.text.slice(this.at, end + 1));
    this.at = end + 1;
    return value;
  }
}

/** The value of a JSON text. SyntaxError where it is none. */
export function parse(text) {
  const reader = new Reader(text);
  reader.space();
  const value = reader.value(0);
  reader.space();
  if (reader.at < text.length) reader.fail("the end");
  return value;
}

/** Ordinary objects and numbers: for figures the service counted, not for values of rows. */
export function plain(value) {
  if (value instanceof Num) return Number(value.text);
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Obj) return Object.fromEntries(value.entries.map(([name, inner]) => [name, plain(inner)]));
  return value;
}

/** The value as indented JSON, every digit kept. */
export function written(value, indent = "") {
  const deeper = `${indent}  `;
  if (value instanceof Num) return value.text;
  if (Array.isArray(value)) return wrapped(value.map((one) => written(one, deeper)), "[]", indent);
  if (value instanceof Obj) {
    return wrapped(value.entries.map(([name, one]) => `${JSON.stringify(name)}: ${written(one, deeper)}`), "{}", indent);
  }
  return JSON.stringify(value);
}

function wrapped(parts, [open, close], indent) {
  return parts.length ? `${open}\n${indent}  ${parts.join(`,\n${indent}  `)}\n${indent}${close}` : open + close;
}
