// @ts-check
// What a node has to tell, beside it while the pointer or the focus is on it.

import { html } from "./elements.js";
import { nudge, sentence } from "./narration.js";

/**
 * @typedef {import("./narration.js").Description} Description
 * @typedef {import("./narration.js").State} State
 */

const MOST_CONTRIBUTIONS = 6;
const HIDE_MS = 150; // time to move the pointer from the node to its details

export class NodeDetails {
  /** @param {Description} graph @param {string} id */
  constructor(graph, id) {
    this.graph = graph;
    this.element = html("div", { class: "cr-tooltip", role: "tooltip", id, hidden: "" });
    this.element.addEventListener("pointerenter", () => clearTimeout(this.hiding));
    this.element.addEventListener("pointerleave", () => this.hideSoon());
    /** @type {number | null} */
    this.node = null;
    this.hiding = 0;
  }

  show(/** @type {number} */ i, /** @type {State} */ state) {
    clearTimeout(this.hiding);
    this.node = i;
    const node = this.graph.nodes[i];
    const grad = state.grads[i];
    const lines = [line("data", state.computed[i] ? node.data.exact : "not yet", "cr-data")];
    if (grad) lines.push(line(state.backward && !state.complete[i] ? "grad so far" : "grad", grad.exact, "cr-grad"));
    const note = grad === null ? "a plain number takes no gradient" : state.complete[i] ? nudge(this.graph, i, grad) : "";
    this.element.replaceChildren(
      html("p", { class: "cr-what" }, node.expression ? `${node.name} = ${node.expression.names}` : `${node.name}, a ${node.kind}`),
      html("dl", {}, ...lines, ...this.contributions(i, state.position)),
      ...(note ? [html("p", { class: "cr-reading" }, sentence(note))] : []),
    );
    this.element.hidden = false;
  }

  /** What has arrived so far, and from where. */
  contributions(/** @type {number} */ i, /** @type {number} */ position) {
    const lines = this.graph.steps.slice(0, position + 1).flatMap((step) => {
      if (step.kind !== "backward" || step.to !== i) return [];
      return [line(`from ${this.graph.nodes[step.node].name}`, `${step.multiplication} = ${step.product.text}`)];
    });
    const rest = lines.length - MOST_CONTRIBUTIONS;
    return rest > 0 ? [...lines.slice(0, MOST_CONTRIBUTIONS), line("and", `${rest} more`)] : lines;
  }

  hide() {
    clearTimeout(this.hiding);
    this.node = null;
    this.element.hidden = true;
  }

  hideSoon() {
    clearTimeout(this.hiding);
    this.hiding = setTimeout(() => this.hide(), HIDE_MS);
  }

  /** Below the node if there is room, else above it. */
  place(/** @type {DOMRect} */ node, /** @type {DOMRect} */ stage) {
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const x = node.left - stage.left + (node.width - width) / 2;
    const [above, below] = [node.top - stage.top - height - 8, node.bottom - stage.top + 8];
    this.element.style.left = `${Math.max(6, Math.min(stage.width - width - 6, x))}px`;
    this.element.style.top = `${below + height < stage.height || above < -48 ? below : above}px`;
  }
}

function line(/** @type {string} */ key, /** @type {string} */ value, kind = "") {
  return html("div", {}, html("dt", {}, key), html("dd", { class: kind }, value));
}
