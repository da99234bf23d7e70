// Curves drawn by uPlot in the page's colours, with a description for screen readers.

import uPlot from "uplot";
import { colour, html } from "./elements";

const HEIGHT = 240;
const NARROW = 480;

export interface Curve {
  label: string;
  colour: string; // of the style sheet, such as "data"
  dashed?: boolean;
  faint?: boolean;
  point?: boolean; // single points, not a line
}

export interface ChartOptions {
  label: string;
  x: string;
  y: string;
  curves: Curve[];
  logX?: boolean;
  logY?: boolean;
  height?: number;
}

export class Chart {
  readonly element: HTMLElement;
  private readonly place = html("div", { class: "chart", role: "img" });
  private plot: uPlot | null = null;
  private data: uPlot.AlignedData;
  private readonly resizing: ResizeObserver;
  private readonly redraw = () => this.build();

  constructor(private readonly options: ChartOptions) {
    this.data = [[], ...options.curves.map(() => [])];
    const named = options.curves.filter((curve, i) => options.curves.findIndex((other) => other.label === curve.label) === i);
    const legend = html("ul", { class: "legend" }, ...named.map(({ label, colour: name, dashed, point }) => html("li", {}, html("i", { style: `border-color: var(--${name})`, class: point ? "point" : dashed ? "dashed" : "line" }), label)));
    this.element = html("div", {}, legend, this.place);
    this.place.setAttribute("aria-label", options.label);
    this.place.style.minHeight = `${options.height ?? HEIGHT}px`;
    this.resizing = new ResizeObserver(() => this.fit());
    this.resizing.observe(this.place);
    addEventListener("themechange", this.redraw);
  }

  /** Draws the curves; `data` has x first. `words` describes what they show. */
  set(data: (number | null)[][], words: string): void {
    this.data = data as uPlot.AlignedData;
    this.place.setAttribute("aria-label", `${this.options.label}. ${words}`);
    if (this.plot) this.plot.setData(this.data);
    else this.build();
  }

  destroy(): void {
    this.resizing.disconnect();
    removeEventListener("themechange", this.redraw);
    this.plot?.destroy();
  }

  private fit(): void {
    const width = this.place.clientWidth;
    if (!this.plot) this.build();
    else if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
  }

  private build(): void {
    const width = this.place.clientWidth;
    if (width === 0) return;
    this.plot?.destroy();
    const { curves, logX, logY, height = HEIGHT } = this.options;
    const [muted, rule] = [colour("muted", this.place), colour("rule", this.place)];
    const font = "12px system-ui, sans-serif";
    const axis = (label: string, log: boolean, size: number): uPlot.Axis => ({
      label,
      labelFont: font,
      labelSize: 22,
      font,
      size,
      stroke: muted,
      grid: { stroke: rule, width: 1, ...(log && { filter: decades }) },
      ticks: { stroke: rule, width: 1, ...(log && { filter: decades }) },
      ...(log && { filter: decades }),
      values: (_, splits) => splits.map((n) => (n === null ? null : log ? n.toExponential(0).replace("e+", "e") : String(Number(n.toPrecision(6))))),
    });
    this.plot = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: logY ? 3 : 1 } },
        axes: [axis(this.options.x, Boolean(logX), 34), axis(this.options.y, Boolean(logY), 54)],
        series: [
          {},
          ...curves.map((curve) => ({
            label: curve.label,
            stroke: curve.faint ? faint(colour(curve.colour, this.place)) : colour(curve.colour, this.place),
            width: curve.faint ? 1.2 : 2.2,
            dash: curve.dashed ? [7, 5] : undefined,
            points: curve.point ? { show: true, size: 11, fill: colour(curve.colour, this.place) } : { show: false },
          })),
        ],
      },
      this.data,
      this.place,
    );
  }
}

/** Labels every second power of ten on a logarithmic axis; on a narrow one, every fourth. */
function decades(plot: uPlot, splits: number[], axis: number): (number | null)[] {
  const step = axis === 0 && plot.width < NARROW ? 4 : 2;
  return splits.map((n) => (Math.abs((Math.log10(n) / step) % 1) < 1e-9 ? n : null));
}

function faint(colour: string): string {
  return colour.replace(/^rgb\(([^)]*)\)/, "rgba($1, 0.65)");
}
