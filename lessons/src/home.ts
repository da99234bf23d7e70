// The first page: a graph that steps by itself, what one will have built, and the way to where one left off.

import type { Description } from "../../src/chainrule/stepping/web/narration.js";
import { mountStepper } from "../../src/chainrule/stepping/web/stepper.js";
import { type Course, type Lesson, inlineProse } from "./course";
import { html, prefersReducedMotion } from "./elements";
import { type Live, lessonDone } from "./lesson";
import type { Page } from "./main";
import { store } from "./store";

const REST_MS = 5000; // between two runs of the graph

export function homePage(course: Course): Page {
  const graph = course.templates?.Training ? livingGraph() : { element: html("div", {}) };
  const items = course.lessons.map((lesson, i) => {
    const done = lessonDone(lesson);
    const words = done === 1 ? "done" : done > 0 ? "begun" : "";
    return html(
      "li",
      {},
      html("a", { href: `#/${lesson.id}` }, html("span", { class: "number" }, String(i + 1)), html("span", { class: "lesson-title" }, inlineProse(lesson.title)), html("span", { class: "lesson-summary" }, inlineProse(lesson.summary)), html("span", { class: "lesson-done" }, words)),
    );
  });
  const element = html(
    "article",
    { class: "page home" },
    html("h1", {}, "Build backpropagation yourself"),
    html("p", { class: "lead" }, `${inWords(course.lessons.length)}. You write the engine, a few lines at a time, and the class you write draws the graphs, steps through them and trains the networks on these pages.`),
    html("p", {}, way(course)),
    graph.element,
    ...(course.templates?.Training ? promise() : []),
    html("ol", { class: "toc" }, ...items),
  );
  return { title: "Learn", element, destroy: graph.destroy };
}

/** The link to the first lesson, to where one left off, or to the end. */
function way(course: Course): HTMLElement {
  const { last } = store.progress;
  const place = course.lessons.findIndex(({ id }) => id === last?.lesson);
  const inOrder = place < 0 ? course.lessons : [...course.lessons.slice(place), ...course.lessons.slice(0, place)];
  const lesson = inOrder.find((each) => lessonDone(each) < 1);
  if (!lesson) return html("a", { class: "go", href: course.templates?.Training ? "#/built" : `#/${course.lessons[0].id}` }, "You have finished: look at what you built");
  const exercise = exerciseLeft(lesson, last?.lesson === lesson.id ? last.exercise : "");
  const begun = course.lessons.some((each) => lessonDone(each) > 0);
  const words = [begun ? "Go on: " : "Begin: ", inlineProse(lesson.title), exercise ? `, ${exercise.title}` : ""];
  return html("a", { class: "go", href: `#/${lesson.id}${exercise ? `/${exercise.name}` : ""}` }, ...words);
}

/** The exercise that one was at, or if it is solved the next one that is not. */
function exerciseLeft(lesson: Lesson, name: string) {
  const exercises = lesson.blocks.filter((block) => block.type === "exercise");
  const place = exercises.findIndex((exercise) => exercise.name === name);
  if (place < 0) return undefined;
  return [...exercises.slice(place), ...exercises.slice(0, place)].find((exercise) => store.exercise(exercise.name).passed === undefined);
}

function promise(): HTMLElement[] {
  const pieces = ["a number that knows the derivative of whatever is computed with it", "neurons, layers and networks on top of it", "the loop that trains them, and a checker that finds wrong gradients", "a small GPT that makes up names", "all of it in one file of Python, yours to keep, that runs anywhere"];
  return [
    html("h2", {}, "What you will have built"),
    html("ul", { class: "pieces" }, ...pieces.map((words) => html("li", {}, words))),
    html("p", { class: "needs" }, html("b", {}, "Time: "), "about six hours, in sittings as short as you like. ", html("b", {}, "You need: "), "Python as far as functions and classes, and the idea of a slope. There is nothing to install, and no account."),
  ];
}

/** A graph that steps by itself, over and over; where motion is unwelcome it stands still and can be stepped by hand. */
function livingGraph(): Live {
  const place = html("div", { class: "wide live living stepper-place" });
  let stepper: ReturnType<typeof mountStepper> | null = null;
  let timer = 0;
  let left = false;
  const seen = new IntersectionObserver(([{ isIntersecting }]) => {
    if (!stepper || prefersReducedMotion()) return;
    if (isIntersecting && !byHand) stepper.play();
    else if (!isIntersecting && stepper.playing) stop(() => stepper?.pause());
  });
  let byHand = false;
  let stopping = false;
  const stop = (act: () => void) => {
    stopping = true;
    act();
    stopping = false;
  };
  void fetch("home_graph.json")
    .then((answer) => answer.json())
    .then((graph: Description) => {
      if (left) return;
      stepper = mountStepper(place, graph, { position: prefersReducedMotion() ? graph.steps.length - 1 : 0 });
      const voice = place.querySelector("[aria-live]");
      stepper.addEventListener("play", () => voice?.setAttribute("aria-live", "off")); // or it would speak without end
      stepper.addEventListener("pause", () => {
        voice?.setAttribute("aria-live", "polite");
        const ended = stepper?.position === graph.steps.length - 1;
        byHand ||= !stopping && !ended;
        if (ended && !byHand) timer = setTimeout(() => stepper?.play(), REST_MS);
      });
      seen.observe(place);
    })
    .catch(() => place.remove());
  return {
    element: place,
    destroy() {
      left = true;
      clearTimeout(timer);
      seen.disconnect();
      stop(() => stepper?.destroy());
      clearTimeout(timer);
    },
  };
}

function inWords(count: number): string {
  const words = ["No lessons", "One short lesson", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve", "Thirteen"];
  return count < 2 ? words[count] : `${words[count] ?? count} short lessons`;
}
