// The course as data, as `chainrule.learn.grading.course_json` writes it, and math typeset when the site was built.

import { highlight } from "./highlight";
import { renderInline, renderMarkdown } from "./markdown";

export interface Wrong {
  message: string;
  code: string;
}

export interface Exercise {
  type: "exercise";
  name: string;
  title: string;
  group: string;
  prompt: string;
  starter: string;
  template: string;
  solution: string;
  check: string;
  hints: string[];
  wrong: Wrong[];
  puzzle: string[];
  prints: boolean; // by itself, so that it can be run without being checked
  parts: Record<string, string>; // solutions of the exercises that the template names
}

export interface Quiz {
  type: "quiz";
  name: string;
  question: string;
  choices: { text: string; right: boolean; explanation: string }[];
}

export type Block =
  | { type: "prose"; markdown: string }
  | Exercise
  | Quiz
  | { type: "stepper"; code: string; own: boolean }
  | { type: "order"; code: string; own: boolean }
  | { type: "predict"; name: string; code: string }
  | { type: "widget"; name: string; attributes: Record<string, string> };

export interface Lesson {
  id: string;
  title: string;
  summary: string;
  blocks: Block[];
}

export interface Course {
  version: number;
  lessons: Lesson[];
  templates?: Record<string, string>;
  rendered?: Record<string, string>; // Markdown with math -> HTML
  error?: string;
}

export { renderInline, renderMarkdown };

let rendered: Record<string, string> = {};

export async function loadCourse(): Promise<Course> {
  const answer = await fetch("course.json", { cache: "no-cache" });
  if (!answer.ok) throw new Error(`course.json: ${answer.status} ${answer.statusText}`);
  const course = (await answer.json()) as Course;
  if (course.error) throw new Error(course.error);
  rendered = course.rendered ?? {};
  return course;
}

/** An element with Markdown rendered to HTML. */
export function prose(markdown: string, tag = "div", className = "prose"): HTMLElement {
  const element = document.createElement(tag);
  element.className = className;
  element.innerHTML = rendered[markdown] ?? renderMarkdown(markdown);
  for (const code of element.querySelectorAll<HTMLElement>("pre[data-language=python] > code")) highlight(code);
  return element;
}

/** The same without a paragraph, for labels and table cells. */
export function inlineProse(markdown: string, tag = "span"): HTMLElement {
  const element = document.createElement(tag);
  element.innerHTML = rendered[`inline:${markdown}`] ?? renderInline(markdown);
  return element;
}

/** Every Markdown text of the course, and whether it is inline. The build typesets the math in them. */
export function markdownTexts(course: Course): { text: string; inline: boolean }[] {
  return course.lessons.flatMap((lesson) => [
    { text: lesson.summary, inline: true },
    { text: lesson.title, inline: true },
    ...lesson.blocks.flatMap((block) => {
      if (block.type === "prose") return [{ text: block.markdown, inline: false }];
      if (block.type === "quiz") {
        const choices = block.choices.flatMap(({ text, explanation }) => [text, explanation].map((each) => ({ text: each, inline: true })));
        return [{ text: block.question, inline: false }, ...choices];
      }
      if (block.type !== "exercise") return [];
      const messages = block.wrong.map(({ message }) => ({ text: message, inline: true }));
      return [...[block.prompt, ...block.hints].map((text) => ({ text, inline: false })), ...messages];
    }),
  ]);
}
