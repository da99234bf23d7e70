// @ts-check
// What the steps mean: the state after each, the chain rule worked out in words, and a gradient read as a nudge.

/**
 * @typedef {{ exact: string, text: string }} Num  a number as Python writes it, and a short form
 * @typedef {{ names: string, numbers: string }} Texts  a formula with names, and with numbers
 * @typedef {"leaf" | "constant" | "result"} Kind
 * @typedef {{ name: string, kind: Kind, op: string, operands: number[], data: Num, grad: Num | null,
 *   expression: Texts | null }} GraphNode
 * @typedef {{ kind: "start" | "end" }} Frame
 * @typedef {{ kind: "forward", node: number }} Forward
 * @typedef {{ kind: "seed", node: number, after: Num }} Seed
 * @typedef {{ kind: "backward", node: number, to: number, operand: number, grad: Num, partial: Num,
 *   formula: Texts | null, product: Num, before: Num, after: Num, sum: string, multiplication: string }} Backward
 * @typedef {{ kind: "handwritten", node: number, to: number, grad: Num, before: Num, after: Num,
 *   change: Num }} Handwritten
 * @typedef {Frame | Forward | Seed | Backward | Handwritten} Step
 * @typedef {{ root: number, nodes: GraphNode[], steps: Step[] }} Description
 * @typedef {{ position: number, step: Step, backward: boolean, computed: boolean[], grads: (Num | null)[],
 *   complete: boolean[] }} State
 * @typedef {{ term: string, math?: string, prose?: string }} Detail
 * @typedef {{ title: string, equation: string, details: Detail[], spoken: string }} Narration
 */

const ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth"];
const MOST_LISTED = 6;

/**
 * The state after each step: which values are computed, what the gradients are, and which of these are complete.
 * @param {Description} graph
 * @returns {State[]}
 */
export function statesOf(graph) {
  const lastChange = graph.nodes.map(() => graph.steps.findIndex((step) => step.kind === "seed"));
  graph.steps.forEach((step, position) => {
    if ("to" in step) lastChange[step.to] = position;
  });
  let grads = graph.nodes.map((node) => node.grad);
  let computed = graph.nodes.map((node) => node.kind !== "result");
  let backward = false;
  return graph.steps.map((step, position) => {
    if (step.kind === "forward") computed = computed.with(step.node, true);
    if (step.kind === "seed") grads = grads.with(step.node, step.after);
    if ("to" in step) grads = grads.with(step.to, step.after);
    backward ||= step.kind === "seed";
    const complete = graph.nodes.map((node, i) => node.grad !== null && lastChange[i] <= position);
    return { position, step, backward, computed, grads, complete };
  });
}

/**
 * @param {Description} graph
 * @param {number} position
 * @returns {Narration}
 */
export function narrate(graph, position) {
  const step = graph.steps[position];
  if (step.kind === "start") return narrateStart(graph);
  if (step.kind === "forward") return narrateForward(graph.nodes[step.node]);
  if (step.kind === "seed") return narrateSeed(graph, step);
  if (step.kind === "backward") return narrateBackward(graph, step, position);
  if (step.kind === "handwritten") return narrateHandwritten(graph, step);
  return narrateEnd(graph);
}

/** @returns {Narration} */
function narrateStart(/** @type {Description} */ graph) {
  const leaves = graph.nodes.filter((node) => node.kind === "leaf");
  const given = listed(leaves.map((leaf) => `${leaf.name} = ${leaf.data.text}`));
  return {
    title: "The leaves are given",
    equation: given || "no leaves",
    details: [{ term: "next", prose: "Values are computed forward; then gradients flow back, one edge at a time." }],
    spoken: `The leaves are given: ${given}. Next, values are computed forward, then gradients flow back.`,
  };
}

/** @returns {Narration} */
function narrateForward(/** @type {GraphNode} */ node) {
  const { names, numbers } = /** @type {Texts} */ (node.expression);
  return {
    title: `${node.name} is computed`,
    equation: chain([node.name, names, numbers, node.data.text]),
    details: [{ term: "remembered", prose: `${node.name} keeps its operands: they are the way back.` }],
    spoken: `Forward. ${node.name} is ${names}, which is ${node.data.text}.`,
  };
}

/** @returns {Narration} */
function narrateSeed(/** @type {Description} */ graph, /** @type {Seed} */ step) {
  const { name } = graph.nodes[step.node];
  const one = step.after.text === "1";
  const kept = graph.nodes.some((node) => node.grad !== null && Number(node.grad.exact) !== 0);
  return {
    title: `Backward starts at ${name}`,
    equation: one ? `${name}.grad = ∂${name}/∂${name} = 1` : `${name}.grad = ${step.after.text}`,
    details: [
      { term: "why", prose: one ? `${name} moves exactly as fast as itself.` : "This is the seed that was asked for." },
      ...(kept
        ? [{ term: "kept", prose: "Leaves start from the gradients they hold, because nothing has set them to zero." }]
        : []),
      {
        term: "next",
        prose: "The newest node passes its gradient to its operands, then the one before it, and so on.",
      },
    ],
    spoken: `Backward starts. The gradient of ${name} is set to ${step.after.text}.`,
  };
}

/** @returns {Narration} */
function narrateBackward(
  /** @type {Description} */ graph,
  /** @type {Backward} */ step,
  /** @type {number} */ position,
) {
  const [node, to] = [graph.nodes[step.node], graph.nodes[step.to]];
  const local = `∂${node.name}/∂${to.name}`;
  const formula = step.formula ?? { names: step.partial.text, numbers: step.partial.text };
  const use = useOf(node, step);
  return {
    title: `${node.name} passes its gradient to ${to.name}`,
    equation: chain([`${to.name}.grad += ${node.name}.grad · ${local}`, step.multiplication, step.product.text]),
    details: [
      {
        term: "local derivative",
        math: chain([local, formula.names, formula.numbers, step.partial.text]),
        prose: `because ${node.name} = ${node.expression?.names}${use && `; this is ${use}`}`,
      },
      {
        term: "accumulated",
        math: chain([`${to.name}.grad`, step.sum, step.after.text]),
        prose: accumulation(graph, step, position),
      },
    ],
    spoken:
      `Backward. ${node.name} passes its gradient to ${to.name}${use && `, through ${use}`}. ` +
      `The gradient of ${node.name}, ${step.grad.text}, times the local derivative, ${step.partial.text}, ` +
      `is ${step.product.text}. ` +
      `The gradient of ${to.name} goes from ${step.before.text} to ${step.after.text}.`,
  };
}

/** Which use of the operand this is, if the node uses it more than once. */
function useOf(/** @type {GraphNode} */ node, /** @type {Backward} */ step) {
  const uses = node.operands.flatMap((operand, k) => (operand === step.to ? [k] : []));
  if (uses.length < 2) return "";
  return `the ${ordinal(uses.indexOf(step.operand))} of its ${uses.length} uses there`;
}

function accumulation(/** @type {Description} */ graph, /** @type {Backward} */ step, /** @type {number} */ position) {
  const arrives = (/** @type {Step} */ other) => other.kind === "backward" && other.to === step.to;
  const all = graph.steps.filter(arrives).length;
  const earlier = graph.steps.slice(0, position).filter(arrives).length;
  if (all === 1) return "";
  const order = `the ${ordinal(earlier)} of ${all} contributions`;
  return earlier === 0 ? order : `${order}: += keeps the ${step.before.text} that came before`;
}

function ordinal(/** @type {number} */ index) {
  return ORDINALS[index] ?? `${index + 1}th`;
}

/** @returns {Narration} */
function narrateHandwritten(/** @type {Description} */ graph, /** @type {Handwritten} */ step) {
  const [node, to] = [graph.nodes[step.node], graph.nodes[step.to]];
  return {
    title: `${node.name} runs its own _backward`,
    equation: `${to.name}.grad: ${step.before.text} → ${step.after.text}`,
    details: [
      {
        term: "written by hand",
        prose: `Its code met ${node.name}.grad = ${step.grad.text} and changed ${to.name}.grad by ${step.change.text}.`,
      },
    ],
    spoken:
      `Backward. The hand-written backward of ${node.name} changes the gradient of ${to.name} ` +
      `from ${step.before.text} to ${step.after.text}.`,
  };
}

/** @returns {Narration} */
function narrateEnd(/** @type {Description} */ graph) {
  const grads = statesOf(graph)[graph.steps.length - 1].grads;
  const leaves = graph.nodes.flatMap((node, i) => (node.kind === "leaf" ? [i] : []));
  const equation = listed(leaves.map((i) => `${graph.nodes[i].name}.grad = ${/** @type {Num} */ (grads[i]).text}`));
  const first = leaves[0];
  const reading = first === undefined ? "" : nudge(graph, first, /** @type {Num} */ (grads[first]));
  const details = reading ? [{ term: "read it as", prose: sentence(reading) }] : [];
  return { title: "Every gradient is complete", equation, details, spoken: `Every gradient is complete. ${equation}.` };
}

/** A gradient read as a nudge: "raise a a little and L rises 6 times as fast"; empty if it means something else. */
export function nudge(/** @type {Description} */ graph, /** @type {number} */ node, /** @type {Num} */ grad) {
  const [name, root] = [graph.nodes[node].name, graph.nodes[graph.root].name];
  const seed = graph.steps.find((step) => step.kind === "seed");
  const fromZero = graph.nodes.every(({ grad: start }) => start === null || Number(start.exact) === 0);
  if (seed?.kind !== "seed" || seed.after.text !== "1" || !fromZero) return "";
  if (node === graph.root) return `everything else is measured against ${root}`;
  const speed = Number(grad.exact);
  if (speed === 0) return `raise ${name} a little and ${root} stays as it is`;
  if (!Number.isFinite(speed)) return `the slope of ${root} is not finite here`; // "inf", "-inf" and "nan" give NaN
  const way = speed > 0 ? "rises" : "falls";
  const times = grad.text.replace(/^-/, "");
  return `raise ${name} a little and ${root} ${way} ${times === "1" ? "just" : `${times} times`} as fast`;
}

/** Equal things joined by equals signs, without repeating what reads the same. */
function chain(/** @type {string[]} */ parts) {
  return parts.filter((part, i) => i === 0 || part !== parts[i - 1]).join(" = ");
}

export function sentence(/** @type {string} */ words) {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

function listed(/** @type {string[]} */ items) {
  const rest = items.length - MOST_LISTED;
  return [...items.slice(0, MOST_LISTED), ...(rest > 0 ? [`and ${rest} more`] : [])].join(",  ");
}
