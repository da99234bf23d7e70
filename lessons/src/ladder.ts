// Hint, bigger hint, puzzle, solution: learners open them one after the other.

import { type Exercise, prose } from "./course";
import { button, html } from "./elements";
import { highlight } from "./highlight";
import { Puzzle, type Solver } from "./puzzle";
import { store } from "./store";

export function ladderView(exercise: Exercise, solver: Solver): HTMLElement {
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
