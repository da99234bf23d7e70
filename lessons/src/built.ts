// The last page: a look back at what the learner built, the file that holds it, and what it is called elsewhere.

import type { Course } from "./course";
import { Editor } from "./editor";
import { button, html, liveText } from "./elements";
import { highlight } from "./highlight";
import type { Live } from "./lesson";
import type { Page } from "./main";
import { type Engine, FILE, copy, downloadEngine, linesWritten, myEngine } from "./my_engine";
import { ownCodes } from "./own_code";
import { store } from "./store";

interface Row {
  title: string;
  words: string;
  exercises: string[];
  file: string;
  chainrule: string;
  torch: string;
}

export function builtPage(course: Course): Page {
  const exercises = course.lessons.flatMap((lesson) => lesson.blocks.filter((block) => block.type === "exercise"));
  const solved = exercises.filter(({ name }) => name in ownCodes()).length;
  const done = solved === exercises.length;
  const lead = done
    ? "An engine that differentiates whatever you compute with it, networks on top of it, and the loop that trains them. Nothing in it is a black box to you any more."
    : solved
      ? `So far, that is: ${solved} of ${exercises.length} exercises. What you have not written yet is lent by the course, and marked.`
      : "Nothing yet. As you solve exercises, your code is put together here.";
  const file = fileView(course);
  const bridge = html("div", { class: "bridge" }, html("p", { role: "status" }, "Reading …"));
  void fetch("bridge.json")
    .then((answer) => answer.json())
    .then((rows: Row[]) => bridge.replaceChildren(...rows.map((row) => rowView(row, course))))
    .catch(() => bridge.replaceChildren(html("p", { role: "status" }, "This part could not be fetched: reload the page to try again.")));
  const element = html(
    "article",
    { class: "page built" },
    html("h1", {}, "What you built"),
    html("p", { class: "lead" }, lead),
    counts(course),
    html("h2", {}, "Your file"),
    html("p", {}, "Everything in one file that needs nothing but Python. Keep it, change it, show it to somebody."),
    file.element,
    html("h2", {}, "What it is called elsewhere"),
    html("p", {}, "You know all of this now. chainrule's own engine and PyTorch say the same things in other words."),
    bridge,
    html("h2", {}, "Where to go from here"),
    further(course),
  );
  return { title: "What you built", element, destroy: file.destroy };
}

/** Lines, nodes and steps. All are counted, none is estimated. */
function counts(course: Course): HTMLElement {
  const { nodes, steps } = store.progress.built ?? { nodes: 0, steps: 0 };
  const figures: [number, string][] = [
    [linesWritten(course), "lines of Python that you wrote"],
    [nodes, "nodes that your Value made while networks trained"],
    [steps, "steps that they took downhill"],
  ];
  return html("dl", { class: "counts" }, ...figures.map(([count, words]) => html("div", {}, html("dt", {}, words), html("dd", {}, count.toLocaleString("en")))));
}

function fileView(course: Course): Live {
  const status = liveText("waiting");
  const place = html("div", { class: "my-engine" });
  let view: Editor | null = null;
  let engine: Engine | null = null;
  let left = false;
  void myEngine(course).then((found) => {
    if (left || !found) return;
    engine = found;
    view = new Editor(place, { label: `${FILE}, which you can read and copy here`, code: found.text, readOnly: true });
    view.mark(found.own, "cm-slot-line");
    status.textContent = found.lent.length ? "Your lines are coloured. Lent ones have a comment above them." : "Your lines are coloured. The rest came with the lessons.";
  });
  const take = button(`Download ${FILE}`, () => void downloadEngine(course), "primary");
  const clip = button("Copy", async () => {
    if (engine) status.textContent = (await copy(engine.text)) ? "Copied." : "This browser does not allow copying: select the text instead.";
  });
  return {
    element: html("div", { class: "wide live" }, html("div", { class: "bar" }, take, clip), place, status),
    destroy() {
      left = true;
      view?.destroy();
    },
  };
}

function rowView({ title, words, exercises, file, chainrule, torch }: Row, course: Course): HTMLElement {
  const own = ownCodes();
  const all = course.lessons.flatMap((lesson) => lesson.blocks.filter((block) => block.type === "exercise"));
  const lent = exercises.filter((name) => !(name in own));
  const yours = exercises.map((name) => own[name] ?? all.find((exercise) => exercise.name === name)?.solution ?? "").join("\n\n");
  const whose = lent.length === 0 ? "Yours" : lent.length === exercises.length ? "Lent, until you write it" : "Yours, and partly lent";
  return html("section", {}, html("h3", {}, title), html("p", {}, words), html("div", { class: "three" }, listing(whose, yours), listing(file, chainrule), listing("PyTorch", torch)));
}

function listing(title: string, text: string): HTMLElement {
  const code = html("code", {}, text);
  highlight(code);
  return html("figure", {}, html("figcaption", {}, title), html("pre", { class: "code", tabindex: "0", "aria-label": title }, code));
}

function further(course: Course): HTMLElement {
  const next = course.lessons.find((lesson) => lesson.blocks.some((block) => block.type === "exercise" && !(block.name in ownCodes())));
  const play = html("li", {}, html("a", { href: "#/playground" }, "The playground"), " runs the code above on points of your choice.");
  const keep = html("li", {}, html("a", { href: "#/about" }, "Save your progress"), " to a file. Teachers can grade that file: ", html("code", {}, "chainrule grade chainrule-progress.json"), ".");
  const missing = next ? [html("li", {}, html("a", { href: `#/${next.id}` }, `Go on with ${next.title}`), ": there are exercises that you have not solved.")] : [];
  return html("ul", {}, ...missing, play, keep);
}
