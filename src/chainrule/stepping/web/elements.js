// @ts-check
// HTML and SVG elements, created without markup, so that text always stays text.

/** @param {string} tag @param {Record<string, string>} attributes @param {(Node | string)[]} children */
export function html(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {(Node | string)[]} children */
export function svg(tag, attributes, ...children) {
  const element = /** @type {SVGGraphicsElement} */ (document.createElementNS("http://www.w3.org/2000/svg", tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export const ICONS = {
  first: "M5 4h2v12H5zM16 4v12L8 10z",
  back: "M14 4v12L6 10z",
  play: "M6 4v12l10-6z",
  pause: "M6 4h3v12H6zM11 4h3v12h-3z",
  next: "M6 4v12l8-6z",
  last: "M13 4h2v12h-2zM4 4v12l8-6z",
  plus: "M9 4h2v5h5v2h-5v5H9v-5H4V9h5z",
  minus: "M4 9h12v2H4z",
};

/** A button that is disabled by `aria-disabled`, so that it keeps the focus. */
export function button(/** @type {string} */ label, /** @type {string} */ drawing, /** @type {() => void} */ act) {
  const element = html("button", { type: "button", "aria-label": label, title: label }, icon(drawing));
  element.addEventListener("click", () => {
    if (element.getAttribute("aria-disabled") !== "true") act();
  });
  return element;
}

export function icon(/** @type {string} */ drawing) {
  const view = { viewBox: "0 0 20 20", width: 20, height: 20, "aria-hidden": "true" };
  return svg("svg", view, svg("path", { d: drawing }));
}

/** The text, with an ellipsis in the middle if it is longer than `most` characters. */
export function shorten(/** @type {string} */ text, /** @type {number} */ most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (most - 1 - head)).join("")}`;
}
