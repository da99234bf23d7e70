// @ts-check
// All nodes as a table: the same numbers as in the picture, for screen readers and for people who prefer tables.

import { html } from "./elements.js";
import { nudge } from "./narration.js";

/**
 * @typedef {import("./narration.js").Description} Description
 * @typedef {import("./narration.js").Num} Num
 * @typedef {import("./narration.js").State} State
 */

const KEYS = "← → step   ⇧← ⇧→ node   Space play   Home End   ↑ ↓ look at nodes";

export class NodeTable {
  constructor(/** @type {Description} */ graph) {
    this.graph = graph;
    this.rows = graph.nodes.map((node, i) => {
      const [data, grad] = [html("td", { class: "cr-data" }), html("td", { class: "cr-grad" })];
      const reading = html("td", { class: "cr-reading" });
      const made = node.expression?.names ?? (node.kind === "leaf" ? "given" : "a constant");
      const name = html("th", { scope: "row" }, node.name);
      return {
        row: html("tr", { "data-node": String(i) }, name, html("td", {}, made), data, grad, reading),
        data,
        grad,
        reading,
      };
    });
    const head = ["node", "made by", "data", "grad", "reading"].map((name) => html("th", { scope: "col" }, name));
    const table = html(
      "table",
      {},
      html("caption", { class: "cr-unseen" }, "All nodes at the present step"),
      html("thead", {}, html("tr", {}, ...head)),
      html("tbody", {}, ...this.rows.map(({ row }) => row)),
    );
    this.element = html(
      "details",
      { class: "cr-table" },
      html("summary", {}, "All numbers as a table", html("span", { class: "cr-keys", "aria-hidden": "true" }, KEYS)),
      html(
        "div",
        { class: "cr-table-scroller", tabindex: "0", role: "group", "aria-label": "Table of all nodes" },
        table,
      ),
    );
  }

  show(/** @type {State} */ { step, grads, computed, complete }) {
    this.rows.forEach(({ row, data, grad, reading }, i) => {
      const number = grads[i];
      write(data, computed[i] ? this.graph.nodes[i].data : null, "not yet");
      write(grad, number, "none");
      reading.textContent = number && complete[i] ? nudge(this.graph, i, number) : "";
      if ("node" in step && step.node === i) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });
  }
}

/** The short form in the cell, all digits in its tooltip. */
function write(/** @type {HTMLElement} */ cell, /** @type {Num | null} */ number, /** @type {string} */ otherwise) {
  cell.textContent = number ? number.text : otherwise;
  cell.classList.toggle("cr-none", !number);
  if (number) cell.dataset.exact = number.exact;
  else delete cell.dataset.exact;
  cell.title = number && number.exact !== number.text ? number.exact : "";
}
