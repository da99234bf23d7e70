// The learner's own class: templates with what they wrote in its places, and the course's solutions where they have not.

import type { Course } from "./course";
import { store } from "./store";

const SLOT = /^([ \t]*)# --- (your code|code of ([\w-]+)) ---[ \t]*$/;

export interface Source {
  text: string;
  first: number; // line of the learner's first line, from 1
  count: number;
}

/** What passed, by the names of the exercises; `except` is being written at present. */
export function ownCodes(except = ""): Record<string, string> {
  const passed = Object.entries(store.progress.exercises).filter(([name, { passed }]) => passed !== undefined && name !== except);
  return Object.fromEntries(passed.map(([name, progress]) => [name, progress.passed as string]));
}

/** The source of the learner's class: what they wrote, and solutions where they have not. */
export function ownSource(course: Course): string {
  const template = course.templates?.Value;
  return template ? fill(template, "", { ...solutions(course), ...ownCodes() }).text : "";
}

/** `chainrule.learn.templates.fill`, for when Python is not there yet. */
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

/** Without an indentation that all lines share. */
function dedent(lines: string[]): string[] {
  const indents = lines.filter((line) => line.trim()).map((line) => (/^[ \t]*/.exec(line) as RegExpExecArray)[0]);
  const shared = indents.reduce((a, b) => (a.length < b.length ? a : b), indents[0] ?? "");
  return indents.every((indent) => indent.startsWith(shared)) ? lines.map((line) => line.slice(line.trim() ? shared.length : 0)) : lines;
}

/** All solutions of the course, by the names of their exercises. */
function solutions(course: Course): Record<string, string> {
  const exercises = course.lessons.flatMap((lesson) => lesson.blocks.filter((block) => block.type === "exercise"));
  return Object.fromEntries(exercises.map(({ name, solution }) => [name, solution]));
}
