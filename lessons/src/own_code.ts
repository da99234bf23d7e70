// The learner's own code: templates filled with it, and with the course's solutions where they have none.

import type { Course } from "./course";
import { store } from "./store";

const SLOT = /^([ \t]*)# --- (your code|code of ([\w-]+)) ---[ \t]*$/;

export interface Source {
  text: string;
  places: Record<string, { from: number; count: number }>; // the lines of each exercise's code, from 1; "" is the one being edited
}

/** Code that passed, by exercise name, without the exercise `except`, which is being edited. */
export function ownCodes(except = ""): Record<string, string> {
  const passed = Object.entries(store.progress.exercises).filter(([name, { passed }]) => passed !== undefined && name !== except);
  return Object.fromEntries(passed.map(([name, progress]) => [name, progress.passed as string]));
}

/** Calls `act` whenever code that passed has changed, until the function that this returns is called. */
export function whenOwnCodeChanges(act: () => void): () => void {
  let before = JSON.stringify(ownCodes());
  const look = () => {
    const after = JSON.stringify(ownCodes());
    if (after === before) return;
    before = after;
    act();
  };
  store.addEventListener("change", look);
  return () => store.removeEventListener("change", look);
}

/** The source of the learner's class: their code, and solutions where they have none. */
export function ownSource(course: Course): string {
  const template = course.templates?.Value;
  return template ? fill(template, "", { ...solutions(course), ...ownCodes() }).text : "";
}

/** The learner's whole program, engine to training loop, as `chainrule.learn.own_program` takes it. */
export interface Program {
  template: string;
  own: Record<string, string>; // code by exercise
  lent: Record<string, string>;
  engine: string; // "own", or "chainrule" for its Value in place of the learner's
}

/** What of a program was lent when it ran: not written yet, or written and failing. */
export interface Lent {
  lent: string[];
  failing: string[];
}

/** The learner's program, by the name of its template; null in a course that has none. */
export function ownProgram(course: Course, engine = "own", name = "Training"): Program | null {
  const template = course.templates?.[name];
  return template ? { template, own: ownCodes(), lent: solutions(course), engine } : null;
}

/** The exercises whose code a template holds, in its order. */
export function slotsOf(template = ""): string[] {
  return [...new Set(template.split("\n").flatMap((line) => SLOT.exec(line)?.[3] ?? []))];
}

/** `chainrule.learn.course.fill`, for when Python is not loaded yet. A `remark` on an exercise goes above its code. */
export function fill(template: string, code: string, codes: Record<string, string>, remark: (name: string) => string = () => ""): Source {
  const lines: string[] = [];
  const places: Source["places"] = {};
  for (const line of template.split("\n")) {
    const slot = SLOT.exec(line);
    if (!slot) {
      lines.push(line);
      continue;
    }
    const name = slot[3] ?? "";
    const inserted = dedent((name ? (codes[name] ?? "pass") : code).replace(/\n$/, "").split("\n"));
    const above = remark(name);
    if (above) lines.push(slot[1] + above);
    places[name] = { from: lines.length + 1, count: inserted.length };
    lines.push(...inserted.map((text) => (text.trim() ? slot[1] + text : text)));
  }
  return { text: lines.join("\n"), places };
}

/** If the code holds the method or class around the lines that an exercise asks for: those lines. Else null. */
export function linesAskedFor({ template, starter }: { template: string; starter: string }, code: string): string | null {
  const wanted = DEFINITION.exec(starter)?.[2];
  const lines = template.split("\n");
  const slot = lines.findIndex((line) => SLOT.test(line) && line.includes("your code"));
  const depth = indentOf(lines[slot] ?? "");
  const around = lines.slice(0, slot).findLast((line) => DEFINITION.test(line) && indentOf(line) < depth);
  const outer = around && definition(code.split("\n"), (DEFINITION.exec(around) as RegExpExecArray)[2]);
  const inner = outer && wanted && definition(outer.slice(1), wanted);
  return inner ? dedent(inner).join("\n") : null;
}

const DEFINITION = /^[ \t]*(def|class) (\w+)/m;

/** The lines that define `name`: its first, and those below that are indented more. */
function definition(lines: string[], name: string): string[] | undefined {
  const first = lines.findIndex((line) => DEFINITION.exec(line)?.[2] === name);
  if (first < 0) return undefined;
  const length = lines.slice(first + 1).findIndex((line) => line.trim() && indentOf(line) <= indentOf(lines[first]));
  const block = lines.slice(first, length < 0 ? undefined : first + 1 + length);
  return block.slice(0, block.findLastIndex((line) => line.trim()) + 1);
}

function indentOf(line: string): number {
  return (/^[ \t]*/.exec(line) as RegExpExecArray)[0].length;
}

/** The code without common indentation. */
function dedent(lines: string[]): string[] {
  const indents = lines.filter((line) => line.trim()).map((line) => (/^[ \t]*/.exec(line) as RegExpExecArray)[0]);
  const shared = indents.reduce((a, b) => (a.length < b.length ? a : b), indents[0] ?? "");
  return indents.every((indent) => indent.startsWith(shared)) ? lines.map((line) => line.slice(line.trim() ? shared.length : 0)) : lines;
}

/** All solutions of the course, by exercise name. */
export function solutions(course: Course): Record<string, string> {
  const exercises = course.lessons.flatMap((lesson) => lesson.blocks.filter((block) => block.type === "exercise"));
  return Object.fromEntries(exercises.map(({ name, solution }) => [name, solution]));
}
