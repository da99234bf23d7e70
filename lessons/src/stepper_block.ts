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
export function ownWords(): string {
  return Object.keys(ownCodes()).length ? "Built and differentiated by your own class." : "Built by the class of the lessons; it becomes yours as you solve the exercises.";
}

/** The code of a graph, folded away. */
export function listing(code: string): HTMLElement {
  const lines = html("code", {}, code);
  highlight(lines);
  return html("details", { class: "listing" }, html("summary", {}, "The code"), html("pre", { class: "code", tabindex: "0" }, lines));
}

export function stepperView(course: Course, code: string, own: boolean): Live {
  const place = html("div", { class: "stepper-place" });
  const words = html("p", { class: "waiting", role: "status" });
  let stepper: ReturnType<typeof mountStepper> | null = null;
  let source: string | null = null;
  let left = false;

  async function build(): Promise<void> {
    const wanted = own ? ownSource(course) : "";
    if (wanted === source) return;
    source = wanted;
    try {
      const graph = await graphOf(code, wanted);
      if (left) return;
      stepper?.destroy();
      stepper = mountStepper(place, graph);
      words.textContent = own ? ownWords() : "";
    } catch (error) {
      words.textContent = (error as Error).message;
    }
  }

  const onChange = () => source !== null && void build();
  words.textContent = "This graph appears when Python is ready.";
  const stopWaiting = python.whenReady(() => void build());
  if (own) store.addEventListener("change", onChange);
  return {
    element: html("section", { class: "live wide stepper-block", "aria-label": "Graph, step by step" }, place, words, listing(code)),
    destroy() {
      left = true;
      stopWaiting();
      stepper?.destroy();
      store.removeEventListener("change", onChange);
    },
  };
}
