// The error of a numerical derivative by step size: truncation if the step is too large, rounding if it is too small.

import { Chart } from "../chart";
import type { Course } from "../course";
import { html, liveText, slider, spell } from "../elements";
import type { Live } from "../lesson";

// Functions whose derivative is known exactly, so that errors far below a numerical derivative's own can be seen.
const FUNCTIONS: Record<string, [f: (x: number) => number, derivative: (x: number) => number]> = {
  "exp(x)": [Math.exp, Math.exp],
  "sin(x)": [Math.sin, Math.cos],
  "tanh(x)": [Math.tanh, (x) => 1 / Math.cosh(x) ** 2],
  "x**3": [(x) => x ** 3, (x) => 3 * x ** 2],
};
const LEAST = 1e-17; // an error of zero has no place on a logarithmic scale

export function ucurve(_: Course, attributes: Record<string, string>): Live {
  const name = attributes.function ?? "tanh(x)";
  if (!(name in FUNCTIONS)) throw new Error(`its function is ${name}, not one of ${Object.keys(FUNCTIONS).join(", ")}`);
  const [f, derivative] = FUNCTIONS[name];
  const x = Number(attributes.at ?? 0.7);
  const exact = derivative(x);
  const forward = (h: number) => Math.max(LEAST, Math.abs((f(x + h) - f(x)) / h - exact));
  const central = (h: number) => Math.max(LEAST, Math.abs((f(x + h) - f(x - h)) / (2 * h) - exact));
  const steps = Array.from({ length: 141 }, (_, i) => 10 ** (-14 + i / 10));
  const chart = new Chart({
    label: "Error of the numerical derivative by step size, both on logarithmic scales",
    x: "step h",
    y: "error",
    logX: true,
    logY: true,
    height: 280,
    curves: [
      { label: "(f(x+h) − f(x)) / h", colour: "grad", dashed: true },
      { label: "(f(x+h) − f(x−h)) / 2h", colour: "data" },
      { label: "your h", colour: "ink", point: true },
    ],
  });
  const best = (error: (h: number) => number) => steps.reduce((a, b) => (error(b) < error(a) ? b : a));
  const reading = liveText("reading");
  const show = (power: number) => {
    const h = 10 ** power;
    const near = steps.reduce((a, b) => (Math.abs(Math.log10(b) - power) < Math.abs(Math.log10(a) - power) ? b : a));
    chart.set(
      [steps, steps.map(forward), steps.map(central), steps.map((each) => (each === near ? central(each) : null))],
      `The error of the one-sided rule is least near a step of ${best(forward).toExponential(0)}, that of the two-sided near ${best(central).toExponential(0)}.`,
    );
    const words = power > -2 ? "the curve bends between the two points" : power < -8 ? "the digits of f cancel, and what remains is rounding" : "a good step: neither bend nor rounding has the upper hand";
    reading.replaceChildren("With h = ", html("b", {}, h.toExponential(1)), ": one-sided error ", html("b", { class: "grad-ink" }, spell(forward(h))), ", two-sided ", html("b", { class: "data-ink" }, spell(central(h))), `: ${words}.`);
  };
  const step = slider({ label: "step h", min: -14, max: 0, step: 0.1, value: -5, show: (n) => (10 ** n).toExponential(1) }, show);
  const caption = html("p", { class: "caption" }, "The derivative of ", html("code", {}, name), ` at x = ${x}, which is ${spell(exact)}`);
  queueMicrotask(() => show(-5));
  return { element: html("section", { class: "live widget", "data-widget": "ucurve", "aria-label": "Step size and error" }, caption, chart.element, html("div", { class: "sliders" }, step.element), reading), destroy: () => chart.destroy() };
}
