// The playground: points of two classes, a network, its boundary while it learns, what each neuron sees, and the graph
// of any point's loss. Its settings are in the address, so that they can be shared.

import { mountStepper } from "../../src/chainrule/stepping/web/stepper.js";
import type { Course } from "./course";
import { Demonstration, type Work } from "./demonstration";
import { button, colour, html, liveText, newId, rateSlider, select, slider } from "./elements";
import type { Live } from "./lesson";
import type { Page } from "./main";
import { type Layers, accuracyOf, overGrid, zeroLines } from "./network";
import { ownProgram } from "./own_code";
import { python } from "./python";
import { Whose } from "./whose";
import { respelt } from "./widgets/activations";

interface State {
  steps: number;
  loss: number | null;
  layers: Layers;
  points: [number, number, number][];
  test: [number, number, number][];
}

interface Settings {
  data: string;
  noise: number;
  layers: number;
  neurons: number;
  activation: string;
  lr: number;
  seed: number;
  engine: string;
  points: [number, number, number][];
}

const SETS: [string, string][] = [["moons", "moons"], ["circles", "circles"], ["xor", "xor"], ["spirals", "spirals"], ["blobs", "blobs"], ["own", "points of your own"]];
const STANDARD: Settings = { data: "moons", noise: 0.1, layers: 2, neurons: 6, activation: "tanh", lr: 0.01, seed: 1, engine: "own", points: [] };
const REACH = 2; // the plane is drawn from -2 to 2
const GRID = 56;
const NEURON_GRID = 22;
const MOST_STEPS = 3000;
const NEAR = 0.16; // how close to a point a click must be
const MOST_POINTS = 200;

export function playgroundPage(course: Course): Page {
  const playground = new Playground(course, {});
  const lead = "Choose points and a network, let it learn, and look inside. Click a point to see the graph of its loss, with every gradient in it.";
  const element = html("article", { class: "page" }, html("h1", {}, "Playground"), html("p", { class: "lead" }, lead), playground.element);
  return { title: "Playground", element, destroy: () => playground.destroy() };
}

export class Playground implements Live {
  readonly element: HTMLElement;
  private readonly standard: Settings; // what is set here need not be in the address
  private settings: Settings;
  private run: Demonstration<State>;
  private left = false;
  private stepper: ReturnType<typeof mountStepper> | null = null;
  private mode = "look";
  private cursor: [number, number] | null = null;
  private chosen: [number, number, number] | null = null;
  private readonly canvas = html("canvas", { width: "560", height: "560", tabindex: "0", role: "application", "aria-roledescription": "plane" }) as HTMLCanvasElement;
  private readonly neurons = html("div", { class: "neurons" });
  private readonly figures = html("p", { class: "figures" });
  private readonly status = liveText("waiting");
  private readonly whose: Whose;
  private readonly graph = html("div", { class: "wide" });
  private readonly play: HTMLButtonElement;
  private readonly dataSelect: HTMLSelectElement;
  private readonly redraw = () => this.draw();
  private readonly stopWaiting: () => void;

  constructor(
    private readonly course: Course,
    attributes: Record<string, string>,
  ) {
    this.standard = read(attributes, STANDARD);
    this.settings = read(Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? "")), this.standard);
    this.whose = new Whose(course, () => ["tanh", this.settings.activation], () => this.settings.engine);
    this.run = this.newRun();
    this.play = button("Train", () => void this.toggle(), "primary");
    const step = button("One step", () => void this.oneStep());
    const again = button("Start over", () => void this.restart());
    const notes = html("div", {}, this.whose.element, respelt());
    const sets = select("Data", SETS, this.settings.data, (value) => this.change({ data: value, points: value === "own" ? this.currentPoints() : [] }));
    this.dataSelect = sets.input;
    const left = html("div", {}, html("div", { class: "plane" }, this.canvas), this.figures, html("div", { class: "bar" }, this.play, step, again), this.status, notes);
    const right = html("div", {}, this.controls(sets.element), this.neurons);
    this.element = html("section", { class: "playground live", "data-widget": "playground", "aria-label": "Playground" }, left, right, this.graph);
    this.listen();
    this.status.textContent = "The points appear when Python is ready.";
    this.stopWaiting = python.whenReady(() => void this.restart());
    addEventListener("themechange", this.redraw);
  }

  destroy(): void {
    this.left = true;
    this.run.destroy();
    this.stepper?.destroy();
    this.stopWaiting();
    this.whose.destroy();
    removeEventListener("themechange", this.redraw);
  }

  private controls(sets: HTMLElement): HTMLElement {
    const { settings } = this;
    const names = (...all: string[]) => all.map((name): [string, string] => [name, name]);
    const mode = newId("mode");
    const radio = (value: string, words: string) => {
      const input = html("input", { type: "radio", name: mode, value, ...(value === this.mode && { checked: "" }) });
      input.addEventListener("change", () => {
        this.mode = value;
        this.label();
      });
      return html("label", {}, input, ` ${words}`);
    };
    return html(
      "div",
      {},
      html(
        "fieldset",
        {},
        html("legend", {}, "Points"),
        sets,
        slider({ label: "noise", min: 0, max: 0.4, step: 0.02, value: settings.noise, show: (n) => n.toFixed(2) }, (noise) => this.change({ noise })).element,
        html("div", { class: "bar", role: "group", "aria-label": "A click" }, radio("look", "look at a point"), radio("1", "add ●"), radio("-1", "add ▲"), button("Clear", () => this.change({ data: "own", points: [] }))),
      ),
      html(
        "fieldset",
        {},
        html("legend", {}, "Network"),
        slider({ label: "hidden layers", min: 1, max: 3, step: 1, value: settings.layers }, (layers) => this.change({ layers })).element,
        slider({ label: "neurons in each", min: 1, max: 8, step: 1, value: settings.neurons }, (neurons) => this.change({ neurons })).element,
        select("Activation", names("tanh", "relu", "sigmoid"), settings.activation, (activation) => this.change({ activation })).element,
        rateSlider(settings.lr, 0.3, (lr) => this.change({ lr })).element,
        slider({ label: "random start", min: 1, max: 20, step: 1, value: settings.seed }, (seed) => this.change({ seed })).element,
        select("Gradients by", [["own", "your Value"], ["chainrule", "chainrule's Value"]], settings.engine, (engine) => this.change({ engine })).element,
      ),
    );
  }

  // Training.

  private newRun(): Demonstration<State> {
    const { settings } = this;
    const given = () => ({ ...settings, hidden: Array.from({ length: settings.layers }, () => settings.neurons), data: settings.data === "own" ? "moons" : settings.data, program: ownProgram(this.course, settings.engine) });
    const show = (state: State & Work) => {
      this.whose.tell(state);
      this.draw();
    };
    return new Demonstration<State>("playground", given, show, (words) => (this.status.textContent = words));
  }

  private change(part: Partial<Settings>): void {
    this.settings = { ...this.settings, ...part };
    this.dataSelect.value = this.settings.data;
    history.replaceState(history.state, "", `${location.hash.split("?")[0]}${address(this.settings, this.standard)}`);
    void this.restart();
  }

  private async restart(): Promise<void> {
    this.run.destroy();
    this.run = this.newRun();
    this.play.textContent = "Train";
    this.status.textContent = "";
    this.whose.write();
    this.closeGraph();
    if (this.isEmpty) {
      this.status.textContent = "Add points of both kinds: choose ● or ▲, then click into the plane.";
      this.figures.replaceChildren();
      this.neurons.replaceChildren();
      delete this.neurons.dataset.shape;
      this.draw();
      return;
    }
    await this.run.start();
  }

  private get isEmpty(): boolean {
    return this.settings.data === "own" && new Set(this.settings.points.map(([, , label]) => label)).size < 2;
  }

  private async toggle(): Promise<void> {
    const { run } = this;
    if (this.isEmpty) return;
    if (run.running) return run.pause();
    this.play.textContent = "Pause";
    const goal = Math.max(MOST_STEPS, (run.state?.steps ?? 0) + MOST_STEPS);
    await run.play(({ steps }) => goal - steps);
    if (run === this.run) this.play.textContent = "Train";
  }

  private async oneStep(): Promise<void> {
    if (!this.isEmpty) await this.run.advance(1);
  }

  private currentPoints(): [number, number, number][] {
    return (this.run.state?.points ?? []).map(([x, y, label]) => [round(x), round(y), label]);
  }

  // Looking and drawing points.

  private listen(): void {
    this.canvas.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect();
      this.cursor = null;
      this.act(REACH * ((2 * (event.clientX - box.left)) / box.width - 1), REACH * (1 - (2 * (event.clientY - box.top)) / box.height));
    });
    this.canvas.addEventListener("keydown", (event) => {
      const by = ({ ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] } as Record<string, [number, number]>)[event.key];
      if (by) {
        const [x, y] = this.cursor ?? [0, 0];
        this.cursor = [clamp(x + by[0]), clamp(y + by[1])];
        this.status.textContent = `The cursor is at ${this.cursor.join(", ")}.`;
        this.draw();
      } else if (event.key === "Enter" || event.key === " ") {
        this.act(...(this.cursor ?? [0, 0]));
      } else return;
      event.preventDefault();
    });
    this.canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.draw();
    });
    this.label();
  }

  private label(): void {
    const what = this.mode === "look" ? "looks at the nearest point" : `adds a ${this.mode === "1" ? "circle" : "triangle"}`;
    this.canvas.setAttribute("aria-label", `Points and the boundary between them. Arrow keys move a cursor, Enter ${what}.`);
  }

  private act(x: number, y: number): void {
    if (this.mode === "look") {
      const points = this.run.state?.points ?? [];
      const [nearest] = points.toSorted((a, b) => distance(a, x, y) - distance(b, x, y));
      if (nearest && (this.cursor || distance(nearest, x, y) < NEAR)) void this.look(nearest);
      return;
    }
    const points = this.settings.data === "own" ? this.settings.points : this.currentPoints();
    if (points.length >= MOST_POINTS) {
      this.status.textContent = `There are ${MOST_POINTS} points already; clear some.`;
      return;
    }
    this.change({ data: "own", points: [...points, [round(x), round(y), Number(this.mode)]] });
  }

  private async look(point: [number, number, number]): Promise<void> {
    const { run } = this;
    run.pause();
    this.chosen = point;
    this.draw();
    const answer = await python.call("chainrule.learn.demonstrations", "point_graph", [run.id, ...point]);
    if (this.left || run !== this.run || this.chosen !== point) return; // something else is wanted by now
    if (answer.kind !== "done" || answer.text === "null") {
      this.status.textContent = answer.kind === "done" ? "Start over to look inside." : answer.text;
      return;
    }
    const { graph, error } = JSON.parse(answer.text);
    this.closeGraph(false);
    if (error) {
      this.status.textContent = "This network is too large for a graph that one can read: choose fewer layers or neurons.";
      return;
    }
    const [x, y, label] = point;
    const place = html("div", { class: "stepper-place" });
    const words = `The loss of the point (${x.toFixed(2)}, ${y.toFixed(2)}), which is a ${label > 0 ? "circle, target 1" : "triangle, target -1"}: loss_of(model, [x], [${label}])`;
    this.graph.replaceChildren(html("p", { class: "caption" }, words), place);
    this.stepper = mountStepper(place, graph, { position: graph.steps.length - 1 });
    this.showRoot(this.stepper);
    this.status.textContent = "The graph of this point's loss is below.";
    this.graph.scrollIntoView({ block: "nearest" });
  }

  /** A large graph scrolls: start at the loss. */
  private showRoot({ view, graph }: ReturnType<typeof mountStepper>): void {
    const { y } = view.layout.boxes[graph.root];
    view.element.scrollTo({ left: view.element.scrollWidth, top: y * view.scale - view.element.clientHeight / 2 });
  }

  private closeGraph(forget = true): void {
    this.stepper?.destroy();
    this.stepper = null;
    this.graph.replaceChildren();
    if (forget) this.chosen = null;
  }

  // Pictures.

  private draw(): void {
    const { state } = this.run;
    const context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    const { width, height } = this.canvas;
    const colours = { one: channels(colour("data", this.element)), other: channels(colour("grad", this.element)), ground: channels(colour("sheet", this.element)), ink: colour("ink", this.element) };
    context.clearRect(0, 0, width, height);
    const points = this.settings.data === "own" ? this.settings.points : (state?.points ?? []);
    if (state && !this.isEmpty) {
      const grid = overGrid(state.layers, this.settings.activation, GRID, REACH).at(-1)?.[0] as Float32Array;
      paint(context, grid, GRID, colours, width);
      context.strokeStyle = colours.ink;
      context.lineWidth = 2.5;
      context.beginPath();
      const scale = width / GRID;
      for (const [x1, y1, x2, y2] of zeroLines(grid, GRID)) {
        context.moveTo((x1 + 0.5) * scale, (y1 + 0.5) * scale);
        context.lineTo((x2 + 0.5) * scale, (y2 + 0.5) * scale);
      }
      context.stroke();
      this.drawNeurons(state, colours);
      const accuracy = accuracyOf(state.layers, this.settings.activation, state.points);
      this.figures.replaceChildren(...figure("steps", String(state.steps)), ...figure("loss", state.loss === null ? "–" : state.loss.toFixed(4)), ...figure("right", `${Math.round(100 * accuracy)}%`));
      this.element.dataset.steps = String(state.steps);
      this.element.dataset.accuracy = String(accuracy);
    }
    for (const point of points) this.drawPoint(context, point, colours);
    if (this.cursor) drawCursor(context, this.cursor, width, colours.ink);
  }

  private drawPoint(context: CanvasRenderingContext2D, [x, y, label]: [number, number, number], colours: { one: number[]; other: number[]; ground: number[]; ink: string }): void {
    const { width } = this.canvas;
    const [px, py] = [((x / REACH + 1) * width) / 2, ((1 - y / REACH) * width) / 2];
    const chosen = this.chosen && this.chosen[0] === x && this.chosen[1] === y;
    const size = chosen ? 13 : 8;
    context.beginPath();
    if (label > 0) context.arc(px, py, size * 0.85, 0, 2 * Math.PI);
    else {
      context.moveTo(px, py - size);
      context.lineTo(px + size, py + size * 0.8);
      context.lineTo(px - size, py + size * 0.8);
      context.closePath();
    }
    context.fillStyle = `rgb(${(label > 0 ? colours.one : colours.other).join(" ")})`;
    context.strokeStyle = chosen ? colours.ink : `rgb(${colours.ground.join(" ")})`;
    context.lineWidth = chosen ? 3.5 : 1.8;
    context.fill();
    context.stroke();
  }

  private drawNeurons(state: State, colours: Parameters<typeof paint>[3]): void {
    const grids = overGrid(state.layers, this.settings.activation, NEURON_GRID, REACH);
    const hidden = grids.slice(0, -1);
    const shape = hidden.map((layer) => layer.length).join();
    if (this.neurons.dataset.shape !== shape) {
      this.neurons.dataset.shape = shape;
      this.neurons.replaceChildren(
        ...hidden.map((layer, depth) =>
          html("div", {}, html("h3", {}, `Layer ${depth + 1}: what each neuron says, over the plane`), html("div", { class: "neuron-row" }, ...layer.map((_, i) => html("canvas", { width: String(NEURON_GRID), height: String(NEURON_GRID), role: "img", "aria-label": `Neuron ${i + 1} of layer ${depth + 1}` })))),
        ),
      );
    }
    const canvases = this.neurons.querySelectorAll("canvas");
    hidden.flat().forEach((grid, i) => {
      const centred = this.settings.activation === "sigmoid" ? grid.map((output) => 2 * output - 1) : grid;
      paint(canvases[i].getContext("2d") as CanvasRenderingContext2D, centred, NEURON_GRID, colours, NEURON_GRID);
    });
  }
}

/** A grid of numbers as colours: one class above zero, the other below, paler near zero. */
function paint(context: CanvasRenderingContext2D, grid: Float32Array, size: number, colours: { one: number[]; other: number[]; ground: number[] }, width: number): void {
  const image = new ImageData(size, size);
  grid.forEach((score, i) => {
    const strength = 0.1 + 0.5 * Math.tanh(Math.abs(score));
    const target = score > 0 ? colours.one : colours.other;
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = colours.ground[k] + strength * (target[k] - colours.ground[k]);
    image.data[4 * i + 3] = 255;
  });
  if (width === size) {
    context.putImageData(image, 0, 0);
    return;
  }
  const small = new OffscreenCanvas(size, size);
  small.getContext("2d")?.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = true;
  context.drawImage(small, 0, 0, width, width);
}

function drawCursor(context: CanvasRenderingContext2D, [x, y]: [number, number], width: number, ink: string): void {
  const [px, py] = [((x / REACH + 1) * width) / 2, ((1 - y / REACH) * width) / 2];
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(px - 16, py);
  context.lineTo(px + 16, py);
  context.moveTo(px, py - 16);
  context.lineTo(px, py + 16);
  context.stroke();
}

function figure(words: string, value: string): (string | HTMLElement)[] {
  return [html("span", {}, `${words} `, html("b", {}, value))];
}

function channels(colour: string): number[] {
  const numbers = colour.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
  return colour.startsWith("color(") ? numbers.slice(-3).map((n) => 255 * n) : numbers.slice(0, 3);
}

// The address.

function read(given: Record<string, string>, standard: Settings): Settings {
  const shape = (given.hidden ?? "").split(","); // lessons write hidden=6,6 and rate=0.03
  const attributes: Record<string, string> = { ...(given.hidden && { layers: String(shape.length), neurons: shape[0] }), ...(given.rate && { lr: given.rate }), ...given };
  const number = (name: keyof Settings, low: number, high: number) => {
    const found = Number(attributes[name]);
    return attributes[name] !== undefined && found >= low && found <= high ? found : (standard[name] as number);
  };
  const points = (attributes.points ?? "").split(";").map((text) => text.split(",").map(Number)).filter((point) => point.length === 3 && point.every(Number.isFinite) && Math.abs(point[2]) === 1) as [number, number, number][];
  const data = SETS.some(([name]) => name === attributes.data) ? attributes.data : standard.data;
  return {
    data,
    noise: number("noise", 0, 0.4),
    layers: Math.round(number("layers", 1, 3)),
    neurons: Math.round(number("neurons", 1, 8)),
    activation: ["tanh", "relu", "sigmoid"].includes(attributes.activation) ? attributes.activation : standard.activation,
    lr: number("lr", 0.001, 0.5),
    seed: Math.round(number("seed", 1, 20)),
    engine: ["own", "chainrule"].includes(attributes.engine) ? attributes.engine : standard.engine,
    points: data === "own" ? points.slice(0, MOST_POINTS) : [],
  };
}

function address(settings: Settings, standard: Settings): string {
  const changed = Object.entries(settings).filter(([name, value]) => name !== "points" && value !== standard[name as keyof Settings]);
  const found = new URLSearchParams(changed.map(([name, value]) => [name, String(value)]));
  if (settings.points.length) found.set("points", settings.points.map((point) => point.join(",")).join(";"));
  const text = found.toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
  return text ? `?${text}` : "";
}

function distance([px, py]: [number, number, number], x: number, y: number): number {
  return Math.hypot(px - x, py - y);
}

function clamp(x: number): number {
  return Math.max(-REACH, Math.min(REACH, round(x)));
}

function round(x: number): number {
  return Math.round(100 * x) / 100;
}
