// A function, a point on it and a nudge: the slope that the nudge measures becomes the derivative as the nudge shrinks.

import type { Course } from "../course";
import { html, liveText, newId, slider, spell, svg } from "../elements";
import { formula, slopeOf } from "../formula";
import type { Live } from "../lesson";

const SIZE = { width: 640, height: 320, margin: 26 };
const SAMPLES = 200;

export function nudge(_: Course, attributes: Record<string, string>): Live {
  const text = attributes.function ?? "3*x**2 - 4*x + 5";
  const f = formula(text);
  const [low, high] = [Number(attributes.from ?? -3), Number(attributes.to ?? 4)];
  let x = Number(attributes.at ?? (low + high) / 2);
  let size = Number(attributes.nudge ?? 1);
  const ys = samples(low, high).map(f).filter(Number.isFinite);
  const [bottom, top] = [Math.min(...ys), Math.max(...ys)];
  const toX = (value: number) => SIZE.margin + ((value - low) / (high - low)) * (SIZE.width - 2 * SIZE.margin);
  const toY = (value: number) => SIZE.height - SIZE.margin - ((value - bottom) / (top - bottom || 1)) * (SIZE.height - 2 * SIZE.margin);
  const line = (style: string) => svg("line", { "stroke-width": 2, style });
  const dot = (style: string) => svg("circle", { r: 5.5, style });

  const curve = svg("path", { d: path(samples(low, high).map((each) => [toX(each), toY(f(each))])), fill: "none", "stroke-width": 2.2, style: "stroke: var(--data)" });
  const axis = svg("line", { x1: toX(low), x2: toX(high), y1: SIZE.height - SIZE.margin, y2: SIZE.height - SIZE.margin, style: "stroke: var(--rule-strong)" });
  const ticks = whole(low, high).flatMap((each) => [
    svg("line", { x1: toX(each), x2: toX(each), y1: SIZE.height - SIZE.margin, y2: SIZE.height - SIZE.margin + 5, style: "stroke: var(--rule-strong)" }),
    svg("text", { x: toX(each), y: SIZE.height - 6, "text-anchor": "middle" }, String(each).replace("-", "−")),
  ]);
  const tangent = line("stroke: var(--muted); stroke-dasharray: 5 5");
  const secant = line("stroke: var(--grad); stroke-width: 2.6");
  const rise = line("stroke: var(--grad)");
  const run = line("stroke: var(--grad)");
  const here = dot("fill: var(--data)");
  const there = dot("fill: var(--grad)");
  const picture = svg("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img" }, axis, ...ticks, curve, clipped(tangent, run, rise, secant), here, there);
  const reading = liveText("reading");

  const at = slider({ label: "x", min: low, max: high, step: (high - low) / 200, value: x, show: (n) => n.toFixed(2) }, (value) => ((x = value), show()));
  const by = slider({ label: "nudge h", min: -6, max: 0.3, step: 0.05, value: Math.log10(size), show: (n) => spell(Number((10 ** n).toPrecision(2))) }, (value) => ((size = Number((10 ** value).toPrecision(2))), show()));

  function show(): void {
    const [y, moved] = [f(x), f(x + size)];
    const [slope, exact] = [(moved - y) / size, slopeOf(f, x)];
    place(here, toX(x), toY(y));
    place(there, toX(x + size), toY(moved));
    const ends = (m: number): [number, number, number, number] => [low, y + m * (low - x), high, y + m * (high - x)];
    draw(tangent, ...ends(exact));
    draw(secant, ...ends(slope));
    draw(run, x, y, x + size, y);
    draw(rise, x + size, y, x + size, moved);
    const words = [`f(x) = ${spell(y)}. Nudge x by ${spell(size)}, and f moves by ${spell(moved - y)}:`, `the slope is ${spell(slope)}.`, `The derivative is ${spell(Number(exact.toPrecision(6)))}.`];
    picture.setAttribute("aria-label", `The curve of ${text}. At x = ${spell(x)} ${words.join(" ")}`);
    reading.replaceChildren(`${words[0]} `, html("b", { class: "grad-ink" }, words[1]), ` ${words[2]}`);
  }
  const draw = (element: SVGElement, x1: number, y1: number, x2: number, y2: number) => {
    for (const [name, value] of Object.entries({ x1: toX(x1), y1: toY(y1), x2: toX(x2), y2: toY(y2) })) element.setAttribute(name, String(value));
  };

  show();
  const caption = html("p", { class: "caption" }, "f(x) = ", html("code", {}, text));
  return { element: html("section", { class: "live widget", "data-widget": "nudge", "aria-label": "Nudge it" }, caption, html("div", { class: "plot" }, picture), html("div", { class: "sliders" }, at.element, by.element), reading) };
}

function samples(low: number, high: number): number[] {
  return Array.from({ length: SAMPLES + 1 }, (_, i) => low + ((high - low) * i) / SAMPLES);
}

/** Lines that end at the axis. */
function clipped(...lines: SVGElement[]): SVGElement {
  const id = newId("clip");
  const area = svg("clipPath", { id }, svg("rect", { width: SIZE.width, height: SIZE.height - SIZE.margin }));
  return svg("g", { "clip-path": `url(#${id})` }, area, ...lines);
}

/** The whole numbers of a range. */
function whole(low: number, high: number): number[] {
  return Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, i) => Math.ceil(low) + i);
}

function path(points: [number, number][]): string {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

function place(dot: SVGElement, x: number, y: number): void {
  dot.setAttribute("cx", String(x));
  dot.setAttribute("cy", String(y));
}
