// @ts-check
// A layered drawing of an acyclic graph, left to right, after Sugiyama: layers, order within layers, coordinates.
//
// Every node stands one layer left of its leftmost user, so that leaves stay close to where they are used. Edges of a
// node that skip layers share a lane there, laid out like a thin node, and branch off it one by one. Sweeps improve the
// order within layers until edges hardly cross; then each layer moves as close to its neighbours as the order allows,
// which is an isotonic regression with an exact solution.

/**
 * @typedef {{ x: number, y: number, width: number, height: number }} Box  its centre and size
 * @typedef {{ from: number, to: number, operand: number, path: string }} Edge
 * @typedef {{ width: number, height: number, boxes: Box[], edges: Edge[] }} Layout
 * @typedef {{ width: number, height: number }} Size
 * @typedef {Size & { node: number, layer: number, left: Link[], right: Link[], place: number, y: number }} Slot
 * @typedef {{ slot: Slot, weight: number }} Link
 * @typedef {{ from: number, to: number, operand: number, via: Slot[] }} Route
 */

const LAYER_GAP = 72;
const NODE_GAP = 32;
const LANE_HEIGHT = 2;
const BOW = 20; // how far parallel edges bend apart
const PATIENCE = 4; // sweeps without improvement
const PLACE_SWEEPS = 60;

/**
 * @param {{ operands: number[] }[]} nodes  oldest first: operands stand before their users
 * @param {{ width: number, height: number }[]} sizes
 * @returns {Layout}
 */
export function layoutGraph(nodes, sizes) {
  const layerOf = layersOf(nodes);
  const slots = nodes.map((_, node) => newSlot(node, layerOf[node], sizes[node]));
  const reach = [...layerOf];
  nodes.forEach((node, to) => node.operands.forEach((from) => (reach[from] = Math.max(reach[from], layerOf[to]))));
  const lanes = slots.map((slot, node) => lanesFrom(slot, reach[node]));
  const routes = nodes.flatMap((node, to) =>
    node.operands.map((from, operand) => ({
      from,
      to,
      operand,
      via: lanes[from].slice(0, layerOf[to] - layerOf[from] - 1),
    })),
  );
  for (const { from, to, via } of routes) link(via[via.length - 1] ?? slots[from], slots[to]);
  const layers = bestOrder(firstOrder(nodes, slots, lanes));
  placeVertically(layers);

  const columns = columnsOf(layers);
  const boxes = slots.map(({ width, height, layer, y }) => ({ x: columns[layer].centre, y, width, height }));
  const edges = routes.map((route) => ({ ...route, path: pathOf(route, routes, slots, columns) }));
  const last = columns[columns.length - 1];
  return { width: last.centre + last.width / 2, height: bottomOf(layers), boxes, edges };
}

/**
 * The same from top to bottom, for narrow windows: the drawing of turned boxes, turned back.
 * @param {{ operands: number[] }[]} nodes
 * @param {{ width: number, height: number }[]} sizes
 * @returns {Layout}
 */
export function layoutDownward(nodes, sizes) {
  const turned = layoutGraph(
    nodes,
    sizes.map(({ width, height }) => ({ width: height, height: width })),
  );
  return {
    width: turned.height,
    height: turned.width,
    boxes: turned.boxes.map(({ x, y, width, height }) => ({ x: y, y: x, width: height, height: width })),
    edges: turned.edges.map((edge) => ({ ...edge, path: turnPath(edge.path) })),
  };
}

/** The path with x and y exchanged: in pairs, and in horizontal lines. */
function turnPath(/** @type {string} */ path) {
  return path.replace(/(-?[\d.]+) (-?[\d.]+)/g, "$2 $1").replaceAll("H", "V");
}

/** The layer of each node: 0 is leftmost, the result is in the last. */
function layersOf(/** @type {{ operands: number[] }[]} */ nodes) {
  const fromRight = nodes.map(() => 0);
  for (let i = nodes.length - 1; i >= 0; i--) {
    for (const operand of nodes[i].operands) fromRight[operand] = Math.max(fromRight[operand], fromRight[i] + 1);
  }
  const most = Math.max(...fromRight);
  return fromRight.map((distance) => most - distance);
}

/** @returns {Slot} */
function newSlot(
  /** @type {number} */ node,
  /** @type {number} */ layer,
  /** @type {{ width: number, height: number }} */ size,
) {
  return { node, layer, width: size.width, height: size.height, left: [], right: [], place: 0, y: 0 };
}

/** A lane in each of the layers between a node and its rightmost user, linked from left to right. */
function lanesFrom(/** @type {Slot} */ from, /** @type {number} */ until) {
  const lanes = [];
  let last = from;
  for (let layer = from.layer + 1; layer < until; layer++) {
    const lane = newSlot(-1, layer, { width: 0, height: LANE_HEIGHT });
    link(last, lane);
    lanes.push(lane);
    last = lane;
  }
  return lanes;
}

function link(/** @type {Slot} */ left, /** @type {Slot} */ right) {
  const lanes = Number(left.node < 0) + Number(right.node < 0);
  const weight = [1, 3, 12][lanes]; // long edges should be straight
  left.right.push({ slot: right, weight });
  right.left.push({ slot: left, weight });
}

/**
 * Layers filled from the result back, operands from top to bottom in written order.
 * @param {{ operands: number[] }[]} nodes
 * @param {Slot[]} slots
 * @param {Slot[][]} lanes
 */
function firstOrder(nodes, slots, lanes) {
  /** @type {Slot[][]} */
  const layers = Array.from({ length: Math.max(...slots.map((slot) => slot.layer)) + 1 }, () => []);
  const seen = new Set();
  const pending = [nodes.length - 1];
  while (pending.length > 0) {
    const node = /** @type {number} */ (pending.pop());
    if (seen.has(node)) continue;
    seen.add(node);
    for (const slot of [slots[node], ...lanes[node]]) layers[slot.layer].push(slot);
    pending.push(...nodes[node].operands.toReversed());
  }
  layers.forEach(number);
  return layers;
}

function number(/** @type {Slot[]} */ layer) {
  layer.forEach((slot, place) => (slot.place = place));
}

/** The order with the fewest crossings that sweeping finds. */
function bestOrder(/** @type {Slot[][]} */ layers) {
  let best = layers.map((layer) => [...layer]);
  let fewest = crossings(layers);
  for (let sweep = 0, idle = 0; idle < PATIENCE && fewest > 0; sweep++, idle++) {
    const side = sweep % 2 ? "left" : "right";
    for (const layer of sweep % 2 ? layers : layers.toReversed()) sortByNeighbours(layer, side);
    for (const layer of layers) swapNeighbours(layer);
    const found = crossings(layers);
    if (found >= fewest) continue;
    [fewest, idle] = [found, 0];
    best = layers.map((layer) => [...layer]);
  }
  best.forEach(number);
  return best;
}

/** @param {Slot[]} layer @param {"left" | "right"} side */
function sortByNeighbours(layer, side) {
  const wish = new Map(
    layer.map((slot) => [slot, slot[side].length ? mean(slot[side].map((to) => to.slot.place)) : slot.place]),
  );
  layer.sort((a, b) => /** @type {number} */ (wish.get(a)) - /** @type {number} */ (wish.get(b)));
  number(layer);
}

/** Swap neighbours in a layer as long as that removes crossings. */
function swapNeighbours(/** @type {Slot[]} */ layer) {
  for (let improved = true, rounds = 0; improved && rounds < layer.length; rounds++) {
    improved = false;
    for (let i = 0; i + 1 < layer.length; i++) {
      const [a, b] = [layer[i], layer[i + 1]];
      if (crossingsOf(b, a) >= crossingsOf(a, b)) continue;
      [layer[i], layer[i + 1]] = [b, a];
      number(layer);
      improved = true;
    }
  }
}

/** How often the edges of two slots cross if `a` is above `b`. */
function crossingsOf(/** @type {Slot} */ a, /** @type {Slot} */ b) {
  let total = 0;
  for (const side of /** @type {const} */ (["left", "right"])) {
    for (const one of a[side]) for (const other of b[side]) if (one.slot.place > other.slot.place) total++;
  }
  return total;
}

function crossings(/** @type {Slot[][]} */ layers) {
  let total = 0;
  for (const layer of layers) {
    for (let i = 0; i < layer.length; i++) {
      for (let j = i + 1; j < layer.length; j++) {
        for (const one of layer[i].right)
          for (const other of layer[j].right) if (one.slot.place > other.slot.place) total++;
      }
    }
  }
  return total;
}

/** Give every slot a `y`: neighbours across layers close together, neighbours within a layer apart. */
function placeVertically(/** @type {Slot[][]} */ layers) {
  for (const layer of layers)
    settle(
      layer,
      layer.map(() => 0),
      layer.map(() => 1),
    );
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep++) {
    const side = sweep % 2 ? "left" : "right";
    for (const layer of sweep % 2 ? layers : layers.toReversed()) {
      const links = layer.map((slot) => pulls(slot, side));
      const weights = links.map((list) => list.reduce((sum, to) => sum + to.weight, 0));
      const wishes = links.map(
        (list, i) => list.reduce((sum, to) => sum + to.weight * to.slot.y, 0) / (weights[i] || 1),
      );
      settle(layer, wishes, weights);
    }
  }
  const top = Math.min(...layers.flat().map((slot) => slot.y - slot.height / 2));
  for (const slot of layers.flat()) slot.y -= top;
}

/** What pulls a slot: a lane continues straight from the side that the sweep comes from, a node is pulled from both. */
function pulls(/** @type {Slot} */ slot, /** @type {"left" | "right"} */ side) {
  const next = slot[side].find((to) => to.slot.node < 0);
  return slot.node < 0 && next ? [next] : [...slot.left, ...slot.right];
}

/**
 * Move a layer as close to `wishes` as order and gaps allow: isotonic regression, by pooling adjacent violators.
 * @param {Slot[]} layer
 * @param {number[]} wishes
 * @param {number[]} weights
 */
function settle(layer, wishes, weights) {
  const offsets = [0];
  for (let i = 1; i < layer.length; i++) {
    offsets.push(offsets[i - 1] + (layer[i - 1].height + layer[i].height) / 2 + NODE_GAP);
  }
  /** @type {{ wish: number, weight: number, size: number }[]} */
  const blocks = [];
  layer.forEach((_, i) => {
    let block = { wish: wishes[i] - offsets[i], weight: weights[i] || 1, size: 1 };
    while (blocks.length > 0 && blocks[blocks.length - 1].wish > block.wish) {
      const above = /** @type {typeof block} */ (blocks.pop());
      const weight = above.weight + block.weight;
      block = {
        wish: (above.wish * above.weight + block.wish * block.weight) / weight,
        weight,
        size: above.size + block.size,
      };
    }
    blocks.push(block);
  });
  let i = 0;
  for (const block of blocks) for (let k = 0; k < block.size; k++, i++) layer[i].y = block.wish + offsets[i];
}

function columnsOf(/** @type {Slot[][]} */ layers) {
  let x = 0;
  return layers.map((layer) => {
    const width = Math.max(...layer.map((slot) => slot.width));
    const column = { centre: x + width / 2, width };
    x += width + LAYER_GAP;
    return column;
  });
}

function bottomOf(/** @type {Slot[][]} */ layers) {
  return Math.max(...layers.flat().map((slot) => slot.y + slot.height / 2));
}

/**
 * A smooth line: horizontal where it passes a layer, curved in the gaps.
 * @param {Route} edge
 * @param {Route[]} all
 * @param {Slot[]} slots
 * @param {{ centre: number, width: number }[]} columns
 */
function pathOf(edge, all, slots, columns) {
  const [from, to] = [slots[edge.from], slots[edge.to]];
  const arriving = all.filter((other) => other.to === edge.to);
  const lastY = (/** @type {typeof edge} */ e) => (e.via.length ? e.via[e.via.length - 1] : slots[e.from]).y;
  const port = arriving.sort((a, b) => lastY(a) - lastY(b) || a.operand - b.operand).indexOf(edge);
  const parallel = arriving.filter((other) => other.from === edge.from);
  const leaveY = from.y + spread(parallel.indexOf(edge), parallel.length, 14);
  const bow = spread(parallel.indexOf(edge), parallel.length, 2 * BOW);
  const arriveY = to.y + spread(port, arriving.length, 14);

  let [x, y] = [columns[from.layer].centre + from.width / 2, leaveY];
  let path = `M${round(x)} ${round(y)}`;
  const curveTo = (/** @type {number} */ nextX, /** @type {number} */ nextY) => {
    const middle = round((x + nextX) / 2);
    path += `C${middle} ${round(y + bow)} ${middle} ${round(nextY + bow)} ${round(nextX)} ${round(nextY)}`;
    [x, y] = [nextX, nextY];
  };
  for (const lane of edge.via) {
    const { centre, width } = columns[lane.layer];
    curveTo(centre - width / 2, lane.y);
    x = centre + width / 2;
    path += `H${round(x)}`;
  }
  curveTo(columns[to.layer].centre - to.width / 2, arriveY);
  return path;
}

/** The offset of item i of n, one step apart and centred at 0, together no wider than two steps. */
function spread(/** @type {number} */ i, /** @type {number} */ n, /** @type {number} */ step) {
  return (i - (n - 1) / 2) * Math.min(step, (2 * step) / n);
}

function mean(/** @type {number[]} */ numbers) {
  return numbers.reduce((sum, n) => sum + n, 0) / numbers.length;
}

function round(/** @type {number} */ n) {
  return Math.round(n * 10) / 10;
}
