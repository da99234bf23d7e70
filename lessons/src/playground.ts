// The playground: points of two classes, a network, its boundary while it learns, its wiring, and the graph of any
// point's loss. Its settings are in the address, so that they can be shared.

import { mountStepper } from "../../src/chainrule/stepping/web/stepper.js";
import { Chart } from "./chart";
import type { Course } from "./course";
import { Demonstration, type Work } from "./demonstration";
import { button, counted, html, liveText, newId, rateSlider, select, slider } from "./elements";
import type { Live } from "./lesson";
import type { Page } from "./main";
import { copy, save } from "./my_engine";
import { type Layers, accuracyOf, lossOf, overGrid } from "./network";
import { ownProgram } from "./own_code";
import { REACH, coloursOf, drawBoundary, drawCursor, drawPoint, paint } from "./plane";
import { MOST_NEURONS, MOST_POINTS, type Point, SETS, STANDARD, type Settings, address, read } from "./playground_settings";
import { python } from "./python";
import { Whose } from "./whose";
import { respelt } from "./widgets/activations";
import { type Gradients, Wiring } from "./wiring";

interface State {
  steps: number;
  loss: number | null;
  layers: Layers;
  gradients: Gradients;
  points: Point[];
  test: Point[];
  fast: boolean; // by WebAssembly
  speed: number | null; // steps a second, if it is fast
}

const GRID = 56;
const MOST_STEPS = 3000; // by the learner's loop
const MOST_FAST_STEPS = 100_000; // by its graph as WebAssembly
const NEAR = 0.16; // how close to a point a click must be
const LIVE: (keyof Settings)[] = ["lr", "noise", "points"]; // what changes without a restart

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
  private chosen: Point | null = null;
  private readonly canvas = html("canvas", { width: "560", height: "560", tabindex: "0", role: "application", "aria-roledescription": "plane" }) as HTMLCanvasElement;
  private readonly wiring = new Wiring();
  private readonly chart = new Chart({
    logX: true,
    label: "Mean squared error by step",
    x: "step",
    y: "error",
    height: 170,
    curves: [{ label: "points it learns from", colour: "data" }, { label: "points kept back", colour: "grad", dashed: true }],
  });
  private history: [step: number, learnt: number, kept: number | null][] = [];
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
    const link = button("Copy the link", async () => (this.status.textContent = (await copy(location.href)) ? "Copied. The link holds every setting." : "Copy the address of this page: it holds every setting."));
    const picture = button("Save a picture", () => this.savePicture());
    const notes = html("div", {}, this.whose.element, respelt());
    const sets = select("Data", SETS, this.settings.data, (value) => this.change({ data: value, points: value === "own" ? this.currentPoints() : [] }));
    this.dataSelect = sets.input;
    const left = html("div", {}, html("div", { class: "plane" }, this.canvas), this.figures, html("div", { class: "bar" }, this.play, step, again), this.status, this.chart.element, html("div", { class: "bar" }, link, picture), notes);
    const right = html("div", {}, this.controls(sets.element), html("h3", {}, "What each neuron says over the plane, and how much each one counts"), this.wiring.element);
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
    this.chart.destroy();
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
        slider({ label: "neurons in each", min: 1, max: MOST_NEURONS, step: 1, value: settings.neurons }, (neurons) => this.change({ neurons })).element,
        select("Activation", names("tanh", "relu", "sigmoid"), settings.activation, (activation) => this.change({ activation })).element,
        rateSlider(settings.lr, 0.3, (lr) => this.change({ lr })).element,
        slider({ label: "random start", min: 1, max: 20, step: 1, value: settings.seed }, (seed) => this.change({ seed })).element,
        select("Gradients by", [["own", "your Value"], ["chainrule", "chainrule's Value"]], settings.engine, (engine) => this.change({ engine })).element,
      ),
    );
  }

  // Training.

  private newRun(): Demonstration<State> {
    const given = () => {
      const { settings } = this;
      const hidden = Array.from({ length: settings.layers }, () => settings.neurons);
      return { ...settings, hidden, data: settings.data === "own" ? "moons" : settings.data, program: ownProgram(this.course, settings.engine) };
    };
    const show = (state: State & Work) => {
      this.whose.tell(state);
      this.note(state);
      this.draw();
    };
    return new Demonstration<State>("playground", given, show, (words) => (this.status.textContent = words));
  }

  private change(part: Partial<Settings>): void {
    const before = this.settings;
    const goesOn = !this.isEmpty && this.run.state !== null;
    this.settings = { ...before, ...part };
    this.dataSelect.value = this.settings.data;
    history.replaceState(history.state, "", `${location.hash.split("?")[0]}${address(this.settings, this.standard)}`);
    const changed = Object.keys(part) as (keyof Settings)[];
    const drawn = changed.includes("points") && this.settings.points.length > 0; // also the first one, among a set's
    if (goesOn && !this.isEmpty && (drawn || changed.every((name) => LIVE.includes(name)))) void this.run.adjust(this.adjustable);
    else void this.restart();
  }

  private get adjustable(): Partial<Settings> {
    const { lr, data, noise, points } = this.settings;
    return data === "own" ? { lr, points } : { lr, noise };
  }

  private async restart(): Promise<void> {
    this.run.destroy();
    this.run = this.newRun();
    this.play.textContent = "Train";
    this.status.textContent = "";
    this.history = [];
    this.whose.write();
    this.closeGraph();
    if (this.isEmpty) {
      this.status.textContent = "Add points of both kinds: choose ● or ▲, then click into the plane.";
      this.figures.replaceChildren();
      this.wiring.clear();
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
    const before = run.state?.steps ?? 0;
    // Fast steps are shown as time goes on a logarithmic scale: one by one at first, then ever more between two pictures.
    await run.play(({ steps, fast }) => (fast ? Math.min(before + MOST_FAST_STEPS - steps, 1 + (steps >> 4)) : before + MOST_STEPS - steps));
    if (run === this.run) this.play.textContent = "Train";
  }

  private async oneStep(): Promise<void> {
    if (!this.isEmpty) await this.run.advance(1);
  }

  private currentPoints(): Point[] {
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

  private async look(point: Point): Promise<void> {
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

  /** Adds the errors of this state to the curves. */
  private note({ steps, layers, points, test }: State): void {
    const { activation } = this.settings;
    if (this.history.at(-1)?.[0] === steps) this.history.pop(); // its points have changed
    this.history.push([steps, lossOf(layers, activation, points), test.length ? lossOf(layers, activation, test) : null]);
    const [learnt, kept] = (this.history.at(-1) as [number, number, number | null]).slice(1);
    const words = `After ${counted(steps, "step")}: ${learnt?.toFixed(3)} for the points it learns from${kept === null ? "" : `, ${kept?.toFixed(3)} for those kept back`}`;
    const drawn = this.history.filter(([step]) => step > 0); // a logarithm has no 0
    this.chart.set([0, 1, 2].map((column) => drawn.map((row) => row[column])), words);
  }

  private draw(): void {
    const { state } = this.run;
    const { activation } = this.settings;
    const context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    const { width, height } = this.canvas;
    const colours = coloursOf(this.element);
    context.clearRect(0, 0, width, height);
    if (state && !this.isEmpty) {
      const grid = overGrid(state.layers, activation, GRID, REACH).at(-1)?.[0] as Float32Array;
      paint(context, grid, GRID, colours, width);
      drawBoundary(context, grid, GRID, colours, width);
      this.wiring.show(state.layers, state.gradients, activation, colours);
      const accuracy = accuracyOf(state.layers, activation, state.points);
      const percent = (part: number) => `${Math.round(100 * part)}%`;
      const kept = state.test.length ? figure("of those kept back", percent(accuracyOf(state.layers, activation, state.test))) : [];
      this.figures.replaceChildren(...figure("steps", String(state.steps)), ...figure("loss for each point", state.loss === null ? "–" : state.loss.toFixed(4)), ...figure("right", percent(accuracy)), ...kept, ...(state.speed ? figure("steps a second", Math.round(state.speed).toLocaleString("en")) : []));
      this.element.dataset.steps = String(state.steps);
      this.element.dataset.accuracy = String(accuracy);
      for (const point of state.test) drawPoint(context, point, colours, width, { pale: true });
    }
    const points = this.settings.data === "own" ? this.settings.points : (state?.points ?? []);
    for (const point of points) drawPoint(context, point, colours, width, { chosen: this.chosen?.[0] === point[0] && this.chosen[1] === point[1] });
    if (this.cursor) drawCursor(context, this.cursor, width, colours.ink);
  }

  /** The plane and the wiring side by side, with the settings below, as a file. */
  private savePicture(): void {
    const { width } = this.canvas;
    const sheet = html("canvas", { width: String(2 * width), height: String(width + 60) }) as HTMLCanvasElement;
    const context = sheet.getContext("2d") as CanvasRenderingContext2D;
    const colours = coloursOf(this.element);
    context.fillStyle = `rgb(${colours.ground.join(" ")})`;
    context.fillRect(0, 0, sheet.width, sheet.height);
    context.drawImage(this.canvas, 0, 0);
    if (this.run.state && !this.isEmpty) this.wiring.drawInto(context, width, 0, width, width, colours);
    const { data, layers, neurons, activation, lr } = this.settings;
    const words = [data === "own" ? "own points" : data, `${layers} × ${neurons} ${activation}`, `rate ${lr}`, counted(this.run.state?.steps ?? 0, "step"), `loss ${this.run.state?.loss?.toFixed(4) ?? "–"}`];
    context.fillStyle = colours.ink;
    context.font = "22px system-ui, sans-serif";
    context.fillText(words.join("  ·  "), 20, width + 38);
    sheet.toBlob((file) => file && save(file, "playground.png"));
  }
}

function figure(words: string, value: string): (string | HTMLElement)[] {
  return [html("span", {}, `${words} `, html("b", {}, value))];
}

function distance([px, py]: Point, x: number, y: number): number {
  return Math.hypot(px - x, py - y);
}

function clamp(x: number): number {
  return Math.max(-REACH, Math.min(REACH, round(x)));
}

function round(x: number): number {
  return Math.round(100 * x) / 100;
}
