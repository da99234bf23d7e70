// Predict, then reveal: the learner works out the gradient of one node after the other before it is shown.

import type { Description } from "../../src/chainrule/stepping/web/narration.js";
import { mountStepper } from "../../src/chainrule/stepping/web/stepper.js";
import { button, html, liveText, newId } from "./elements";
import type { Live } from "./lesson";
import { python } from "./python";
import { graphOf } from "./stepper_block";
import { store } from "./store";

export function predictView(name: string, code: string): Live {
  const words = html("p", { class: "waiting", role: "status" }, "This graph appears when Python is ready.");
  const place = html("div", {});
  const element = html("section", { class: "live wide predict", "data-predict": name, "aria-label": "Predict, then reveal" }, place, words);
  let prediction: Prediction | null = null;
  let left = false;
  const stopWaiting = python.whenReady(() => {
    graphOf(code, "").then(
      (graph) => {
        if (left) return;
        words.remove();
        prediction = new Prediction(name, graph);
        place.append(prediction.element);
      },
      (error: Error) => (words.textContent = error.message),
    );
  });
  return {
    element,
    destroy() {
      left = true;
      stopWaiting();
      prediction?.destroy();
    },
  };
}

class Prediction {
  readonly element: HTMLElement;
  private readonly stepper: ReturnType<typeof mountStepper>;
  private readonly order: { node: number; position: number }[];
  private readonly form: HTMLFormElement;
  private readonly input: HTMLInputElement;
  private readonly label: HTMLElement;
  private readonly status = liveText("predict-status");
  private readonly reveal: HTMLButtonElement;
  private asked = 0;

  constructor(
    private readonly name: string,
    private readonly graph: Description,
  ) {
    const place = html("div", { class: "stepper-place" });
    this.order = askingOrder(graph);
    const id = newId("prediction");
    this.label = html("label", { for: id });
    this.input = html("input", { id, inputmode: "decimal", autocomplete: "off", spellcheck: "false" }) as HTMLInputElement;
    this.reveal = button("Reveal", () => this.next(true));
    this.form = html("form", { class: "prediction" }, this.label, this.input, html("button", { type: "submit", class: "primary" }, "Predict"), this.reveal) as HTMLFormElement;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.answer();
    });
    this.stepper = mountStepper(place, graph);
    this.element = html("div", {}, this.form, this.status, place);
    const known = store.progress.predictions[name] ?? {};
    while (this.asked < this.order.length && this.nodeName in known) this.asked++;
    this.ask();
  }

  destroy(): void {
    this.stepper.destroy();
  }

  private get nodeName(): string {
    return this.graph.nodes[this.order[this.asked].node].name;
  }

  private ask(): void {
    this.input.value = "";
    const done = this.asked >= this.order.length;
    this.form.hidden = done;
    if (done) {
      this.stepper.goTo(this.graph.steps.length - 1);
      if (!this.status.textContent) this.status.textContent = "Every gradient is there.";
      return;
    }
    const root = this.graph.nodes[this.graph.root].name;
    this.label.textContent = `What is d${root}/d${this.nodeName}, the gradient of ${this.nodeName}?`;
    const before = this.asked === 0 ? this.graph.steps.findIndex((step) => step.kind === "seed") - 1 : this.order[this.asked - 1].position;
    this.stepper.goTo(before);
  }

  private answer(): void {
    const expected = this.expected();
    const given = Number(this.input.value.trim().replace("−", "-").replace(",", "."));
    if (!this.input.value.trim() || Number.isNaN(given)) {
      this.status.dataset.outcome = "";
      this.status.textContent = "Type a number, such as -2 or 0.5.";
    } else if (Math.abs(given - expected) <= 1e-3 * Math.max(1, Math.abs(expected))) {
      this.status.dataset.outcome = "right";
      this.next(false);
    } else {
      this.status.dataset.outcome = "wrong";
      const advice = given === -expected ? "The size is right, the sign is not." : this.asked === 0 ? "Every number moves exactly as fast as itself." : "Multiply the gradient of the node it flows from by the local derivative, and add up all ways that lead here.";
      this.status.textContent = `Not ${this.input.value}. ${advice} Try again, or reveal it.`;
    }
  }

  private next(revealed: boolean): void {
    const name = this.nodeName;
    const [node] = this.graph.nodes.filter((each) => each.name === name);
    const text = this.finalGrad(this.order[this.asked].node);
    this.status.textContent = revealed ? `The gradient of ${node.name} is ${text}.` : `Yes: the gradient of ${node.name} is ${text}.`;
    if (revealed) this.status.dataset.outcome = "";
    (store.progress.predictions[this.name] ??= {})[name] = revealed ? "" : this.input.value;
    store.save();
    this.asked++;
    this.ask();
    if (!this.form.hidden) this.input.focus();
  }

  private expected(): number {
    return Number(this.stepper.states[this.graph.steps.length - 1].grads[this.order[this.asked].node]?.exact);
  }

  private finalGrad(node: number): string {
    return this.stepper.states[this.graph.steps.length - 1].grads[node]?.text ?? "";
  }
}

/** The nodes in the order in which their gradients become complete, and the step at which they do. */
function askingOrder(graph: Description): { node: number; position: number }[] {
  const last = new Map<number, number>();
  graph.steps.forEach((step, position) => {
    if (step.kind === "seed") last.set(step.node, position);
    if ("to" in step) last.set(step.to, position);
  });
  return [...last].map(([node, position]) => ({ node, position })).sort((a, b) => a.position - b.position);
}
