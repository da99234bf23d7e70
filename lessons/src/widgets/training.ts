// A live training run: the loss, step by step, the network's output for each example, and the network itself.

import { Chart } from "../chart";
import type { Course } from "../course";
import { button, html, liveText, rateSlider, select, slider, spell } from "../elements";
import type { Live } from "../lesson";
import { NetworkPicture, type Seen } from "../network_picture";
import { ownProgram } from "../own_code";
import { Whose } from "../whose";
import { Player } from "./player";

interface State {
  losses: number[];
  inputs: number[][];
  outputs: number[];
  targets: number[];
  example: number; // that the network is shown for
  network: Seen;
}

// The losses that were published of the lecture's four points, by step.
const PUBLISHED = new Map([[0, 3.764166], [1, 3.514946], [2, 3.152909], [3, 2.638927], [4, 2.02037], [10, 0.22114], [20, 0.054657], [30, 0.029087], [40, 0.01942], [49, 0.014828]]);

export function training(course: Course, attributes: Record<string, string>): Live {
  const most = Number(attributes.steps ?? 100);
  let data = attributes.data === "xor" ? "xor" : "four-points";
  let lr = Number(attributes.rate ?? 0.05);
  let seed = Number(attributes.seed ?? 1);
  const published = data === "four-points" && most === 50;
  const chart = new Chart({
    label: "Loss by training step",
    x: "step",
    y: "loss",
    logY: published,
    curves: [{ label: published ? "your loss" : "loss", colour: "grad" }, ...(published ? [{ label: "a published run", colour: "data", point: true }] : [])],
  });
  const picture = new NetworkPicture("the loss of all examples", ", for the example chosen below");
  let example = 0;
  const rows = new ExampleRows((chosen) => {
    example = chosen;
    void player.adjust({ example });
  });
  const reading = liveText("reading");
  const whose = new Whose(course);
  const curve = (losses: number[]) => {
    const steps = published ? Array.from({ length: most }, (_, i) => i) : losses.map((_, i) => i);
    const theirs = published ? [steps.map((i) => (data === "four-points" ? PUBLISHED.get(i) : null) ?? null)] : [];
    chart.set([steps, steps.map((i) => losses[i] ?? null), ...theirs], losses.length ? `In step ${losses.length - 1} it is ${spell(losses.at(-1) ?? Number.NaN)}` : "Not begun.");
  };
  const show = (state: State) => {
    const { losses, network } = state;
    curve(losses);
    rows.show(state);
    picture.show(network);
    if (losses.length >= most) reading.textContent = `In step ${losses.length - 1}, the last one, the loss is ${spell(losses.at(-1) ?? Number.NaN)}.`;
  };
  const player = new Player<State>({
    words: "Train",
    kind: "training",
    settings: () => ({ data, lr, seed, example, hidden: sizes(attributes.hidden), program: ownProgram(course) }),
    whose,
    steps: ({ losses }) => losses.length,
    most,
    atATime: 2,
    show,
    say: (words) => (reading.textContent = words),
    clear: () => curve([]),
    early: true,
  });
  const table = html("div", { class: "table-scroller", tabindex: "0", role: "region", "aria-label": "What the network says" }, html("table", {}, html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "input"), html("th", { scope: "col" }, "target"), html("th", { scope: "col" }, "output"))), rows.element));
  const controls = html(
    "div",
    { class: "sliders" },
    rateSlider(lr, 1, (value) => ((lr = value), player.restart())).element,
    slider({ label: "random start", min: 1, max: 20, step: 1, value: seed }, (value) => ((seed = value), player.restart())).element,
  );
  const which = select("Data", [["four-points", "four points"], ["xor", "xor"]], data, (value) => ((data = value), player.restart()));
  const bar = html("div", { class: "bar" }, player.button, button("One step", () => void player.step()), button("Start over", () => player.restart()), which.element);
  return {
    element: html("section", { class: "live widget", "data-widget": "training", "aria-label": "Train a network" }, bar, chart.element, controls, picture.element, table, reading, whose.element),
    destroy() {
      player.destroy();
      chart.destroy();
    },
  };
}

/** The examples, their targets and outputs; one of them is chosen. */
class ExampleRows {
  readonly element = html("tbody", {});
  private words = "";
  private outputs: HTMLElement[] = [];
  private buttons: HTMLElement[] = [];

  constructor(private readonly choose: (example: number) => void) {}

  show({ inputs, targets, outputs, example }: State): void {
    this.build(inputs, targets);
    outputs.forEach((output, i) => (this.outputs[i].textContent = output?.toFixed(3) ?? "beyond all bounds"));
    this.buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(i === example)));
  }

  private build(inputs: number[][], targets: number[]): void {
    const words = JSON.stringify([inputs, targets]);
    if (words === this.words) return;
    this.words = words;
    this.outputs = targets.map(() => html("td", {}));
    this.buttons = inputs.map((input) => html("button", { type: "button", class: "quiet", title: "Show the network for this example" }, input.join(", ")));
    const rows = targets.map((target, i) => {
      const row = html("tr", {}, html("th", { scope: "row" }, this.buttons[i]), html("td", {}, String(target)), this.outputs[i]);
      row.addEventListener("click", () => this.choose(i));
      return row;
    });
    this.element.replaceChildren(...rows);
  }
}

interface Pair {
  losses: number[][]; // with zero_grad, and without
  largest: number[][]; // of the gradients, by step
}

/** Two training runs from one start; one of them forgets to reset its gradients. */
export function forgottenZero(course: Course, attributes: Record<string, string>): Live {
  const most = Number(attributes.steps ?? 60);
  let lr = Number(attributes.rate ?? 0.02);
  const curves = [{ label: "with zero_grad", colour: "data" }, { label: "zero_grad forgotten", colour: "grad", dashed: true }];
  const chart = new Chart({ label: "Loss by training step, with and without zero_grad", x: "step", y: "loss", curves });
  const gradients = new Chart({ label: "The largest gradient by training step, with and without zero_grad", x: "step", y: "largest gradient", curves, height: 180 });
  const reading = liveText("reading");
  const whose = new Whose(course);
  const show = ({ losses, largest }: Pair) => {
    const steps = losses[0].map((_, i) => i);
    const words = ([one, other]: number[][]) => `In step ${steps.length - 1}: ${spell(one.at(-1) ?? Number.NaN)} with, ${spell(other.at(-1) ?? Number.NaN)} without`;
    chart.set([steps, ...losses], words(losses));
    gradients.set([steps, ...largest], words(largest));
    if (steps.length < most) return;
    const [one, other] = losses.map((each) => spell(each.at(-1) ?? Number.NaN));
    reading.textContent = `In step ${most - 1}, the last one, the loss is ${one} with zero_grad and ${other} without: forgotten gradients pile up, and each step is taken with the sum of all before it.`;
  };
  const player = new Player<Pair>({
    words: "Train both",
    kind: "forgotten-zero",
    settings: () => ({ data: attributes.data ?? "four-points", lr, hidden: sizes(attributes.hidden), program: ownProgram(course) }),
    whose,
    steps: ({ losses }) => losses[0].length,
    most,
    atATime: 1,
    show,
    say: (words) => (reading.textContent = words),
    clear: () => show({ losses: [[], []], largest: [[], []] }),
  });
  const rate = rateSlider(lr, 0.3, (value) => ((lr = value), player.restart()));
  return {
    element: html("section", { class: "live widget", "data-widget": "forgotten-zero", "aria-label": "Forgotten zero_grad" }, html("div", { class: "bar" }, player.button), chart.element, gradients.element, html("div", { class: "sliders" }, rate.element), reading, whose.element, html("p", { class: "whose" }, "The loop that forgets is lent: nobody would write it on purpose.")),
    destroy() {
      player.destroy();
      chart.destroy();
      gradients.destroy();
    },
  };
}

/** The sizes of hidden layers, written as in `hidden=4,4`. */
function sizes(text = "4,4"): number[] {
  return text.split(",").map(Number);
}
