// my_engine.py: everything the learner has written, as one file that runs anywhere. What is missing is lent, and marked.

import type { Course, Exercise } from "./course";
import { html } from "./elements";
import MAIN from "./moons_main.py";
import { type Lent, type Source, fill, ownCodes, ownProgram, slotsOf, solutions } from "./own_code";
import { python } from "./python";

export const FILE = "my_engine.py";

export interface Engine {
  text: string;
  own: number[]; // the learner's lines in it, from 1
  lent: string[]; // exercises that are not the learner's
}

/** The file, or null in a course that has no training to write. */
export async function myEngine(course: Course): Promise<Engine | null> {
  const program = ownProgram(course);
  if (!program) return null;
  const failing = await failingIn(JSON.stringify(program));
  const own = Object.fromEntries(Object.entries(program.own).filter(([name]) => !failing.includes(name)));
  const lent = new Set<string>();
  const lesson = (name: string) => course.lessons.findIndex(({ blocks }) => blocks.some((block) => block.type === "exercise" && block.name === name)) + 1;
  const remark = (name: string) => {
    if (name in own) return "";
    lent.add(name);
    return failing.includes(name) ? `# Lent by the course: with yours, of lesson ${lesson(name)}, the program does not train.` : `# Lent by the course until you write it, in lesson ${lesson(name)}.`;
  };
  const body = fill(program.template, "", { ...program.lent, ...own }, remark);
  const head = `"""${headline(lent.size)}\n\nIt needs nothing but Python: \`python ${FILE}\` trains a network on two moons.\n"""\n\n`;
  const parts: Source[] = [body, ...tools(course, own), ...gpt(course, own, remark), { text: MAIN.trim(), places: {} }];
  const lines: number[] = [];
  let text = head;
  for (const part of parts) {
    const first = text.split("\n").length - 1;
    for (const [name, { from, count }] of Object.entries(part.places)) if (name in own) lines.push(...Array.from({ length: count }, (_, i) => first + from + i));
    text += `${part.text}\n\n\n`;
  }
  return { text: `${text.trimEnd()}\n`, own: lines, lent: [...lent] };
}

function headline(lent: number): string {
  return `An engine, a network and a training loop, ${lent ? "as I am writing them" : "as I wrote them"} in chainrule's course.`;
}

/** Functions and classes that the learner wrote beside the program, such as the gradient check. */
function tools(course: Course, own: Record<string, string>): Source[] {
  const exercises = course.lessons.flatMap(({ blocks }) => blocks.filter((block): block is Exercise => block.type === "exercise"));
  const elsewhere = [...slotsOf(course.templates?.Training), ...slotsOf(course.templates?.GPT)];
  const written = exercises.filter(({ name, solution }) => name in own && /^(def (?!_)|class )/.test(solution) && !elsewhere.includes(name));
  return written.map(({ name }) => fill(`# --- code of ${name} ---`, "", own));
}

/** The GPT of the last lesson, once a part of it is the learner's. The `Value` that it is made of is there already. */
function gpt(course: Course, own: Record<string, string>, remark: (name: string) => string): Source[] {
  const { Value: engine = "", GPT: template = "" } = course.templates ?? {};
  const rest = template.slice(template.indexOf(engine) + engine.length).trim();
  const parts = slotsOf(rest);
  return parts.some((name) => name in own) ? [fill(rest, "", { ...solutions(course), ...own }, remark)] : [];
}

/** Parts that passed, but with which the program fails. It takes Python to find them: without it, none are known. */
async function failingIn(program: string): Promise<string[]> {
  if (python.state !== "ready" && python.state !== "busy") return [];
  const answer = await python.call("chainrule.learn.own_program", "report", [program]);
  return answer.kind === "done" ? (JSON.parse(answer.text) as Lent).failing : [];
}

/** Lines of code that the learner has written, and not found in an exercise's starter. */
export function linesWritten(course: Course): number {
  const exercises = course.lessons.flatMap(({ blocks }) => blocks.filter((block): block is Exercise => block.type === "exercise"));
  const codes = ownCodes();
  const count = ({ name, starter }: Exercise) => {
    const given = new Set(starter.split("\n").map((line) => line.trim()));
    return (codes[name] ?? "").split("\n").filter((line) => line.trim() && !line.trim().startsWith("#") && !given.has(line.trim())).length;
  };
  return exercises.map(count).reduce((sum, n) => sum + n, 0);
}

export async function downloadEngine(course: Course): Promise<void> {
  const engine = await myEngine(course);
  if (engine) save(new Blob([engine.text], { type: "text/x-python" }), FILE);
}

/** Hands a file to the browser's downloads. */
export function save(file: Blob, name: string): void {
  const link = html("a", { href: URL.createObjectURL(file), download: name }) as HTMLAnchorElement;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Copies a text; where the page may not use the clipboard itself, through a field. Returns whether it worked. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = html("textarea", { class: "cr-unseen" }, text) as HTMLTextAreaElement;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}
