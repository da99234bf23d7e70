// The lines of a drawn network: where its neurons stand, and a line for each weight, wide if its number is large, in
// the colour of the number's sign.

import { html, newId, svg } from "./elements";
import type { Colours } from "./plane";

export const WIDEST = 6;
const THINNEST = 0.4;
export const CROWD = 100; // lines; if there are more, they are thinner

export type Shown = "weights" | "gradients"; // what the lines stand for
export type Numbers = (number | null)[]; // null: there is none, or it is beyond all bounds

export interface Wire {
  line: SVGElement;
  depth: number; // of the layer it leads to, from 0
  to: number; // neuron of that layer
  from: number; // neuron of the layer before it, or input
}

export class Wires {
  readonly all: Wire[]; // by layer, neuron and weight, as Python lists them
  readonly element: SVGElement;

  /** `sizes` counts the inputs, and the neurons of each layer. */
  constructor(readonly sizes: number[]) {
    this.all = sizes.slice(1).flatMap((size, depth) =>
      range(size).flatMap((to) =>
        range(sizes[depth]).map((from): Wire => {
          const [[x1, y1], [x2, y2]] = [this.place(depth, from), this.place(depth + 1, to)];
          return { line: svg("line", { x1, y1, x2, y2 }), depth, to, from };
        }),
      ),
    );
    const opacity = Math.max(0.25, Math.min(0.6, 60 / this.all.length)).toFixed(2);
    this.element = svg("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "stroke-opacity": opacity, "aria-hidden": "true" }, ...this.all.map(({ line }) => line));
  }

  /** Where a neuron stands, in parts of the picture's width and height; inputs are at depth 0. */
  place(depth: number, i: number): [number, number] {
    return [(depth + 0.5) / this.sizes.length, (i + 0.5) / this.sizes[depth]];
  }

  /** Gives each line the width and colour of its number. */
  show(numbers: Numbers, width: (size: number) => number = this.relativeTo(largest(numbers))): void {
    this.all.forEach(({ line }, i) => {
      const number = numbers[i] ?? null;
      line.setAttribute("stroke-width", Math.max(THINNEST, Math.min(WIDEST, number === null ? 0 : width(Math.abs(number)))).toFixed(2));
      line.classList.remove("above", "below");
      if (number !== null) line.classList.add(number < 0 ? "below" : "above");
    });
  }

  private relativeTo(most: number): (size: number) => number {
    const widest = WIDEST * Math.min(1, Math.sqrt(CROWD / this.all.length));
    return (size) => (most > 0 ? (widest * size) / most : 0);
  }

  /** Draws the lines into a picture. */
  drawInto(context: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, { one, other }: Colours): void {
    for (const { line, depth, to, from } of this.all) {
      const [[x1, y1], [x2, y2]] = [this.place(depth, from), this.place(depth + 1, to)];
      context.strokeStyle = `rgb(${(line.classList.contains("below") ? other : one).join(" ")} / 60%)`;
      context.lineWidth = Number(line.getAttribute("stroke-width"));
      context.beginPath();
      context.moveTo(left + x1 * width, top + y1 * height);
      context.lineTo(left + x2 * width, top + y2 * height);
      context.stroke();
    }
  }
}

/** The size of the largest number. */
export function largest(numbers: Numbers): number {
  return numbers.reduce<number>((most, number) => Math.max(most, Math.abs(number ?? 0)), 0);
}

/** The switch between weights and gradients. */
export function shownSwitch(act: (shown: Shown) => void): HTMLElement {
  const name = newId("shown");
  const radio = (shown: Shown) => {
    const input = html("input", { type: "radio", name, value: shown, ...(shown === "weights" && { checked: "" }) });
    input.addEventListener("change", () => act(shown));
    return html("label", {}, input, ` ${shown}`);
  };
  return html("div", { class: "bar shown", role: "group", "aria-label": "What the lines show" }, "Show", radio("weights"), radio("gradients"));
}

function range(length: number): number[] {
  return Array.from({ length }, (_, i) => i);
}
