// The report of a check: message, error, one row per comparison, printed output, and the learner's own graphs.

import type { Description } from "../../src/chainrule/stepping/web/narration.js";
import { mountStepper } from "../../src/chainrule/stepping/web/stepper.js";
import { inlineProse } from "./course";
import { html, select } from "./elements";
import type { Live } from "./lesson";

export interface Row {
  label: string;
  got: string;
  expected: string;
  right: boolean;
  node: string | null;
  graph: number | null; // the graph in which the node is
  about: string; // what it shows
}

export interface Report {
  passed: boolean;
  rows: Row[];
  message: string | null;
  error: { kind: string; text: string; line: number | null; column: number | null } | null;
  output: string;
  graphs: (Description & { label?: string })[];
  seconds: number;
}

/** What code did without its check. */
export type Ran = Pick<Report, "error" | "output">;

/** The verdict in one sentence. */
export function verdict({ passed, rows, error }: Report): string {
  if (passed) return `Right. ${rows.length === 1 ? "The check passes" : `All ${rows.length} checks pass`}.`;
  if (error) return "Not yet: your code stopped with an error.";
  const wrong = rows.filter((row) => !row.right).length;
  if (!wrong) return "Not yet.";
  return `Not yet: ${wrong} of ${rows.length} ${rows.length === 1 ? "check" : "checks"} ${wrong === 1 ? "is" : "are"} wrong.`;
}

export function reportView(report: Report): Live {
  const element = html("div", {});
  if (report.message) element.append(html("p", { class: "message" }, inlineProse(report.message)));
  if (report.error) element.append(errorView(report.error));
  if (report.rows.length) element.append(rowsView(report.rows));
  if (report.output) element.append(outputView(report.output));
  if (!report.graphs.length) return { element };
  const graphs = graphsView(report);
  element.append(graphs.element);
  return { element, destroy: graphs.destroy };
}

export function ranView({ error, output }: Ran): Live {
  return { element: html("div", {}, ...(error ? [errorView(error)] : []), ...(output ? [outputView(output)] : [])) };
}

function outputView(output: string): HTMLElement {
  return html("div", { class: "output" }, html("p", { class: "caption" }, "Printed"), html("pre", { tabindex: "0" }, output));
}

export function errorView({ kind, text, line, column }: NonNullable<Report["error"]>): HTMLElement {
  const where = line ? `Line ${line}${column ? `, column ${column}` : ""}: ` : "";
  const words = text.replace(`${kind}: `, ""); // it stands above
  return html("p", { class: "error" }, html("strong", {}, `${where}${kind}`), html("span", { class: "error-text" }, ...withCode(words)));
}

/** Text between backquotes as code. The rest is Python's own wording, not Markdown. */
function withCode(text: string): (string | HTMLElement)[] {
  return text.split("`").map((part, i) => (i % 2 ? html("code", {}, part) : part));
}

export function rowsView(rows: Row[], label = "Checks"): HTMLElement {
  const several = new Set(rows.map((row) => row.about)).size > 1;
  const where = (row: Row) => (several && row.node && row.about ? [html("span", { class: "where" }, `, ${row.about}`)] : []);
  const cells = (row: Row) =>
    html(
      "tr",
      { class: row.right ? "right" : "wrong" },
      html("th", { scope: "row" }, row.label, ...where(row)),
      html("td", {}, row.got),
      html("td", {}, row.expected),
      html("td", { class: "verdict" }, row.right ? "✓ right" : "✗ wrong"),
    );
  const head = html("tr", {}, ...["What", "Got", "Expected", ""].map((words) => (words ? html("th", { scope: "col" }, words) : html("td", {}))));
  return html(
    "div",
    { class: "table-scroller rows", tabindex: "0", role: "region", "aria-label": label },
    html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows.map(cells))),
  );
}

/** The graphs that the check showed, one at a time, with wrong nodes highlighted. */
function graphsView({ graphs, rows }: Report): Live {
  const place = html("div", { class: "own-graph" });
  const faults = graphs.map((graph, i) => faultsIn(graph, rows.filter((row) => row.graph === i)));
  let stepper: ReturnType<typeof mountStepper> | null = null;
  const mount = (i: number) => {
    stepper?.destroy();
    stepper = mountStepper(place, graphs[i], { position: graphs[i].steps.length - 1 });
    for (const [node, expected] of faults[i]) stepper.highlight(node, `expected ${expected}`);
  };
  const first = Math.max(0, faults.findIndex((found) => found.size > 0));
  const words = graphs.length === 1 ? graphs[0].label || "" : "";
  const element = html("div", {}, html("p", { class: "caption" }, `What your own class built${words && `: ${words}`}`));
  if (graphs.length > 1) {
    const names = graphs.map((graph, i): [string, string] => [String(i), `${faults[i].size ? "✗ " : ""}${graph.label || `graph ${i + 1}`}`]);
    element.append(html("p", {}, select("Graph", names, String(first), (value) => mount(Number(value))).element));
  }
  element.append(place);
  mount(first);
  return { element, destroy: () => stepper?.destroy() };
}

/** The expected values of a graph's nodes, from the wrong rows. */
function faultsIn(graph: Description, rows: Row[]): Map<number, string> {
  const found = new Map<number, string>();
  for (const row of rows) {
    const node = graph.nodes.findIndex((each) => each.name === row.node);
    if (!row.right && node >= 0 && !found.has(node)) found.set(node, row.expected);
  }
  return found;
}
