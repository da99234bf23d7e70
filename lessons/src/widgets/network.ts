// The learner's own network before any training: change its inputs, and see what every neuron says and what the output
// depends on.

import type { Course } from "../course";
import { Demonstration, latest } from "../demonstration";
import { html, liveText, slider } from "../elements";
import type { Live } from "../lesson";
import { NetworkPicture, type Seen } from "../network_picture";
import { ownProgram, whenOwnCodeChanges } from "../own_code";
import { python } from "../python";
import { Whose } from "../whose";

const TEMPLATE = "Network";
const REACH = 3; // of the sliders, unless an input is larger

export function network(course: Course, attributes: Record<string, string>): Live {
  const inputs = (attributes.inputs ?? "2,3,-1").split(",").map(Number);
  const hidden = (attributes.hidden ?? "4,4").split(",").map(Number);
  let seed = Number(attributes.seed ?? 1);
  const picture = new NetworkPicture("the network's output");
  const problem = liveText("reading");
  const whose = new Whose(course, () => ["tanh"], () => "own", TEMPLATE);
  const run = new Demonstration<{ network: Seen }>(
    "network",
    () => ({ inputs, hidden, seed, program: ownProgram(course, "own", TEMPLATE) }),
    (state) => {
      problem.textContent = "";
      whose.tell(state);
      picture.show(state.network);
    },
    (words) => (problem.textContent = words),
  );
  let anew = true;
  const update = latest(async () => {
    if (run.id && !anew) return run.adjust({ inputs });
    anew = false;
    await run.start();
  });
  const start = () => ((anew = true), update());
  const stops = [python.whenReady(start), whenOwnCodeChanges(() => run.id && start())];
  const reach = Math.max(REACH, ...inputs.map(Math.abs));
  const sliders = inputs.map((value, i) => slider({ label: `input ${i + 1}`, min: -reach, max: reach, step: 0.1, value, show: (x) => x.toFixed(1) }, (x) => ((inputs[i] = x), update())).element);
  const seeds = slider({ label: "random start", min: 1, max: 20, step: 1, value: seed }, (value) => ((seed = value), start())).element;
  return {
    element: html("section", { class: "live widget", "data-widget": "network", "aria-label": "Your network" }, html("div", { class: "sliders" }, ...sliders, seeds), picture.element, problem, whose.element),
    destroy() {
      stops.forEach((stop) => stop());
      run.destroy();
      whose.destroy();
    },
  };
}
