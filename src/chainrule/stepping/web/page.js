// @ts-check
// A page with one stepper, as `page.py` writes it: reads the data, follows a notebook's theme, and fits its frame.

import { mountStepper } from "./stepper.js";

const place = /** @type {HTMLElement} */ (document.getElementById("stepper"));
const data = /** @type {HTMLElement} */ (document.getElementById("stepper-data"));

/** The page around this frame, if there is one and we may read it. */
function surroundings() {
  try {
    return window.parent === window ? null : window.parent.document.body;
  } catch {
    return null; // from another origin
  }
}

/** JupyterLab and VS Code mark their theme on the body; elsewhere the system's preference decides. */
function followTheme(/** @type {HTMLElement} */ body) {
  const { jpThemeLight } = body.dataset;
  if (jpThemeLight) document.documentElement.dataset.theme = jpThemeLight === "true" ? "light" : "dark";
  else if (body.classList.contains("vscode-dark")) document.documentElement.dataset.theme = "dark";
  else if (body.classList.contains("vscode-light")) document.documentElement.dataset.theme = "light";
}

/**
 * Make the frame as tall as the page, so that a notebook shows all of it without a second scroll bar, and hide what
 * stands below the frame for viewers that run no scripts.
 */
function fitFrame() {
  const frame = /** @type {HTMLElement | null} */ (window.frameElement);
  if (!frame) return;
  frame.style.height = `${document.body.offsetHeight}px`;
  const fallback = /** @type {HTMLElement | null} */ (frame.nextElementSibling);
  if (fallback?.className === "chainrule-static") fallback.hidden = true;
}

const around = surroundings();
if (around) {
  document.documentElement.classList.add("framed");
  followTheme(around);
  new MutationObserver(() => followTheme(around)).observe(around, { attributes: true });
  new ResizeObserver(fitFrame).observe(document.body);
}
Object.assign(place, { stepper: mountStepper(place, JSON.parse(data.textContent ?? ""), { keyboard: document }) });
