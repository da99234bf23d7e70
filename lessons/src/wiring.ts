// The network as a picture: each neuron with what it says over the plane, and each weight as a line, wide if it is
// large, in the colour of its sign.

import { html, svg } from "./elements";
import { type Layers, overGrid } from "./network";
import { type Colours, REACH, paint } from "./plane";

const GRID = 22; // of a neuron's picture
const WIDEST = 6;
const EMPTY = "The network will be drawn here.";

interface Wire {
  line: SVGElement;
  from: [number, number];
  to: [number, number];
}

export class Wiring {
  readonly element = html("div", { class: "wiring", role: "img", "aria-label": EMPTY });
  private shape = "";
  private pictures: HTMLCanvasElement[][] = []; // inputs, hidden layers, output
  private wires: Wire[] = [];

  show(layers: Layers, activation: string, colours: Colours): void {
    this.build(layers);
    const grids = overGrid(layers, activation, GRID, REACH);
    const centred = grids.map((layer, depth) => (activation === "sigmoid" && depth < grids.length - 1 ? layer.map((grid) => grid.map((output) => 2 * output - 1)) : layer));
    [inputs(), ...centred].forEach((layer, depth) => layer.forEach((grid, i) => paint(this.pictures[depth][i].getContext("2d") as CanvasRenderingContext2D, grid, GRID, colours, GRID)));
    const weights = layers.flatMap((layer) => layer.flatMap((neuron) => neuron.slice(0, -1)));
    weights.forEach((weight, i) => {
      const { line } = this.wires[i];
      line.setAttribute("stroke-width", Math.min(WIDEST, 0.4 + 2 * Math.abs(weight)).toFixed(2));
      line.setAttribute("class", weight < 0 ? "below" : "above");
    });
    const sizes = layers.slice(0, -1).map((layer) => layer.length);
    const largest = Math.max(...weights.map(Math.abs));
    this.element.setAttribute("aria-label", `The network: two inputs, ${sizes.join(" and ")} hidden neurons, one output. Its largest weight is ${largest.toFixed(1)}.`);
  }

  clear(): void {
    this.shape = "";
    this.element.replaceChildren();
    this.element.removeAttribute("style");
    this.element.setAttribute("aria-label", EMPTY);
  }

  /** Draws the same into a picture. */
  drawInto(context: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, { one, other }: Colours): void {
    for (const { line, from, to } of this.wires) {
      context.strokeStyle = `rgb(${(line.getAttribute("class") === "below" ? other : one).join(" ")} / 60%)`;
      context.lineWidth = Number(line.getAttribute("stroke-width"));
      context.beginPath();
      context.moveTo(left + from[0] * width, top + from[1] * height);
      context.lineTo(left + to[0] * width, top + to[1] * height);
      context.stroke();
    }
    const side = Math.min(44, (0.85 * height) / Math.max(...this.pictures.map((layer) => layer.length)));
    this.pictures.forEach((layer, depth) =>
      layer.forEach((picture, i) => {
        const [x, y] = this.place(depth, i);
        context.drawImage(picture, left + x * width - side / 2, top + y * height - side / 2, side, side);
      }),
    );
  }

  private build(layers: Layers): void {
    const shape = layers.map((layer) => layer.length).join();
    if (shape === this.shape) return;
    this.shape = shape;
    const sizes = [2, ...layers.map((layer) => layer.length)];
    this.pictures = sizes.map((size) => Array.from({ length: size }, () => html("canvas", { width: String(GRID), height: String(GRID) }) as HTMLCanvasElement));
    this.wires = layers.flatMap((layer, depth) =>
      layer.flatMap((neuron, i) =>
        neuron.slice(0, -1).map((_, k): Wire => {
          const [from, to] = [this.place(depth, k), this.place(depth + 1, i)];
          return { line: svg("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }), from, to };
        }),
      ),
    );
    this.element.style.setProperty("--most", String(Math.max(...sizes)));
    const rows = this.pictures.map((layer, depth) => {
      layer.forEach((picture, i) => {
        const [x, y] = this.place(depth, i);
        picture.style.left = `${100 * x}%`;
        picture.style.top = `${100 * y}%`;
      });
      return html("div", { class: depth === 0 ? "inputs" : depth === layers.length ? "output" : "neuron-row" }, ...layer);
    });
    this.element.replaceChildren(svg("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "stroke-opacity": Math.max(0.25, Math.min(0.6, 60 / this.wires.length)).toFixed(2) }, ...this.wires.map(({ line }) => line)), ...rows);
  }

  /** Where a neuron stands, in parts of the picture's width and height. */
  private place(depth: number, i: number): [number, number] {
    return [(depth + 0.5) / this.pictures.length, (i + 0.5) / this.pictures[depth].length];
  }
}

/** The inputs themselves, over the plane. */
function inputs(): Float32Array[] {
  const over = (at: (row: number, column: number) => number) => Float32Array.from({ length: GRID * GRID }, (_, k) => at(Math.floor(k / GRID), k % GRID));
  return [over((_, column) => (4 * column) / GRID - 2), over((row) => 2 - (4 * row) / GRID)];
}
