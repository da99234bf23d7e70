// A training to watch: the loss, step by step, and what the network says about each example.

import { Chart } from "../chart";
import type { Course } from "../course";
import { Demonstration } from "../demonstration";
import { button, html, liveText, select, slider, spell } from "../elements";
import type { Live } from "../lesson";
import { ownCodes } from "../own_code";
import { ownSource } from "../stepper_block";

interface State {
  losses: number[];
  outputs: number[];
  targets: number[];
  grad: number;
}

export function training(course: Course, attributes: Record<string, string>): Live {
  const most = Number(attributes.steps ?? 100);
  let data = attributes.data === "xor" ? "xor" : "four-points";
  let lr = Number(attributes.rate ?? 0.05);
  let seed = Number(attributes.seed ?? 1);
  const chart = new Chart({ label: "Loss by training step", x: "step", y: "loss", curves: [{ label: "loss", colour: "grad" }] });
  const outputs = html("tbody", {});
  const reading = liveText("reading");
  const settings = () => ({ data, lr, seed, hidden: sizes(attributes.hidden), own: ownSource(course) });

  const show = ({ losses, outputs: found, targets }: State) => {
    chart.set([losses.map((_, i) => i), losses], losses.length ? `After ${losses.length} steps it is ${spell(losses.at(-1) ?? 0)}` : "Not begun.");
    outputs.replaceChildren(...targets.map((target, i) => html("tr", {}, html("th", { scope: "row" }, `example ${i + 1}`), html("td", {}, String(target)), html("td", {}, found.length ? (found[i] ?? 0).toFixed(3) : ""))));
    if (losses.length >= most) reading.textContent = `After ${losses.length} steps the loss is ${spell(losses.at(-1) ?? 0)}. ${who()}`;
  };
  const who = () => (Object.keys(ownCodes()).length && course.templates?.Value ? "Your own class computed every gradient of it." : "");
  let run = newRun();
  function newRun(): Demonstration<State> {
    return new Demonstration<State>("training", settings, show, (words) => (reading.textContent = words));
  }
  const play = button("Train", async () => {
    if (run.running) {
      run.pause();
      return;
    }
    if ((run.state?.losses.length ?? 0) >= most) restart();
    play.textContent = "Pause";
    reading.textContent = "";
    await run.play((state) => state.losses.length >= most, 2);
    play.textContent = "Train";
  }, "primary");
  const step = button("One step", async () => {
    if (!run.state) await run.start();
    await run.advance(1);
  });
  const again = button("Start over", () => restart());
  function restart(): void {
    run.destroy();
    run = newRun();
    reading.textContent = "";
    play.textContent = "Train";
    show({ losses: [], outputs: [], targets: [], grad: 0 });
  }
  const table = html("div", { class: "table-scroller", tabindex: "0", role: "region", "aria-label": "What the network says" }, html("table", {}, html("thead", {}, html("tr", {}, html("td", {}), html("th", { scope: "col" }, "target"), html("th", { scope: "col" }, "output"))), outputs));
  const controls = html(
    "div",
    { class: "sliders" },
    slider({ label: "learning rate", min: -3, max: 0, step: 0.05, value: Math.log10(lr), show: (n) => (10 ** n).toPrecision(2) }, (value) => ((lr = Number((10 ** value).toPrecision(2))), restart())).element,
    slider({ label: "random start", min: 1, max: 20, step: 1, value: seed }, (value) => ((seed = value), restart())).element,
  );
  const which = select("Data", [["four-points", "four points"], ["xor", "xor"]], data, (value) => ((data = value), restart()));
  return {
    element: html("section", { class: "live widget", "data-widget": "training", "aria-label": "Train a network" }, html("div", { class: "bar" }, play, step, again, which.element), chart.element, controls, table, reading),
    destroy() {
      run.destroy();
      chart.destroy();
    },
  };
}

/** Two trainings from one start; one of them forgets to set its gradients back to zero. */
export function forgottenZero(course: Course, attributes: Record<string, string>): Live {
  const most = Number(attributes.steps ?? 60);
  let lr = Number(attributes.rate ?? 0.02);
  const chart = new Chart({ label: "Loss by training step, with and without zero_grad", x: "step", y: "loss", curves: [{ label: "with zero_grad", colour: "data" }, { label: "zero_grad forgotten", colour: "grad", dashed: true }] });
  const largest = new Chart({ label: "The largest gradient by training step, with and without zero_grad", x: "step", y: "largest gradient", curves: [{ label: "with zero_grad", colour: "data" }, { label: "zero_grad forgotten", colour: "grad", dashed: true }], height: 180 });
  const reading = liveText("reading");
  const kept: { losses: number[]; grads: number[] }[] = [{ losses: [], grads: [] }, { losses: [], grads: [] }];
  const last = (numbers: number[]) => spell(numbers.at(-1) ?? 0);
  const draw = () => {
    const count = Math.max(...kept.map((run) => run.losses.length));
    const steps = Array.from({ length: count }, (_, i) => i);
    const padded = (numbers: number[]) => steps.map((i) => numbers[i] ?? null);
    chart.set([steps, ...kept.map((run) => padded(run.losses))], `After ${count} steps: ${last(kept[0].losses)} with, ${last(kept[1].losses)} without`);
    largest.set([steps, ...kept.map((run) => padded(run.grads))], `After ${count} steps: ${last(kept[0].grads)} with, ${last(kept[1].grads)} without`);
  };
  const newRuns = () =>
    [true, false].map(
      (zero, i) =>
        new Demonstration<State>(
          "training",
          () => ({ data: attributes.data ?? "four-points", lr, seed: 1, hidden: sizes(attributes.hidden), zero, own: ownSource(course) }),
          ({ losses, grad }) => {
            kept[i] = { losses, grads: losses.length > kept[i].grads.length ? [...kept[i].grads, grad] : kept[i].grads };
            draw();
          },
          (words) => (reading.textContent = words),
        ),
    );
  let runs = newRuns();
  let going = false;
  const play = button("Train both", async () => {
    if (going) {
      going = false;
      return;
    }
    restart();
    going = true;
    play.textContent = "Stop";
    const mine = runs;
    for (const run of mine) if (!(await run.start())) going = false;
    while (going && mine === runs && kept[0].losses.length < most) for (const run of mine) await run.advance(1);
    going = false;
    play.textContent = "Train both";
    if (kept[0].losses.length >= most) reading.textContent = `After ${most} steps the loss is ${last(kept[0].losses)} with zero_grad and ${last(kept[1].losses)} without: forgotten gradients pile up, and each step is taken with the sum of all before it.`;
  }, "primary");
  function restart(): void {
    for (const run of runs) run.destroy();
    runs = newRuns();
    kept.forEach((run) => ((run.losses = []), (run.grads = [])));
    reading.textContent = "";
  }
  const rate = slider({ label: "learning rate", min: -3, max: -0.5, step: 0.05, value: Math.log10(lr), show: (n) => (10 ** n).toPrecision(2) }, (value) => (lr = Number((10 ** value).toPrecision(2))));
  return {
    element: html("section", { class: "live widget", "data-widget": "forgotten-zero", "aria-label": "Forgotten zero_grad" }, html("div", { class: "bar" }, play), chart.element, largest.element, html("div", { class: "sliders" }, rate.element), reading),
    destroy() {
      going = false;
      for (const run of runs) run.destroy();
      chart.destroy();
      largest.destroy();
    },
  };
}

/** The sizes of hidden layers, written as in `hidden=4,4`. */
function sizes(text = "4,4"): number[] {
  return text.split(",").map(Number);
}
