// Runs before the first paint, so that a chosen theme does not flash in after the system's. A classic script for that reason.
(() => {
  const NAME = "gnomon-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem(NAME);
    } catch {
      return null; // storage may be forbidden: the system's theme will do
    }
  }

  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }

  function show(button) {
    button.setAttribute("aria-pressed", String(dark()));
  }

  const chosen = stored();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    show(button);
    system.addEventListener("change", () => show(button));
    button.addEventListener("click", () => {
      const next = dark() ? "light" : "dark";
      root.dataset.theme = next;
      try {
        localStorage.setItem(NAME, next);
      } catch {
        // it holds until the page is left
      }
      show(button);
    });
  });
})();
