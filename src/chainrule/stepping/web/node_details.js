// @ts-check
// The details of one node, in a panel that covers nothing and stays until another node is inspected.

import { html } from "./elements.js";
import { nudge, sentence } from "./narration.js";

/**
 * @typedef {import("./narration.js").Description} Description
 * @typedef {import("./narration.js").State} State
 */

const MOST_CONTRIBUTIONS = 6;
const HINT = "Point at a node, or walk from node to node with ↑ ↓, and its details appear here.";

export class NodeDetails {
  /** @param {Description} graph @param {string} id */
  constructor(graph, id) {
    this.graph = graph;
    this.element = html("div", { class: "cr-inspector", id });
    /** @type {number | null} */
    this.node = null;
    this.clear();
  }

  show(/** @type {number} */ i, /** @type {State} */ state) {
    this.node = i;
    const node = this.graph.nodes[i];
    const grad = state.grads[i];
    const lines = [line("data", state.computed[i] ? node.data.exact : "not yet", "cr-data")];
    if (grad) lines.push(line(state.backward && !state.complete[i] ? "grad so far" : "grad", grad.exact, "cr-grad"));
    const note =
      grad === null ? "a plain number takes no gradient" : state.complete[i] ? nudge(this.graph, i, grad) : "";
    this.element.replaceChildren(
      html(
        "p",
        { class: "cr-what" },
        node.expression ? `${node.name} = ${node.expression.names}` : `${node.name}, a ${node.kind}`,
      ),
      html("dl", {}, ...lines, ...this.contributions(i, state.position)),
      html("p", {}, note && sentence(note)),
    );
  }

  clear() {
    this.node = null;
    this.element.replaceChildren(html("p", {}, HINT));
  }

  /** The contributions so far, and where they came from. */
  contributions(/** @type {number} */ i, /** @type {number} */ position) {
    const lines = this.graph.steps.slice(0, position + 1).flatMap((step) => {
      if (step.kind !== "backward" || step.to !== i) return [];
      return [line(`from ${this.graph.nodes[step.node].name}`, `${step.multiplication} = ${step.product.text}`)];
    });
    const rest = lines.length - MOST_CONTRIBUTIONS;
    return rest > 0 ? [...lines.slice(0, MOST_CONTRIBUTIONS), line("and", `${rest} more`)] : lines;
  }
}

function line(/** @type {string} */ key, /** @type {string} */ value, kind = "") {
  return html("div", {}, html("dt", {}, key), html("dd", { class: kind }, value));
}
