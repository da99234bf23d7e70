// A graph to step through, built by Python in the page: of chainrule's Value, or of the learner's own class.

import type { Description } from "../../src/chainrule/stepping/web/narration.js";
import { mountStepper } from "../../src/chainrule/stepping/web/stepper.js";
import type { Course } from "./course";
import { html } from "./elements";
import { highlight } from "./highlight";
import type { Live } from "./lesson";
import { ownCodes, ownSource } from "./own_code";
import { python } from "./python";
import { store } from "./store";

export async function graphOf(code: string, own: string): Promise<Description> {
  const answer = await python.call("chainrule.learn.graphs", "steps_json", [code, own], 10);
  if (answer.kind !== "done") throw new Error(answer.text);
  const { graph, error } = JSON.parse(answer.text) as { graph: Description | null; error: { text: string } | null };
  if (!graph) throw new Error(error?.text ?? "There is no graph.");
  return graph;
}

/** Whose class a graph is of. */
function ownWords(): string {
  return Object.keys(ownCodes()).length ? "Built and differentiated by your own class." : "Built by the class of the lessons; it becomes yours as you solve the exercises.";
}

/** The code of a graph, folded away. */
function listing(code: string): HTMLElement {
  const lines = html("code", {}, code);
  highlight(lines);
  return html("details", { class: "listing" }, html("summary", {}, "The code"), html("pre", { class: "code", tabindex: "0" }, lines));
}

export function stepperView(course: Course, code: string, own: boolean): Live {
  return graphBlock(course, code, own, "stepper-block", "Graph, step by step", async (source) => {
    const graph = await graphOf(code, source);
    return (place) => mountStepper(place, graph);
  });
}

type Mounted = { destroy(): void };

/**
 * A block with a graph that Python builds; of the learner's own class it is built anew whenever that changes.
 *
 * `build` asks Python, and returns what puts the graph into its place, which is empty by then.
 */
export function graphBlock(course: Course, code: string, own: boolean, kind: string, label: string, build: (source: string) => Promise<(place: HTMLElement) => Mounted>): Live {
  const place = html("div", {});
  const words = html("p", { class: "waiting", role: "status" }, "This graph appears when Python is ready.");
  let mounted: Mounted | null = null;
  let source: string | null = null;
  let left = false;

  async function show(): Promise<void> {
    const wanted = own ? ownSource(course) : "";
    if (wanted === source) return;
    source = wanted;
    try {
      const mount = await build(wanted);
      if (left || wanted !== source) return;
      mounted?.destroy();
      mounted = mount(place);
      words.textContent = own ? ownWords() : "";
    } catch (error) {
      words.textContent = (error as Error).message;
    }
  }

  const onChange = () => source !== null && void show();
  const stopWaiting = python.whenReady(() => void show());
  if (own) store.addEventListener("change", onChange);
  return {
    element: html("section", { class: `live wide ${kind}`, "aria-label": label }, place, words, listing(code)),
    destroy() {
      left = true;
      stopWaiting();
      mounted?.destroy();
      store.removeEventListener("change", onChange);
    },
  };
}
