// The plane of the playground: what a network says over it, the line between the classes, and the points.

import { colour } from "./elements";
import { zeroLines } from "./network";
import type { Point } from "./playground_settings";

export const REACH = 2; // it is drawn from -2 to 2

export interface Colours {
  one: number[];
  other: number[];
  ground: number[];
  ink: string;
}

/** The page's colours, as numbers. */
export function coloursOf(element: HTMLElement): Colours {
  return { one: channels(colour("data", element)), other: channels(colour("grad", element)), ground: channels(colour("sheet", element)), ink: colour("ink", element) };
}

/** A grid of numbers as colours: one class above zero, the other below, paler near zero. */
export function paint(context: CanvasRenderingContext2D, grid: Float32Array, size: number, colours: Colours, width: number): void {
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

/** The line on which the network is undecided. */
export function drawBoundary(context: CanvasRenderingContext2D, grid: Float32Array, size: number, { ink }: Colours, width: number): void {
  context.strokeStyle = ink;
  context.lineWidth = 2.5;
  context.beginPath();
  const scale = width / size;
  for (const [x1, y1, x2, y2] of zeroLines(grid, size)) {
    context.moveTo((x1 + 0.5) * scale, (y1 + 0.5) * scale);
    context.lineTo((x2 + 0.5) * scale, (y2 + 0.5) * scale);
  }
  context.stroke();
}

/** A circle or a triangle; one of the test is pale. */
export function drawPoint(context: CanvasRenderingContext2D, [x, y, label]: Point, colours: Colours, width: number, style: { chosen?: boolean; pale?: boolean } = {}): void {
  const [px, py] = place(x, y, width);
  const size = style.chosen ? 13 : style.pale ? 6 : 8;
  context.globalAlpha = style.pale ? 0.5 : 1;
  context.beginPath();
  if (label > 0) context.arc(px, py, size * 0.85, 0, 2 * Math.PI);
  else {
    context.moveTo(px, py - size);
    context.lineTo(px + size, py + size * 0.8);
    context.lineTo(px - size, py + size * 0.8);
    context.closePath();
  }
  context.fillStyle = `rgb(${(label > 0 ? colours.one : colours.other).join(" ")})`;
  context.strokeStyle = style.chosen ? colours.ink : `rgb(${colours.ground.join(" ")})`;
  context.lineWidth = style.chosen ? 3.5 : 1.8;
  context.fill();
  context.stroke();
  context.globalAlpha = 1;
}

export function drawCursor(context: CanvasRenderingContext2D, [x, y]: [number, number], width: number, ink: string): void {
  const [px, py] = place(x, y, width);
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(px - 16, py);
  context.lineTo(px + 16, py);
  context.moveTo(px, py - 16);
  context.lineTo(px, py + 16);
  context.stroke();
}

function place(x: number, y: number, width: number): [number, number] {
  return [((x / REACH + 1) * width) / 2, ((1 - y / REACH) * width) / 2];
}

function channels(colour: string): number[] {
  const numbers = colour.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
  return colour.startsWith("color(") ? numbers.slice(-3).map((n) => 255 * n) : numbers.slice(0, 3);
}
