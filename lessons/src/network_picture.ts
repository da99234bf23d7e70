// A network as neurons and lines, with the numbers of whatever is pointed at: by weight, or by the gradient of a result.
// All numbers are Python's, as `chainrule.learn.wiring` reads them from the learner's own objects.

import { html, liveText } from "./elements";
import { CROWD, type Numbers, type Shown, type Wire, Wires, largest, shownSwitch } from "./wires";

interface Neuron {
  weights: Numbers;
  weightGradients: Numbers;
  bias: number | null;
  biasGradient: number | null;
  sum: number | null;
  output: number | null;
  gradient: number | null;
}

interface Network {
  inputs: [data: number | null, gradient: number | null][];
  layers: Neuron[][];
  result: number | null;
}

export type Seen = Network | { unreadable: string };

type Place = [depth: number, i: number]; // inputs are at depth 0
type Chosen = { neuron: Place } | { wire: Wire; towards: "to" | "from" }; // the end of a wire that arrows go on to

const NEAR = 8; // pixels from a line that are still on it
const ARROWS: Record<string, [right: number, down: number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const READABLE = 20; // neurons above one another that have room for their numbers

export class NetworkPicture {
  readonly element: HTMLElement;
  private readonly drawing = html("div", { class: "wiring neurons", tabindex: "0", role: "application", "aria-roledescription": "network" });
  private readonly scale = html("p", { class: "caption scale" });
  private readonly numbers = html("div", { class: "numbers" });
  private readonly spoken = liveText("unseen"); // only what was chosen by keys: numbers that change by themselves would never end
  private readonly controls: HTMLElement;
  private wires = new Wires([]);
  private neurons: HTMLElement[][] = [];
  private network: Network | null = null;
  private shown: Shown = "weights";
  private chosen: Chosen = { neuron: [0, 0] };

  /** `result` says in words what the gradients are of, and `which` for which inputs the neurons are shown. */
  constructor(
    private readonly result: string,
    private readonly which = "",
  ) {
    this.controls = shownSwitch((shown) => {
      this.shown = shown;
      this.draw();
    });
    this.element = html("div", { class: "network-picture" }, this.controls, this.drawing, this.scale, this.numbers, this.spoken);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerdown", (event) => this.point(event));
    this.drawing.addEventListener("keydown", (event) => this.press(event));
    this.clear();
  }

  clear(): void {
    this.network = null;
    this.wires = new Wires([]);
    this.drawing.replaceChildren();
    this.drawing.setAttribute("aria-label", "The network will be drawn here.");
    this.drawing.hidden = this.controls.hidden = true;
    this.scale.textContent = "The network will be drawn here as soon as Python is ready.";
    this.numbers.replaceChildren();
  }

  show(seen: Seen): void {
    if ("unreadable" in seen) {
      this.clear();
      this.scale.textContent = `Your network runs, but it cannot be drawn, because ${seen.unreadable}.`;
      return;
    }
    this.network = seen;
    this.build([seen.inputs.length, ...seen.layers.map((layer) => layer.length)]);
    this.draw();
  }

  private build(sizes: number[]): void {
    if (sizes.join() === this.wires.sizes.join()) return;
    this.wires = new Wires(sizes);
    const most = Math.max(...sizes);
    this.drawing.style.setProperty("--most", String(most));
    this.drawing.classList.toggle("small", most > READABLE);
    this.drawing.classList.toggle("crowded", this.wires.all.length > CROWD);
    this.neurons = sizes.map((size, depth) => Array.from({ length: size }, (_, i) => this.at(html("span", { class: depth === 0 ? "neuron input" : "neuron" }), depth, i)));
    const heads = sizes.map((_, depth) => html("span", { class: "head", style: `left: ${100 * this.wires.place(depth, 0)[0]}%` }, this.layerName(depth)));
    this.drawing.replaceChildren(this.wires.element, html("div", { "aria-hidden": "true" }, ...heads, ...this.neurons.flat()));
    const layers = sizes.slice(1, -1).map((size) => `${size} neurons`);
    this.drawing.setAttribute("aria-label", `The network: ${sizes[0]} inputs, ${layers.map((words) => `a layer of ${words}`).join(", ")}, ${sizes.at(-1)} output. Arrow keys go from neuron to neuron, along the lines between them.`);
    this.drawing.hidden = this.controls.hidden = false;
    this.chosen = { neuron: [sizes.length - 1, 0] };
  }

  private at(element: HTMLElement, depth: number, i: number): HTMLElement {
    const [x, y] = this.wires.place(depth, i);
    element.style.left = `${100 * x}%`;
    element.style.top = `${100 * y}%`;
    return element;
  }

  private draw(): void {
    const { network, shown } = this;
    if (!network) return;
    const [inWeights, index] = [shown === "weights", shown === "weights" ? 0 : 1];
    const onWires = network.layers.flatMap((layer) => layer.flatMap((neuron) => (inWeights ? neuron.weights : neuron.weightGradients)));
    this.wires.show(onWires);
    const onNeurons = [network.inputs.map((input) => input[index]), ...network.layers.map((layer) => layer.map((neuron) => (inWeights ? neuron.output : neuron.gradient)))];
    const most = inWeights ? 1 : largest(onNeurons.flat());
    onNeurons.forEach((layer, depth) => layer.forEach((number, i) => this.fill(this.neurons[depth][i], number, most)));
    const widest = largest(onWires);
    const [onWire, inNeuron] = inWeights ? ["weight", "its output"] : ["dL/dweight", "dL/doutput"];
    const lines = widest === 0 ? `Every ${onWire} is 0.` : `The widest line is a ${onWire} of size ${numeral(widest)}. Solid lines are positive, dashed lines negative.`;
    this.scale.textContent = `${lines} In each neuron is ${inNeuron}${this.which}. L is ${this.result}, ${numeral(network.result)}.`;
    this.mark();
  }

  private fill(element: HTMLElement, number: number | null, most: number): void {
    element.textContent = brief(number);
    element.classList.toggle("below", (number ?? 0) < 0);
    element.style.setProperty("--share", most > 0 ? Math.min(1, Math.abs(number ?? 0) / most).toFixed(3) : "0");
  }

  // What is pointed at.

  private point({ clientX, clientY }: PointerEvent): void {
    const box = this.drawing.getBoundingClientRect();
    const neuron = this.neurons.flatMap((layer, depth) => layer.flatMap((element, i) => (contains(element.getBoundingClientRect(), clientX, clientY) ? [[depth, i] as Place] : [])))[0];
    if (neuron) return this.choose({ neuron });
    const distances = this.wires.all.map((wire): [number, Wire] => {
      const ends = [this.wires.place(wire.depth, wire.from), this.wires.place(wire.depth + 1, wire.to)].map(([x, y]) => [x * box.width, y * box.height]);
      return [distance(clientX - box.left, clientY - box.top, ends), wire];
    });
    const [nearest] = distances.sort(([a], [b]) => a - b);
    if (nearest && nearest[0] < NEAR) this.choose({ wire: nearest[1], towards: "to" });
  }

  private press(event: KeyboardEvent): void {
    const by = ARROWS[event.key];
    if (!by || !this.network) return;
    event.preventDefault();
    this.choose(by[0] ? this.across(by[0] > 0) : this.along(by[1]));
    this.spoken.textContent = this.numbers.textContent;
  }

  /** From a neuron onto a line, and from a line to the neuron at its end. */
  private across(right: boolean): Chosen {
    const { chosen, wires } = this;
    if ("wire" in chosen) {
      const { wire } = chosen;
      return { neuron: right ? [wire.depth + 1, wire.to] : [wire.depth, wire.from] };
    }
    const [depth, i] = chosen.neuron;
    const wire = wires.all.find((each) => (right ? each.depth === depth && each.from === i : each.depth === depth - 1 && each.to === i));
    return wire ? { wire, towards: right ? "to" : "from" } : chosen;
  }

  /** To the next neuron of the layer, or to the line beside, whose near end is the same neuron. */
  private along(down: number): Chosen {
    const { chosen, wires } = this;
    const next = (i: number, size: number) => (i + down + size) % size;
    if ("neuron" in chosen) {
      const [depth, i] = chosen.neuron;
      return { neuron: [depth, next(i, wires.sizes[depth])] };
    }
    const { wire, towards } = chosen;
    const [near, size] = [towards === "to" ? "from" : "to", wires.sizes[towards === "to" ? wire.depth + 1 : wire.depth]] as const;
    const beside = wires.all.find((each) => each.depth === wire.depth && each[near] === wire[near] && each[towards] === next(wire[towards], size));
    return beside ? { wire: beside, towards } : chosen;
  }

  private choose(chosen: Chosen): void {
    this.chosen = chosen;
    this.mark();
  }

  /** Marks what is chosen, and shows its numbers. A neuron's own lines are marked with it. */
  private mark(): void {
    const { chosen } = this;
    const [depth, i] = "neuron" in chosen ? chosen.neuron : [-1, -1];
    this.neurons.forEach((layer, d) => layer.forEach((element, k) => element.classList.toggle("lit", d === depth && k === i)));
    for (const wire of this.wires.all) wire.line.classList.toggle("lit", "wire" in chosen ? wire === chosen.wire : wire.depth === depth - 1 && wire.to === i);
    const lines = "wire" in chosen ? this.ofWire(chosen.wire) : depth === 0 ? this.ofInput(i) : this.ofNeuron(depth, i);
    this.numbers.replaceChildren(...lines.map((words) => html("p", {}, words)));
  }

  private ofInput(i: number): string[] {
    const [data, gradient] = (this.network as Network).inputs[i];
    return [`Input ${i + 1} is ${numeral(data)}.`, `dL/dinput = ${numeral(gradient)}`];
  }

  private ofNeuron(depth: number, i: number): string[] {
    const { weights, weightGradients, bias, biasGradient, sum, output, gradient } = (this.network as Network).layers[depth - 1][i];
    const terms = weights.map((weight, k) => product(weight, this.output(depth - 1, k)));
    return [
      `${this.neuronName(depth, i)}: its ${weights.length === 1 ? "weight" : "weights"} times what comes in, plus its bias ${numeral(bias)}`,
      `tanh(${added([...terms, numeral(bias)])}) = tanh(${numeral(sum)}) = ${numeral(output)}`,
      `dL/doutput = ${numeral(gradient)}${this.which ? " for this example" : ""}, dL/dbias = ${numeral(biasGradient)}, dL/dweights = ${weightGradients.map(numeral).join(", ")}${this.which ? " for all examples together" : ""}`,
    ];
  }

  private ofWire({ depth, to, from }: Wire): string[] {
    const { weights, weightGradients } = (this.network as Network).layers[depth][to];
    const input = this.output(depth, from);
    const carried = weights[from] === null || input === null ? null : weights[from] * input;
    const start = this.neuronName(depth, from).toLowerCase();
    return [
      `From ${start} to ${this.neuronName(depth + 1, to).toLowerCase()}: weight ${numeral(weights[from])}`,
      `It adds ${product(weights[from], input)} = ${numeral(carried)} to the sum.`,
      `dL/dweight = ${numeral(weightGradients[from])}${this.which ? " for all examples together" : ""}`,
    ];
  }

  private output(depth: number, i: number): number | null {
    const { inputs, layers } = this.network as Network;
    return depth === 0 ? inputs[i][0] : layers[depth - 1][i].output;
  }

  private layerName(depth: number): string {
    return depth === 0 ? "inputs" : depth === this.wires.sizes.length - 1 ? "output" : `layer ${depth}`;
  }

  private neuronName(depth: number, i: number): string {
    if (depth === 0) return `Input ${i + 1}`;
    return depth === this.wires.sizes.length - 1 ? "The output neuron" : `Neuron ${i + 1} of layer ${depth}`;
  }
}

function contains({ left, right, top, bottom }: DOMRect, x: number, y: number): boolean {
  return left <= x && x <= right && top <= y && y <= bottom;
}

/** From a point to the piece of a straight line between two others. */
function distance(x: number, y: number, [[x1, y1], [x2, y2]]: number[][]): number {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const part = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy)));
  return Math.hypot(x - x1 - part * dx, y - y1 - part * dy);
}

/** A number with three digits that count. */
function numeral(number: number | null): string {
  if (number === null) return "beyond all bounds";
  const size = Math.abs(number);
  const words = size !== 0 && (size < 1e-3 || size >= 1e5) ? number.toExponential(2).replace("e+", "e") : String(Number(number.toPrecision(3)));
  return words.replaceAll("-", "−");
}

/** A number of at most five signs, which fits into a neuron. */
function brief(number: number | null): string {
  if (number === null) return "∞";
  const size = Math.abs(number);
  if (size >= 1000 || (size !== 0 && size < 0.005)) return number.toExponential(0).replace("e+", "e").replaceAll("-", "−");
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace("-", "−");
}

function product(weight: number | null, input: number | null): string {
  const factor = numeral(input);
  return `${numeral(weight)}·${factor.startsWith("−") ? `(${factor})` : factor}`;
}

/** Terms with a plus between them, or a minus that the next term has brought along. */
function added(terms: string[]): string {
  return terms.reduce((sum, term) => (term.startsWith("−") ? `${sum} − ${term.slice(1)}` : `${sum} + ${term}`));
}
