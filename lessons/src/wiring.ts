// The playground's network as a picture: each neuron with what it says over the plane, and each weight as a line, by its
// own size or by that of its gradient.

import { html, spell } from "./elements";
import { type Layers, overGrid } from "./network";
import { type Colours, REACH, paint } from "./plane";
import { type Numbers, type Shown, WIDEST, Wires, largest, shownSwitch } from "./wires";

const GRID = 22; // of a neuron's picture
const EMPTY = "The network will be drawn here.";

export type Gradients = Numbers[][]; // of the loss in the last step: layer, neuron, weights and then the bias

export class Wiring {
  readonly element: HTMLElement;
  private readonly drawing = html("div", { class: "wiring", role: "img", "aria-label": EMPTY });
  private readonly scale = html("p", { class: "caption scale" });
  private pictures: HTMLCanvasElement[][] = []; // inputs, hidden layers, output
  private wires = new Wires([]);
  private shown: Shown = "weights";
  private numbers: Record<Shown, Numbers> = { weights: [], gradients: [] };

  constructor() {
    const choice = shownSwitch((shown) => {
      this.shown = shown;
      this.showWires();
    });
    this.element = html("div", {}, choice, this.drawing, this.scale);
  }

  show(layers: Layers, gradients: Gradients, activation: string, colours: Colours): void {
    this.build(layers);
    const grids = overGrid(layers, activation, GRID, REACH);
    const centred = grids.map((layer, depth) => (activation === "sigmoid" && depth < grids.length - 1 ? layer.map((grid) => grid.map((output) => 2 * output - 1)) : layer));
    [inputs(), ...centred].forEach((layer, depth) => layer.forEach((grid, i) => paint(this.pictures[depth][i].getContext("2d") as CanvasRenderingContext2D, grid, GRID, colours, GRID)));
    const [weights, onWires] = [layers, gradients].map((numbers) => numbers.flatMap((layer) => layer.flatMap((neuron) => neuron.slice(0, -1))));
    this.numbers = { weights, gradients: onWires };
    this.showWires();
    const sizes = layers.slice(0, -1).map((layer) => layer.length);
    this.drawing.setAttribute("aria-label", `The network: two inputs, ${sizes.join(" and ")} hidden neurons, one output. Its largest weight is ${largest(weights).toFixed(1)}.`);
  }

  private showWires(): void {
    const { weights, gradients } = this.numbers;
    const signs = "Solid lines are positive, dashed lines negative.";
    if (this.shown === "weights") {
      this.wires.show(weights, (size) => 0.4 + 2 * size);
      this.scale.textContent = weights.length ? `The largest weight is ${spell(Number(largest(weights).toPrecision(3)))}; from ${((WIDEST - 0.4) / 2).toFixed(1)} on, lines are no wider. ${signs}` : "";
      return;
    }
    this.wires.show(gradients);
    const known = gradients.some((gradient) => gradient !== null);
    this.scale.textContent = known ? `The widest line is a gradient of size ${spell(Number(largest(gradients).toPrecision(3)))}: of the loss of all points, in the last step. ${signs}` : "There are no gradients yet: take a step.";
  }

  clear(): void {
    this.wires = new Wires([]);
    this.numbers = { weights: [], gradients: [] };
    this.showWires();
    this.drawing.replaceChildren();
    this.drawing.removeAttribute("style");
    this.drawing.setAttribute("aria-label", EMPTY);
    this.scale.textContent = "";
  }

  /** Draws the same into a picture. */
  drawInto(context: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, colours: Colours): void {
    this.wires.drawInto(context, left, top, width, height, colours);
    const side = Math.min(44, (0.85 * height) / Math.max(...this.pictures.map((layer) => layer.length)));
    this.pictures.forEach((layer, depth) =>
      layer.forEach((picture, i) => {
        const [x, y] = this.wires.place(depth, i);
        context.drawImage(picture, left + x * width - side / 2, top + y * height - side / 2, side, side);
      }),
    );
  }

  private build(layers: Layers): void {
    const sizes = [2, ...layers.map((layer) => layer.length)];
    if (sizes.join() === this.wires.sizes.join()) return;
    this.wires = new Wires(sizes);
    this.pictures = sizes.map((size) => Array.from({ length: size }, () => html("canvas", { width: String(GRID), height: String(GRID) }) as HTMLCanvasElement));
    this.drawing.style.setProperty("--most", String(Math.max(...sizes)));
    const rows = this.pictures.map((layer, depth) => {
      layer.forEach((picture, i) => {
        const [x, y] = this.wires.place(depth, i);
        picture.style.left = `${100 * x}%`;
        picture.style.top = `${100 * y}%`;
      });
      return html("div", { class: depth === 0 ? "inputs" : depth === layers.length ? "output" : "neuron-row" }, ...layer);
    });
    this.drawing.replaceChildren(this.wires.element, ...rows);
  }
}

/** The inputs themselves, over the plane. */
function inputs(): Float32Array[] {
  const over = (at: (row: number, column: number) => number) => Float32Array.from({ length: GRID * GRID }, (_, k) => at(Math.floor(k / GRID), k % GRID));
  return [over((_, column) => (4 * column) / GRID - 2), over((row) => 2 - (4 * row) / GRID)];
}
