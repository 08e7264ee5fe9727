// A JSON schema in words: the type, and the members that it has.

import { h } from "./dom.js";

const DEEPEST = 6; // a schema may hold itself

/** Follows `$ref` within the document. */
export function resolved(schema, document) {
  let found = schema ?? {};
  for (let steps = 0; found.$ref && steps < DEEPEST; steps += 1) {
    found = found.$ref.slice(2).split("/").reduce((at, name) => at?.[name], document) ?? {};
  }
  return found;
}

/** The type in a word or two. */
export function typeOf(schema, document) {
  const one = resolved(schema, document);
  const choices = one.anyOf ?? one.oneOf ?? one.allOf;
  if (choices) return [...new Set(choices.map((choice) => typeOf(choice, document)))].join(" or ");
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (one.type === "array") return `list of ${typeOf(one.items, document)}`;
  if (Array.isArray(one.type)) return one.type.join(" or ");
  return one.type ?? "any value";
}

/** The schema whose members are worth showing: that of a list's items, or of the choice that has some. */
function structured(schema, document, depth = 0) {
  const one = resolved(schema, document);
  if (one.properties || depth > DEEPEST) return one;
  const inner = [one.items, one.additionalProperties, ...(one.anyOf ?? one.oneOf ?? one.allOf ?? [])];
  return inner.filter((part) => part && typeof part === "object").map((part) => structured(part, document, depth + 1)).find((part) => part.properties) ?? one;
}

/** The members of a schema as a list, nested ones folded; null where it has none. */
export function membersView(schema, document, depth = 0) {
  const { properties, required = [] } = structured(schema, document);
  if (!properties || depth > DEEPEST) return null;
  return h("ul", { class: "members" }, Object.entries(properties).map(([name, member]) => {
    const inner = depth < DEEPEST && structured(member, document).properties;
    const said = member.description ?? resolved(member, document).description;
    return h("li", null, h("code", null, name), " ", h("span", { class: "faint" }, typeOf(member, document),
      required.includes(name) ? "" : ", optional", said ? ` – ${said}` : ""),
    inner && folded("members", () => membersView(member, document, depth + 1)));
  }));
}

/** Details that are made when they are opened. */
export function folded(title, make) {
  const details = h("details", null, h("summary", null, title));
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(...[make()].flat().filter(Boolean)));
  return details;
}
