// The routes of the service, from its own OpenAPI document.

import { figures } from "./api.js";
import { copyButton, h } from "./dom.js";
import { folded, membersView, resolved, typeOf } from "./schema.js";

const METHODS = ["get", "head", "post", "put", "delete"];
const main = document.getElementById("main");

function operations(api) {
  return Object.entries(api.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => ({ path, method: method.toUpperCase(), id: `${method}${path}`.replace(/[^a-z0-9]+/gi, "-").replace(/-$/, ""), ...methods[method] })));
}

/** Texts hold names in backticks; the rest of Markdown is not needed. */
function prose(text) {
  return text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? h("code", null, part) : part));
}

/** A path that may break before its slashes, not within a name. */
const broken = (path) => path.split(/(?=\/)/).flatMap((part) => [h("wbr"), part]);

function routeView(operation, api) {
  const { path, method, id, description, parameters = [], requestBody, responses = {} } = operation;
  return h("section", { class: "route", id, "aria-labelledby": `${id}-title`, tabindex: "-1" },
    h("h2", { id: `${id}-title` }, h("span", { class: "method" }, method), path),
    description && description.split("\n\n").map((part) => h("p", null, prose(part))),
    parameters.length > 0 && [h("h3", null, "Parameters"), h("ul", { class: "given" }, parameters.map((one) => parameterView(resolved(one, api), api)))],
    requestBody && [h("h3", null, "Body"), h("ul", { class: "given" }, bodiesView(resolved(requestBody, api), api))],
    h("h3", null, "Answers"),
    h("ul", { class: "given" }, Object.entries(responses).map(([status, response]) => answerView(status, resolved(response, api), api))));
}

function parameterView({ name, in: place, required, description, schema, example }, api) {
  return h("li", null, h("div", null, h("code", null, name), h("div", { class: "faint" }, place, " · ", typeOf(schema, api), required ? " · required" : "")),
    h("div", { class: "what" }, description && h("span", null, prose(description)),
      example !== undefined && h("span", { class: "faint" }, "like ", h("code", null, String(example)))));
}

function bodiesView({ content = {} }, api) {
  return Object.entries(content).map(([type, body]) => h("li", null, h("code", null, type), h("div", { class: "what" }, contentView(body, api))));
}

function answerView(status, { description, content = {} }, api) {
  const shown = Object.entries(content).filter(([type]) => type !== PROBLEM);
  return h("li", { class: shown.length ? null : "brief" }, h("span", { class: "status" }, status),
    h("div", { class: "what" }, h("span", null, prose(description ?? "")),
      shown.map(([type, body]) => [h("span", { class: "faint" }, type), contentView(body, api)])));
}

const PROBLEM = "application/problem+json"; // one shape for all failures, shown once

function contentView(body, api) {
  const samples = body.examples ? Object.values(body.examples).map((one) => resolved(one, api).value) : [body.example ?? resolved(body.schema, api).example];
  const known = samples.filter((sample) => sample !== undefined);
  return [
    membersOf(body.schema, api),
    known.length > 0 && folded(known.length > 1 ? "Examples" : "Example", () => known.map(sampleView)),
  ];
}

/** The members of a body; those of each choice, where it is one of several. */
function membersOf(schema, api) {
  const choices = schema?.anyOf ?? [schema];
  const titled = (choice) => (choices.length > 1 ? `Members of ${typeName(choice)}` : "Members");
  return choices.filter((choice) => membersView(choice, api)).map((choice) => folded(titled(choice), () => membersView(choice, api)));
}

const typeName = ({ $ref = "" }) => $ref.slice($ref.lastIndexOf("/") + 1);

function sampleView(sample) {
  const text = typeof sample === "string" ? sample : JSON.stringify(sample, null, 2);
  return h("div", null, h("pre", { class: "sample", tabindex: "0", role: "region", "aria-label": "Example" }, text), copyButton("Copy", () => text, "Copy the example"));
}

function problemSchema(routes) {
  const responses = routes.flatMap(({ responses: each = {} }) => Object.values(each));
  return responses.map(({ content }) => content?.[PROBLEM]?.schema).find(Boolean);
}

function failuresView(schema, api) {
  return h("section", { class: "route", id: "failures", "aria-labelledby": "failures-title" },
    h("h2", { id: "failures-title" }, "Failures"),
    h("p", null, prose(`Every failure is \`${PROBLEM}\`:`)), membersView(schema, api));
}

async function start() {
  const api = await figures("openapi.json");
  const routes = operations(api);
  main.replaceChildren(
    h("header", null, h("h1", null, "Routes"), h("p", { class: "lead" }, prose(api.info.description ?? ""), " ", h("span", { class: "faint" }, `Version ${api.info.version}.`))),
    ...routes.map((route) => routeView(route, api)),
    ...[problemSchema(routes)].filter(Boolean).map((schema) => failuresView(schema, api)));
  document.getElementById("contents").replaceChildren(h("ul", null, routes.map(({ id, method, path }) =>
    h("li", null, h("a", { href: `#${id}` }, h("span", { class: "method" }, method), h("span", null, broken(path)))))));
  const wanted = location.hash.slice(1);
  document.getElementById(wanted)?.scrollIntoView();
}

start().catch((error) => main.replaceChildren(h("h1", null, "The routes cannot be shown"), h("p", null, error.message)));
