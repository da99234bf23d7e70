// An exercise: prompt, editor, check; what the check found; and the ladder of hints, puzzle and solution.

import type { Description } from "../../src/chainrule/web/narration.js";
import { mountStepper } from "../../src/chainrule/web/stepper.js";
import { type Exercise, inlineProse, prose } from "./course";
import { Editor } from "./editor";
import { button, html, liveText, newId, select } from "./elements";
import { highlight } from "./highlight";
import { fill, ownCodes } from "./own_code";
import { Puzzle } from "./puzzle";
import { python } from "./python";
import { store } from "./store";

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

const CHECK_SECONDS = 5;
const PHONE_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ Enter" : "Ctrl Enter";

/** Exercises of one group as tabs; an exercise alone stands for itself. */
export function exerciseGroup(exercises: Exercise[]): HTMLElement {
  if (exercises.length === 1) return html("section", { class: "exercise live", "aria-label": `Exercise: ${exercises[0].title}` }, exerciseView(exercises[0], true));
  const stem = newId("exercise");
  const panels = exercises.map((exercise, i) =>
    html("div", { role: "tabpanel", id: `${stem}-panel-${i}`, "aria-labelledby": `${stem}-tab-${i}`, tabindex: "-1" }, exerciseView(exercise, false)),
  );
  const tabs = exercises.map((exercise, i) => {
    const done = html("span", { class: "tab-done" });
    const tab = html("button", { type: "button", role: "tab", id: `${stem}-tab-${i}`, "aria-controls": `${stem}-panel-${i}` }, exercise.title, done);
    const showDone = () => done.replaceChildren(...(store.exercise(exercise.name).passed === undefined ? [] : [html("span", { role: "img", "aria-label": "solved" }, " ✓")]));
    store.addEventListener("change", showDone);
    showDone();
    return tab;
  });
  const choose = (chosen: number, focus = false) => {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
      panels[i].hidden = i !== chosen;
    });
    if (focus) tabs[chosen].focus();
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(i));
    tab.addEventListener("keydown", ({ key }) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[key];
      if (to !== undefined) choose((to + tabs.length) % tabs.length, true);
    });
  });
  const first = exercises.findIndex((exercise) => store.exercise(exercise.name).passed === undefined);
  choose(Math.max(0, first));
  const list = html("div", { role: "tablist", class: "tabs", "aria-label": "Exercises" }, ...tabs);
  return html("section", { class: "exercise live", "aria-label": "Exercises" }, list, ...panels);
}

function exerciseView(exercise: Exercise, alone: boolean): HTMLElement {
  const element = html("div", { class: "exercise-body", "data-exercise": exercise.name });
  const heading = html("h3", {}, exercise.title);
  const editorId = newId("editor");
  const place = html("div", { class: "editor", id: editorId });
  const status = liveText("exercise-status");
  const results = html("div", { class: "results" });
  const full = html("div", { class: "full-class" });
  const saved = store.exercise(exercise.name);

  const editor = new Editor(place, {
    label: `Your code for ${exercise.title}. Escape, then Tab, leaves the editor.`,
    code: saved.code ?? exercise.starter,
    onChange(code) {
      store.exercise(exercise.name).code = code;
      store.save();
      editor.mark([], "cm-wrong-line");
    },
    onRun: () => void check(),
  });
  place.addEventListener("focusin", () => python.wake(), { once: true });

  const run = button("Check", () => (busy ? python.stop() : void check()), "primary");
  run.setAttribute("aria-keyshortcuts", "Control+Enter");
  const keys = html("kbd", { class: "keys" }, PHONE_KEYS);
  const again = button("Start over", () => {
    if (!confirm("Put the code back to where it began?")) return;
    editor.code = exercise.starter;
    results.replaceChildren();
    status.textContent = "";
  });
  const showFull = button("Show the full class", () => toggleFull());
  showFull.setAttribute("aria-expanded", "false");
  const hasTemplate = Boolean(exercise.template && exercise.template.trim() !== "# --- your code ---");

  let busy = false;
  let stepper: ReturnType<typeof mountStepper> | null = null;

  async function grade(code: string): Promise<Report | string> {
    const args = [JSON.stringify(exercise), exercise.name, code, JSON.stringify(ownCodes(exercise.name))];
    const answer = await python.call("chainrule.learn.grading", "grade_json", args, CHECK_SECONDS);
    if (answer.kind === "done") return JSON.parse(answer.text) as Report;
    return answer.text;
  }

  async function check(): Promise<void> {
    if (busy) return;
    busy = true;
    run.textContent = "Stop";
    const code = editor.code;
    const waiting = python.state !== "ready";
    status.textContent = waiting ? "Waiting for Python …" : "Checking …";
    status.dataset.outcome = "";
    const report = await grade(code);
    busy = false;
    run.textContent = "Check";
    if (typeof report === "string") showStopped(report);
    else show(report, code);
  }

  function showStopped(text: string): void {
    stepper?.destroy();
    stepper = null;
    results.replaceChildren();
    status.dataset.outcome = "wrong";
    status.textContent = text;
  }

  function show(report: Report, code: string): void {
    if (report.passed) {
      store.exercise(exercise.name).passed = code;
      store.save();
    }
    const wrong = report.rows.filter((row) => !row.right).length;
    status.dataset.outcome = report.passed ? "right" : "wrong";
    status.textContent = report.passed
      ? `Right. ${report.rows.length === 1 ? "The check passes" : `All ${report.rows.length} checks pass`}.`
      : report.error
        ? "Not yet: your code stopped with an error."
        : wrong
          ? `Not yet: ${wrong} of ${report.rows.length} ${report.rows.length === 1 ? "check" : "checks"} ${wrong === 1 ? "is" : "are"} wrong.`
          : "Not yet.";
    stepper?.destroy();
    stepper = null;
    results.replaceChildren();
    if (report.message) results.append(html("p", { class: "message" }, inlineProse(report.message)));
    if (report.error) results.append(errorView(report.error));
    if (report.rows.length) results.append(rowsView(report.rows));
    if (report.output) results.append(html("div", { class: "output" }, html("p", { class: "caption" }, "Printed"), html("pre", { tabindex: "0" }, report.output)));
    const line = report.error?.line;
    editor.mark(line ? [line] : [], "cm-wrong-line");
    if (line) editor.scrollTo(line);
    if (report.graphs.length) showGraphs(report);
  }

  function showGraphs({ graphs, rows }: Report): void {
    const place = html("div", { class: "own-graph" });
    const faults = graphs.map((graph, i) => faultsIn(graph, rows.filter((row) => row.graph === i)));
    const mount = (i: number) => {
      stepper?.destroy();
      stepper = mountStepper(place, graphs[i], { position: graphs[i].steps.length - 1 });
      for (const [node, expected] of faults[i]) stepper.highlight(node, `expected ${expected}`);
    };
    const first = Math.max(0, faults.findIndex((found) => found.size > 0));
    const words = graphs.length === 1 ? graphs[0].label || "" : "";
    results.append(html("p", { class: "caption" }, `What your own class built${words && `: ${words}`}`));
    if (graphs.length > 1) {
      const names = graphs.map((graph, i): [string, string] => [String(i), `${faults[i].size ? "✗ " : ""}${graph.label || `graph ${i + 1}`}`]);
      results.append(html("p", {}, select("Graph", names, String(first), (value) => mount(Number(value))).element));
    }
    results.append(place);
    mount(first);
  }

  function toggleFull(): void {
    const open = full.childElementCount === 0;
    showFull.setAttribute("aria-expanded", String(open));
    showFull.textContent = open ? "Hide the full class" : "Show the full class";
    full.replaceChildren();
    if (!open) return;
    const { text, first, count } = fill(exercise.template ?? "", editor.code, { ...exercise.parts, ...ownCodes(exercise.name) });
    const view = new Editor(full, { label: `The full class with your code for ${exercise.title} in its place`, code: text, readOnly: true });
    view.mark(Array.from({ length: count }, (_, i) => first + i), "cm-slot-line");
    view.scrollTo(first + Math.floor(count / 2));
  }

  const ladder = ladderView(exercise, {
    setCode(code) {
      editor.code = code;
      editor.view.focus();
    },
    passes: async (code) => {
      const report = await grade(code);
      return typeof report !== "string" && report.passed;
    },
  });
  const bar = html("div", { class: "bar" }, run, keys, again, ...(hasTemplate ? [showFull] : []));
  element.append(...(alone ? [heading] : []), prose(exercise.prompt), place, bar, status, results, full, ladder);
  if (saved.passed !== undefined && saved.passed === saved.code) {
    status.dataset.outcome = "right";
    status.textContent = "You solved this one.";
  }
  return element;
}

function errorView({ kind, text, line, column }: NonNullable<Report["error"]>): HTMLElement {
  const where = line ? `Line ${line}${column ? `, column ${column}` : ""}: ` : "";
  return html("p", { class: "error" }, html("strong", {}, `${where}${kind}`), html("span", { class: "error-text" }, text));
}

function rowsView(rows: Row[]): HTMLElement {
  const several = new Set(rows.map((row) => row.about)).size > 1;
  const where = (row: Row) => (several && row.about ? [html("span", { class: "where" }, `, ${row.about}`)] : []);
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
    { class: "table-scroller rows", tabindex: "0", role: "region", "aria-label": "Checks" },
    html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows.map(cells))),
  );
}

/** What wrong rows say about the nodes of a graph: what was expected there. */
function faultsIn(graph: Description, rows: Row[]): Map<number, string> {
  const found = new Map<number, string>();
  for (const row of rows) {
    const node = graph.nodes.findIndex((each) => each.name === row.node);
    if (!row.right && node >= 0 && !found.has(node)) found.set(node, row.expected);
  }
  return found;
}

interface Solver {
  setCode(code: string): void;
  passes(code: string): Promise<boolean>;
}

/** Hint, bigger hint, puzzle, solution: each is opened by hand, one after the other. */
function ladderView(exercise: Exercise, solver: Solver): HTMLElement {
  const opened = html("div", { class: "hints", role: "log", "aria-label": "Hints" });
  const rungs: [string, () => HTMLElement][] = exercise.hints.map((hint, i) => [i === 0 ? "Hint" : i === 1 ? "Bigger hint" : "Another hint", () => html("div", { class: "hint" }, prose(hint))]);
  if (exercise.puzzle.length > 1) rungs.push(["Puzzle: put the lines in order", () => new Puzzle(exercise, solver).element]);
  rungs.push(["Solution", () => solutionView(exercise, solver)]);

  const next = button("", () => {
    const open = Math.min(rungs.length, (store.exercise(exercise.name).hints ?? 0) + 1);
    store.exercise(exercise.name).hints = open;
    store.save();
    add(open - 1);
  });
  const add = (rung: number) => {
    opened.append(html("div", { class: "rung" }, html("p", { class: "caption" }, rungs[rung][0]), rungs[rung][1]()));
    label(rung + 1);
  };
  const label = (rung: number) => {
    next.hidden = rung >= rungs.length;
    next.textContent = rungs[rung]?.[0] ?? "";
  };
  label(0);
  const open = Math.min(store.exercise(exercise.name).hints ?? 0, rungs.length);
  for (let rung = 0; rung < open; rung++) add(rung);
  return html("div", { class: "ladder" }, opened, html("p", { class: "ladder-next" }, next));
}

function solutionView(exercise: Exercise, solver: Solver): HTMLElement {
  const code = html("code", {}, exercise.solution);
  highlight(code);
  return html("div", { class: "hint" }, html("pre", { class: "code", tabindex: "0" }, code), button("Put it into the editor", () => solver.setCode(exercise.solution)));
}
