// The token of a service that asks for one: typed by the user, kept for this tab alone.

import { h } from "./dom.js";

const NAME = "gnomon-token";
let held = null; // where storage is forbidden, until the page is left
let asking = null;

export function token() {
  try {
    return sessionStorage.getItem(NAME) ?? held;
  } catch {
    return held;
  }
}

function keep(text) {
  held = text;
  try {
    if (text === null) sessionStorage.removeItem(NAME);
    else sessionStorage.setItem(NAME, text);
  } catch {
    // `held` has it
  }
  show();
}

function show() {
  document.getElementById("forget").hidden = token() === null;
}

document.getElementById("forget").addEventListener("click", () => {
  keep(null);
  location.reload();
});
show();

/** Ask for a token, saying why; whether one was given. All that wait for one share the question. The dialog gives the
 *  focus back to where it was, and what was typed there stays. */
export function askToken(detail) {
  asking ??= open(detail).finally(() => (asking = null));
  return asking;
}

/** What is needed, for somebody who knows the page alone: the service tells programs of its header. */
export function tokenWanted(detail) {
  const more = "It is a long text that begins with gnomon_; whoever runs this service gives it out.";
  if (token() === null) return `Rows are shown to people who have a token. ${more}`;
  return `${detail[0].toUpperCase()}${detail.slice(1)}. Paste it again as a whole, or another one. ${more}`;
}

function open(detail) {
  const input = h("input", {
    type: "password", id: "token", name: "token", required: true, autocomplete: "off", spellcheck: "false",
    "aria-describedby": "token-why",
  });
  const cancel = h("button", { type: "button", class: "plain" }, "Cancel");
  const form = h("form", { method: "dialog" },
    h("h2", { id: "token-title" }, "This service asks for a token"),
    h("p", { id: "token-why" }, tokenWanted(detail)),
    h("label", { for: "token" }, "Token"), input,
    h("p", { class: "faint" }, "It is kept in this tab only, and forgotten when the tab is closed."),
    h("div", { class: "buttons" }, cancel, h("button", { type: "submit", class: "main" }, "Continue")));
  const dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
  document.body.append(dialog);
  return new Promise((settle) => {
    form.addEventListener("submit", () => {
      keep(input.value.trim());
      settle(true);
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      settle(false); // too late to matter after a submit
      dialog.remove();
    });
    dialog.showModal();
  });
}
