// A lesson: its blocks in order, and a link to the next lesson.

import { type Block, type Course, type Exercise, type Lesson, inlineProse, prose } from "./course";
import { html } from "./elements";
import { exerciseGroup } from "./exercise";
import type { Page } from "./main";
import { orderView } from "./order_block";
import { predictView } from "./predict";
import { quizSolved, quizView } from "./quiz";
import { stepperView } from "./stepper_block";
import { store } from "./store";
import { widgetView } from "./widgets";

/** An element with running parts, which stop when the page is left. */
export interface Live {
  element: HTMLElement;
  destroy?: () => void;
}

/** The lesson, with the `exercise` of that name in front of its group. */
export function lessonPage(course: Course, lesson: Lesson, exercise = ""): Page {
  store.progress.visited[lesson.id] = true;
  store.left(lesson.id, exercise);
  store.save();
  const place = course.lessons.indexOf(lesson);
  const parts = inGroups(lesson.blocks).map((part) => (Array.isArray(part) ? exerciseGroup(lesson.id, part, exercise) : blockView(course, part)));
  const element = html(
    "article",
    { class: "page lesson" },
    html("p", { class: "kicker" }, `Lesson ${place + 1} of ${course.lessons.length}`),
    inlineProse(lesson.title, "h1"),
    html("p", { class: "lead" }, inlineProse(lesson.summary)),
    ...parts.map((part) => part.element),
    ways(course, place),
  );
  return { title: lesson.title, element, destroy: () => parts.forEach((part) => part.destroy?.()) };
}

function blockView(course: Course, block: Exclude<Block, Exercise>): Live {
  switch (block.type) {
    case "prose":
      return { element: prose(block.markdown) };
    case "quiz":
      return { element: quizView(block) };
    case "stepper":
      return stepperView(course, block.code, block.own);
    case "order":
      return orderView(course, block.code, block.own);
    case "predict":
      return predictView(block.name, block.code);
    case "widget":
      return widgetView(course, block.name, block.attributes);
  }
}

/** Moves all exercises of a group to where the first one is. */
function inGroups(blocks: Block[]): (Exclude<Block, Exercise> | Exercise[])[] {
  const groups = new Map<string, Exercise[]>();
  const parts: (Exclude<Block, Exercise> | Exercise[])[] = [];
  for (const block of blocks) {
    if (block.type !== "exercise") {
      parts.push(block);
    } else if (block.group && groups.has(block.group)) {
      groups.get(block.group)?.push(block);
    } else {
      const group = [block];
      parts.push(group);
      if (block.group) groups.set(block.group, group);
    }
  }
  return parts;
}

function ways({ lessons, templates }: Course, place: number): HTMLElement {
  const way = (to: { id: string; title: string } | undefined, words: string, side: string) =>
    to ? [html("a", { href: `#/${to.id}`, class: side }, html("span", {}, words), html("strong", {}, inlineProse(to.title)))] : [];
  const end = templates?.Training ? { id: "built", title: "What you built" } : undefined;
  return html("nav", { class: "ways", "aria-label": "Other lessons" }, ...way(lessons[place - 1], "Previous", "before"), ...way(lessons[place + 1] ?? end, "Next", "after"));
}

/** How much of a lesson is done, from 0 to 1. A lesson without tasks is done once it was seen. */
export function lessonDone(lesson: Lesson): number {
  const tasks = lesson.blocks.flatMap((block) => {
    if (block.type === "exercise") return [store.progress.exercises[block.name]?.passed !== undefined];
    if (block.type === "quiz") return [quizSolved(block)];
    return [];
  });
  const seen = store.progress.visited[lesson.id] === true;
  if (tasks.length === 0) return seen ? 1 : 0;
  return Math.max(tasks.filter(Boolean).length / tasks.length, seen ? 0.01 : 0);
}
