// The elements that lessons consist of. `html` and `svg` are the stepper's.

import { html, svg } from "../../src/chainrule/stepping/web/elements.js";

export { html, svg };

export function button(words: string, act: () => void, style = ""): HTMLButtonElement {
  const element = html("button", { type: "button", ...(style && { class: style }) }, words) as HTMLButtonElement;
  element.addEventListener("click", act);
  return element;
}

/** A text that screen readers announce whenever it changes. */
export function liveText(style: string): HTMLElement {
  return html("p", { class: style, role: "status" });
}

export interface SliderOptions {
  label: string;
  min: number;
  max: number;
  step: number;
  value: number;
  show?: (value: number) => string;
}

/** A slider with its label and the value in words. */
export function slider({ label, min, max, step, value, show = String }: SliderOptions, act: (value: number) => void) {
  const input = html("input", { type: "range", min: String(min), max: String(max), step: String(step), value: String(value) }) as HTMLInputElement;
  const output = html("output", {}, show(value));
  input.setAttribute("aria-valuetext", show(value));
  const set = () => {
    output.textContent = show(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    set();
    act(Number(input.value));
  });
  const element = html("label", { class: "slider" }, html("span", {}, label), input, output);
  return { element, input, set: (to: number) => ((input.value = String(to)), set()) };
}

/** A slider for learning rates from 0.001, on a logarithmic scale with two digits. */
export function rateSlider(rate: number, most: number, act: (rate: number) => void) {
  const rounded = (power: number) => Number((10 ** power).toPrecision(2));
  return slider({ label: "learning rate", min: -3, max: Number(Math.log10(most).toFixed(2)), step: 0.05, value: Math.log10(rate), show: (power) => String(rounded(power)) }, (power) => act(rounded(power)));
}

export function select(label: string, options: [value: string, words: string][], value: string, act: (value: string) => void) {
  const input = html("select", {}, ...options.map(([key, words]) => html("option", { value: key, ...(key === value && { selected: "" }) }, words))) as HTMLSelectElement;
  input.addEventListener("change", () => act(input.value));
  return { element: html("label", { class: "select" }, html("span", {}, label), input), input };
}

let ids = 0;

export function newId(stem: string): string {
  return `${stem}-${++ids}`;
}

/** "1 step", "2,000 steps". */
export function counted(count: number, thing: string): string {
  return `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;
}

/** A number with at most six significant digits. */
export function spell(number: number): string {
  if (!Number.isFinite(number)) return "beyond all bounds";
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return number.toExponential(2).replace("e+", "e");
  return String(Number(number.toPrecision(6)));
}

export function prefersReducedMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** A colour of the style sheet, as the canvas needs it. */
export function colour(name: string, of: HTMLElement = document.body): string {
  const probe = html("i", { style: `color: var(--${name}); display: none` });
  of.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
