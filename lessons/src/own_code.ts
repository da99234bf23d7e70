// The learner's own class: templates filled with their code, and with the course's solutions where they have none.

import type { Course } from "./course";
import { store } from "./store";

const SLOT = /^([ \t]*)# --- (your code|code of ([\w-]+)) ---[ \t]*$/;

export interface Source {
  text: string;
  first: number; // line of the learner's first line, from 1
  count: number;
}

/** Code that passed, by exercise name, without the exercise `except`, which is being edited. */
export function ownCodes(except = ""): Record<string, string> {
  const passed = Object.entries(store.progress.exercises).filter(([name, { passed }]) => passed !== undefined && name !== except);
  return Object.fromEntries(passed.map(([name, progress]) => [name, progress.passed as string]));
}

/** The source of the learner's class: their code, and solutions where they have none. */
export function ownSource(course: Course): string {
  const template = course.templates?.Value;
  return template ? fill(template, "", { ...solutions(course), ...ownCodes() }).text : "";
}

/** `chainrule.learn.course.fill`, for when Python is not loaded yet. */
export function fill(template: string, code: string, codes: Record<string, string>): Source {
  const lines: string[] = [];
  let [first, count] = [0, 0];
  for (const line of template.split("\n")) {
    const slot = SLOT.exec(line);
    if (!slot) {
      lines.push(line);
      continue;
    }
    const inserted = dedent((slot[3] ? (codes[slot[3]] ?? "pass") : code).replace(/\n$/, "").split("\n"));
    if (!slot[3]) [first, count] = [lines.length + 1, inserted.length];
    lines.push(...inserted.map((text) => (text.trim() ? slot[1] + text : text)));
  }
  return { text: lines.join("\n"), first, count };
}

/** The code without common indentation. */
function dedent(lines: string[]): string[] {
  const indents = lines.filter((line) => line.trim()).map((line) => (/^[ \t]*/.exec(line) as RegExpExecArray)[0]);
  const shared = indents.reduce((a, b) => (a.length < b.length ? a : b), indents[0] ?? "");
  return indents.every((indent) => indent.startsWith(shared)) ? lines.map((line) => line.slice(line.trim() ? shared.length : 0)) : lines;
}

/** All solutions of the course, by exercise name. */
function solutions(course: Course): Record<string, string> {
  const exercises = course.lessons.flatMap((lesson) => lesson.blocks.filter((block) => block.type === "exercise"));
  return Object.fromEntries(exercises.map(({ name, solution }) => [name, solution]));
}
