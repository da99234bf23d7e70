// A trained network, computed here for drawing: its parameters come from Python, its outputs fill pictures.

export type Layers = number[][][]; // layer, neuron, weights and then the bias

const ACTIVATIONS: Record<string, (x: number) => number> = {
  tanh: Math.tanh,
  relu: (x) => Math.max(0, x),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
};

/** The output of every neuron for one point, layer by layer; the last layer is the score. */
export function outputsOf(layers: Layers, activation: string, point: [number, number]): number[][] {
  const activate = ACTIVATIONS[activation] ?? ACTIVATIONS.tanh;
  let inputs: number[] = point;
  return layers.map((layer, depth) => {
    inputs = layer.map((neuron) => {
      let sum = neuron[neuron.length - 1];
      for (let i = 0; i < inputs.length; i++) sum += neuron[i] * inputs[i];
      return depth === layers.length - 1 ? Math.tanh(sum) : activate(sum); // as in `Program.network`
    });
    return inputs;
  });
}

/** The outputs of every neuron over a square grid of points, row by row from the top: layer, neuron, place. */
export function overGrid(layers: Layers, activation: string, size: number, reach: number): Float32Array[][] {
  const grids = layers.map((layer) => layer.map(() => new Float32Array(size * size)));
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      const point: [number, number] = [reach * ((2 * (column + 0.5)) / size - 1), reach * (1 - (2 * (row + 0.5)) / size)];
      outputsOf(layers, activation, point).forEach((outputs, depth) => outputs.forEach((output, i) => (grids[depth][i][row * size + column] = output)));
    }
  }
  return grids;
}

export function accuracyOf(layers: Layers, activation: string, points: number[][]): number {
  const right = points.filter(([x, y, label]) => outputsOf(layers, activation, [x, y]).at(-1)?.[0] as number > 0 === label > 0);
  return right.length / Math.max(1, points.length);
}

/** The mean squared error of the score for points with a class, 1 or -1. */
export function lossOf(layers: Layers, activation: string, points: number[][]): number {
  const squares = points.map(([x, y, label]) => ((outputsOf(layers, activation, [x, y]).at(-1)?.[0] as number) - label) ** 2);
  return squares.reduce((sum, square) => sum + square, 0) / Math.max(1, points.length);
}

/** The lines where a grid is zero, in its own coordinates: marching squares. */
export function zeroLines(grid: Float32Array, size: number): [number, number, number, number][] {
  const lines: [number, number, number, number][] = [];
  const cross = (a: number, b: number) => a / (a - b);
  for (let row = 0; row + 1 < size; row++) {
    for (let column = 0; column + 1 < size; column++) {
      const at = row * size + column;
      const [nw, ne, sw, se] = [grid[at], grid[at + 1], grid[at + size], grid[at + size + 1]];
      const ends: [number, number][] = [];
      if (nw > 0 !== ne > 0) ends.push([column + cross(nw, ne), row]);
      if (ne > 0 !== se > 0) ends.push([column + 1, row + cross(ne, se)]);
      if (sw > 0 !== se > 0) ends.push([column + cross(sw, se), row + 1]);
      if (nw > 0 !== sw > 0) ends.push([column, row + cross(nw, sw)]);
      for (let i = 0; i + 1 < ends.length; i += 2) lines.push([...ends[i], ...ends[i + 1]]);
    }
  }
  return lines;
}
