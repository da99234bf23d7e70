// @ts-check
// The graph as a picture: a card for each node with its data and grad, and what flows along the edges in this step.

import { html, shorten, svg } from "./elements.js";
import { layoutDownward, layoutGraph } from "./graph_layout.js";

/**
 * @typedef {import("./narration.js").Description} Description
 * @typedef {import("./narration.js").GraphNode} GraphNode
 * @typedef {import("./narration.js").Backward} Backward
 * @typedef {import("./narration.js").State} State
 * @typedef {SVGGraphicsElement} Shape
 * @typedef {{ group: Shape, data: Shape, grad: Shape | null, mark: Shape }} Card
 */

const CARD = { width: 138, height: 72 };
const CONSTANT = { width: 62, height: 32 };
const MARGIN = { x: 46, y: 34 }; // room for chips that are wider than their node
const READABLE = 0.72; // smaller than this, the graph is scrolled rather than shrunk
const NARROW = 640; // a window below this shows a graph from top to bottom, if it fits better so
const LEAST_IN_NARROW = 0.5; // seen as a whole, and larger by the zoom
const SIGN_HEIGHT = 20; // how far the op's sign sticks out at the top of a card
const LARGEST = 1.12;
const ZOOM_LIMITS = [0.2, 2];
const FACTOR_FROM_NODE = 46; // where on an edge the local derivative stands
export const TRAVEL_MS = 900;
/** @type {Record<string, string>} */
const SIGNS = { "*": "×", "-": "−", "/": "÷", "<=": "≤", ">=": "≥", "!=": "≠" };

export class GraphView {
  /** @param {Description} graph @param {string} detailsId  of the element that describes the node in focus */
  constructor(graph, detailsId) {
    this.graph = graph;
    this.layout = layoutGraph(graph.nodes, graph.nodes.map(sizeOf));
    this.downward = false;
    if (innerWidth < NARROW && innerWidth < READABLE * (this.layout.width + 2 * MARGIN.x)) {
      const downward = layoutDownward(graph.nodes, graph.nodes.map(downwardSizeOf));
      this.downward = downward.width < this.layout.width;
      if (this.downward) this.layout = downward;
    }
    this.width = this.layout.width + 2 * MARGIN.x;
    this.height = this.layout.height + 2 * MARGIN.y;
    this.scale = 1;
    this.room = 0;
    this.frame = 0; // of the animation that is running
    this.focused = graph.root;
    this.cards = graph.nodes.map((node, i) => this.card(node, i, detailsId));
    this.lines = new Map(
      this.layout.edges.map(({ to, operand, path }) => [
        `${to}:${operand}`,
        /** @type {SVGPathElement} */ (svg("path", { class: "cr-edge", d: path })),
      ]),
    );
    this.factor = chip("cr-factor");
    this.token = chip("cr-token");
    this.outcome = chip("cr-outcome");
    const name = graph.nodes[graph.root].name;
    this.svg = svg(
      "svg",
      {
        class: "cr-graph",
        viewBox: `${-MARGIN.x} ${-MARGIN.y} ${this.width} ${this.height}`,
        role: "group",
        "aria-label": `Graph of ${name}, ${graph.nodes.length} nodes; up and down arrows go from node to node`,
      },
      svg("g", { "aria-hidden": "true" }, ...this.lines.values()),
      ...this.cards.map((card) => card.group),
      svg("g", { "aria-hidden": "true" }, this.factor.group, this.token.group, this.outcome.group),
    );
    this.element = html("div", { class: "cr-stage" }, this.svg);
  }

  /** @returns {Card} */
  card(/** @type {GraphNode} */ node, /** @type {number} */ i, /** @type {string} */ detailsId) {
    const { x, y, width, height } = this.layout.boxes[i];
    const size = node.kind === "constant" ? CONSTANT : CARD;
    const [left, top] = this.downward
      ? [-size.width / 2, height / 2 - size.height]
      : [-width / 2 + signWidth(node), -size.height / 2];
    const outline = { x: left, y: top, ...size, rx: node.kind === "result" ? 8 : 16 };
    const text = (/** @type {string} */ kind, /** @type {number} */ row, words = "", end = false) =>
      svg(
        "text",
        {
          class: kind,
          x: end ? left + size.width - 13 : left + 13,
          y: top + row,
          "text-anchor": end ? "end" : "start",
        },
        words,
      );

    const beside = this.downward && node.kind === "result"; // the op's sign stands above the middle
    const mark = svg("text", {
      class: "cr-mark",
      x: beside ? signWidth(node) / 2 + 10 : left + size.width / 2,
      y: top - 9,
      "text-anchor": beside ? "start" : "middle",
    });
    const group = svg("g", {
      class: `cr-node cr-${node.kind}${i === this.graph.root ? " cr-root" : ""}`,
      transform: `translate(${x} ${y})`,
      role: "img",
      tabindex: i === this.graph.root ? 0 : -1,
      "data-node": i,
      "aria-describedby": detailsId,
    });
    group.append(svg("rect", { class: "cr-ground", ...outline }), mark);
    if (node.kind === "constant") {
      const data = svg("text", { class: "cr-number cr-data", x: 0, y: 4.5, "text-anchor": "middle" });
      group.append(svg("rect", { class: "cr-outline", ...outline }), data);
      return { group, data, grad: null, mark };
    }
    const data = text("cr-number cr-data", 41, "", true);
    const grad = text("cr-number cr-grad", 61, "", true);
    group.append(
      svg("path", { class: "cr-band", d: band(left, top, size, outline.rx) }),
      svg("rect", { class: "cr-outline", ...outline }),
      text("cr-name", 20, shorten(node.name, 14)),
      text("cr-key", 41, "data"),
      data,
      text("cr-key", 61, "grad"),
      grad,
    );
    if (node.kind === "result") {
      const wide = signWidth(node);
      const [signX, signY] = this.downward ? [0, top - SIGN_HEIGHT / 2 + 4] : [left - wide / 2 + 4, 0];
      const ground = { x: signX - wide / 2 - 4, y: signY - 14, width: wide + 8, height: 28, rx: 14 };
      group.append(
        svg("rect", { class: "cr-op", ...ground }),
        svg("text", { class: "cr-op-sign", x: signX, y: signY + 5, "text-anchor": "middle" }, signOf(node)),
      );
    }
    return { group, data, grad, mark };
  }

  // Showing a state.

  show(/** @type {State} */ state) {
    this.stopTravel();
    this.showCards(state);
    this.showEdges(state);
    this.showChips(state);
  }

  showCards(/** @type {State} */ { step, grads, computed, complete, backward }) {
    this.cards.forEach(({ group, data, grad }, i) => {
      const node = this.graph.nodes[i];
      group.classList.toggle("cr-ghost", !computed[i]);
      group.classList.toggle("cr-waiting", !backward);
      group.classList.toggle("cr-complete", complete[i]);
      group.classList.toggle("cr-active", "node" in step && step.node === i);
      group.classList.toggle("cr-target", "to" in step && step.to === i);
      data.textContent = computed[i] ? node.data.text : "";
      if (grad) grad.textContent = grads[i]?.text ?? "";
    });
  }

  showEdges(/** @type {State} */ { step, position }) {
    const steps = this.graph.steps.slice(0, position);
    const passed = new Set(steps.map((other) => (other.kind === "backward" ? edgeOf(other) : "")));
    for (const [edge, line] of this.lines) {
      const changed = step.kind === "handwritten" && this.edgesBetween(step.node, step.to).includes(edge);
      line.classList.toggle("cr-forward", step.kind === "forward" && edge.startsWith(`${step.node}:`));
      line.classList.toggle("cr-backward", changed || (step.kind === "backward" && edge === edgeOf(step)));
      line.classList.toggle("cr-passed", passed.has(edge));
      if (line.matches(".cr-forward, .cr-backward")) line.parentNode?.append(line); // above others in its lane
    }
  }

  edgesBetween(/** @type {number} */ node, /** @type {number} */ operand) {
    return this.graph.nodes[node].operands.flatMap((other, k) => (other === operand ? [`${node}:${k}`] : []));
  }

  /** On the edge, the factor; under a node, how its number is computed. */
  showChips(/** @type {State} */ { step }) {
    for (const each of [this.factor, this.token, this.outcome]) hideChip(each);
    this.outcome.group.classList.toggle("cr-blue", step.kind === "forward");
    if (step.kind === "forward") {
      const node = this.graph.nodes[step.node];
      this.showUnder(step.node, `${shorten(node.expression?.numbers ?? "", 26)} = ${node.data.text}`);
    } else if (step.kind === "backward") {
      const line = this.line(step);
      const { x, y } = line.getPointAtLength(line.getTotalLength() - factorPlace(line));
      showChip(this.factor, `× ${step.partial.text}`, x, y);
      this.showUnder(step.to, `${step.sum} = ${step.after.text}`);
    } else if (step.kind === "handwritten") {
      this.showUnder(step.to, `${step.before.text} → ${step.after.text}`);
    }
  }

  showUnder(/** @type {number} */ node, /** @type {string} */ words) {
    const { x, y, width, height } = this.layout.boxes[node];
    const centre = this.downward ? x : x - width / 2 + signWidth(this.graph.nodes[node]) + CARD.width / 2;
    showChip(this.outcome, words, centre, y + height / 2 + 14);
  }

  /** Animate the node's gradient: it leaves, is multiplied, arrives as the contribution, and is added. */
  travel(/** @type {State} */ state, /** @type {Backward} */ step, /** @type {number} */ speed) {
    const line = this.line(step);
    const length = line.getTotalLength();
    const start = performance.now();
    const { group, grad } = this.cards[step.to];
    group.classList.remove("cr-complete");
    if (grad) grad.textContent = step.before.text;
    hideChip(this.outcome);
    const move = (/** @type {number} */ now) => {
      const time = Math.max(0, now - start) / (TRAVEL_MS / speed);
      if (time >= 1) {
        this.show(state);
        return;
      }
      const way = time < 0.5 ? 2 * time * time : 1 - 2 * (1 - time) * (1 - time); // slow, fast, slow
      const { x, y } = line.getPointAtLength(length * (1 - way));
      showChip(this.token, length * way < factorPlace(line) ? step.grad.text : step.product.text, x, y);
      this.frame = requestAnimationFrame(move);
    };
    this.frame = requestAnimationFrame(move);
  }

  stopTravel() {
    cancelAnimationFrame(this.frame);
  }

  line(/** @type {Backward} */ step) {
    return /** @type {SVGPathElement} */ (this.lines.get(edgeOf(step)));
  }

  // Single nodes.

  /** Only one node is in the tab order: the last that had the focus. */
  markFocused(/** @type {number} */ i) {
    this.cards[this.focused].group.setAttribute("tabindex", "-1");
    this.cards[i].group.setAttribute("tabindex", "0");
    this.focused = i;
  }

  markInspected(/** @type {number | null} */ i) {
    this.cards.forEach(({ group }, k) => group.classList.toggle("cr-inspected", k === i));
  }

  moveFocus(/** @type {number} */ by) {
    const next = Math.max(0, Math.min(this.cards.length - 1, this.focused + by));
    this.cards[next].group.focus();
  }

  highlight(/** @type {number} */ i, /** @type {string} */ message) {
    this.cards[i].group.classList.add("cr-marked");
    this.cards[i].mark.textContent = message;
  }

  clearHighlights() {
    for (const { group, mark } of this.cards) {
      group.classList.remove("cr-marked");
      mark.textContent = "";
    }
  }

  // Size and scrolling.

  /** Show the whole graph if it is readable at that size. */
  fit() {
    const room = this.element.clientWidth;
    if (room === 0 || room === this.room) return;
    this.room = room;
    const whole = Math.min(room / this.width, (0.62 * Math.max(500, innerHeight)) / this.height);
    if (this.downward) this.setScale(Math.max(LEAST_IN_NARROW, Math.min(1, room / this.width)));
    else this.setScale(Math.max(READABLE, Math.min(LARGEST, whole)));
  }

  zoom(/** @type {number} */ factor) {
    const [least, most] = ZOOM_LIMITS;
    this.setScale(Math.max(least, Math.min(most, this.scale * factor)));
  }

  setScale(/** @type {number} */ scale) {
    this.scale = scale;
    this.svg.setAttribute("width", String(Math.round(this.width * scale)));
    this.svg.setAttribute("height", String(Math.round(this.height * scale)));
  }

  /** Scroll to the nodes of the step. */
  follow(/** @type {State} */ { step }, /** @type {ScrollBehavior} */ behavior) {
    if (step.kind === "end") return;
    const nodes = "to" in step ? [step.node, step.to] : "node" in step ? [step.node] : [0];
    const target = (
      /** @type {"x" | "y"} */ axis,
      /** @type {number} */ size,
      /** @type {number} */ at,
      /** @type {number} */ view,
    ) => {
      const places = nodes.map((i) => (this.layout.boxes[i][axis] + MARGIN[axis]) * this.scale);
      const far = Math.max(...places) - Math.min(...places) + 2 * size * this.scale > view; // both do not fit: the last
      const seen = far ? places.slice(-1) : places;
      const [first, last] = [Math.min(...seen) - size * this.scale, Math.max(...seen) + size * this.scale];
      return first >= at && last <= at + view ? at : (first + last - view) / 2;
    };
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.element;
    this.element.scrollTo({
      left: target("x", CARD.width, scrollLeft, clientWidth),
      top: target("y", CARD.height, scrollTop, clientHeight),
      behavior,
    });
  }
}

/** The distance of the factor from the node that passes its gradient. */
function factorPlace(/** @type {SVGPathElement} */ line) {
  return Math.min(line.getTotalLength() / 2, FACTOR_FROM_NODE);
}

/** @returns {string} */
function edgeOf(/** @type {{ node: number, operand: number }} */ { node, operand }) {
  return `${node}:${operand}`;
}

function sizeOf(/** @type {GraphNode} */ node) {
  return node.kind === "constant" ? CONSTANT : { width: CARD.width + signWidth(node), height: CARD.height };
}

function downwardSizeOf(/** @type {GraphNode} */ node) {
  if (node.kind === "constant") return CONSTANT;
  return { width: CARD.width, height: CARD.height + (node.kind === "result" ? SIGN_HEIGHT : 0) };
}

/** How far the op's sign sticks out on the left of a card. */
function signWidth(/** @type {GraphNode} */ node) {
  return node.kind === "result" ? Math.max(20, 8 + 7.4 * signOf(node).length) : 0;
}

function signOf(/** @type {GraphNode} */ node) {
  return shorten(SIGNS[node.op] ?? (node.op || "f"), 11);
}

/** The lower part of a card, behind the gradient. */
function band(
  /** @type {number} */ left,
  /** @type {number} */ top,
  /** @type {{ width: number, height: number }} */ size,
  /** @type {number} */ radius,
) {
  const [right, bottom, start] = [left + size.width, top + size.height, top + 47];
  const corner = `A${radius} ${radius} 0 0 1`;
  const [low, inner, outer] = [bottom - radius, left + radius, right - radius];
  return `M${left} ${start}H${right}V${low}${corner} ${outer} ${bottom}H${inner}${corner} ${left} ${low}Z`;
}

// Chips: short texts on a rounded background.

function chip(/** @type {string} */ kind) {
  const ground = svg("rect", { rx: 10, height: 20, y: -10 });
  const text = svg("text", { "text-anchor": "middle", y: 4.5 });
  return { group: svg("g", { class: `cr-chip ${kind}`, visibility: "hidden" }, ground, text), ground, text };
}

/** @param {ReturnType<typeof chip>} chip @param {string} words @param {number} x @param {number} y */
function showChip({ group, ground, text }, words, x, y) {
  const width = 16 + 7.3 * words.length;
  text.textContent = words;
  ground.setAttribute("x", String(-width / 2));
  ground.setAttribute("width", String(width));
  group.setAttribute("transform", `translate(${x} ${y})`);
  group.setAttribute("visibility", "visible");
}

function hideChip(/** @type {ReturnType<typeof chip>} */ { group }) {
  group.setAttribute("visibility", "hidden");
}
