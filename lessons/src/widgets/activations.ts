// Two activations on xor, from several starts; and what is left of the gradient in the first layers of a deep network.

import { Chart } from "../chart";
import type { Course } from "../course";
import { counted, html, liveText, select, slider } from "../elements";
import type { Live } from "../lesson";
import { type Lent, ownProgram } from "../own_code";
import { python } from "../python";
import { Whose } from "../whose";
import { Player } from "./player";

interface State {
  losses: Record<"tanh" | "relu", number[][]>;
}

const SOLVED = 0.2; // of the squares' sum: every output is on the right side by far

export function xorCompare(course: Course, attributes: Record<string, string>): Live {
  const most = Number(attributes.steps ?? 200);
  const seeds = Number(attributes.seeds ?? 8);
  let hidden = Number(attributes.hidden ?? 4);
  const lr = Number(attributes.rate ?? 0.1);
  const chart = new Chart({
    label: "Loss on xor by training step, for tanh and relu",
    x: "step",
    y: "loss",
    curves: [...Array.from({ length: seeds }, () => ({ label: "tanh", colour: "data", faint: true })), ...Array.from({ length: seeds }, () => ({ label: "relu", colour: "grad", faint: true, dashed: true }))],
  });
  const reading = liveText("reading");
  const whose = new Whose(course, () => ["tanh", "relu"]);
  const show = ({ losses }: State) => {
    const runs = [...losses.tanh, ...losses.relu];
    const solved = (all: number[][]) => all.filter((each) => (each.at(-1) ?? 1) < SOLVED).length;
    const words = `tanh has learned xor in ${solved(losses.tanh)} of ${seeds} runs, relu in ${solved(losses.relu)}`;
    chart.set([runs[0].map((_, i) => i), ...runs], words);
    if (runs[0].length) reading.textContent = `After ${counted(runs[0].length, "step")}: ${words}.`;
  };
  const none = () => Array.from({ length: seeds }, () => []);
  const player = new Player<State>({
    words: "Train them all",
    kind: "comparison",
    settings: () => ({ hidden, seeds, lr, program: ownProgram(course) }),
    whose,
    steps: ({ losses }) => losses.tanh[0].length,
    most,
    show,
    say: (words) => (reading.textContent = words),
    clear: () => show({ losses: { tanh: none(), relu: none() } }),
  });
  const size = slider({ label: "hidden neurons", min: 2, max: 8, step: 1, value: hidden }, (value) => ((hidden = value), player.restart()));
  return {
    element: html("section", { class: "live widget", "data-widget": "xor-compare", "aria-label": "tanh and relu on xor" }, html("div", { class: "bar" }, player.button), chart.element, html("div", { class: "sliders" }, size.element), reading, whose.element, respelt()),
    destroy() {
      player.destroy();
      chart.destroy();
    },
  };
}

/** How a neuron that says tanh becomes another. */
export function respelt(): HTMLElement {
  return html("p", { class: "whose" }, "The Neuron says ", html("code", {}, ".tanh()"), ". For another bend, the page runs it with that in the same place, in all layers but the last.");
}

export function vanishing(course: Course, attributes: Record<string, string>): Live {
  let depth = Number(attributes.depth ?? 6);
  let activation = attributes.activation ?? "sigmoid";
  let init = attributes.init ?? "uniform";
  const bars = html("div", { class: "bars", role: "img" });
  const reading = liveText("reading");
  const whose = new Whose(course, () => ["tanh", activation]);
  let asked = 0;
  async function show(): Promise<void> {
    const id = ++asked;
    const answer = await python.call("chainrule.learn.demonstrations", "layer_gradients", [depth, activation, init, 1, JSON.stringify(ownProgram(course))]);
    if (id !== asked) return;
    if (answer.kind !== "done") {
      reading.textContent = answer.text;
      return;
    }
    const { layers, ...lent } = JSON.parse(answer.text) as { layers: number[] } & Lent;
    whose.tell(lent);
    whose.write();
    const [least, largest] = [1e-8, Math.max(...layers, 1e-8)];
    const width = (size: number) => (100 * Math.max(0, Math.log10(Math.max(size, least) / least))) / Math.log10(Math.max(largest, 1) / least);
    bars.replaceChildren(
      ...layers.map((size, i) => html("div", {}, html("span", {}, i === layers.length - 1 ? "output" : `layer ${i + 1}`), html("span", {}, html("i", { style: `width: ${width(size).toFixed(1)}%` })), html("span", {}, size.toExponential(1)))),
    );
    bars.setAttribute("aria-label", `Mean size of the gradients, on a logarithmic scale: ${layers.map((size, i) => `layer ${i + 1} ${size.toExponential(1)}`).join(", ")}`);
    const ratio = layers[0] / (layers.at(-1) ?? 1);
    const times = (factor: number) => Number(factor.toPrecision(2)).toLocaleString("en");
    reading.textContent = ratio === 0 ? "Nothing at all arrives at the first layer." : `The first layer gets ${ratio < 1 ? `${times(1 / ratio)} times less` : `${times(ratio)} times more`} gradient than the last.`;
  }
  const names = (...all: string[]) => all.map((name): [string, string] => [name, name]);
  const controls = html(
    "div",
    { class: "bar" },
    select("Activation", names("sigmoid", "tanh", "relu"), activation, (value) => ((activation = value), void show())).element,
    select("First weights", names("uniform", "xavier", "he"), init, (value) => ((init = value), void show())).element,
  );
  const deep = slider({ label: "hidden layers", min: 1, max: 12, step: 1, value: depth }, (value) => ((depth = value), void show()));
  reading.textContent = "The gradients appear when Python is ready.";
  const stopWaiting = python.whenReady(() => void show());
  return {
    element: html("section", { class: "live widget", "data-widget": "vanishing", "aria-label": "Vanishing gradients" }, html("p", { class: "caption" }, "Mean size of the weights' gradients, layer by layer, before any training (logarithmic)"), controls, html("div", { class: "sliders" }, deep.element), bars, reading, whose.element),
    destroy() {
      whose.destroy();
      stopWaiting();
    },
  };
}
