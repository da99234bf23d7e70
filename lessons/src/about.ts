// The page "About": what this is, saving and loading progress, and the licences of everything in the site.

import type { Course } from "./course";
import { button, html, liveText } from "./elements";
import type { Page } from "./main";
import { save as saveFile } from "./my_engine";
import { store } from "./store";

interface Licence {
  name: string;
  version: string;
  licence: string;
  purpose: string;
  source: string; // where its source code is
  text: string;
}

export function aboutPage(course: Course): Page {
  const licences = html("div", { class: "licences" }, html("p", { role: "status" }, "Reading the licences …"));
  void fetch("licences.json")
    .then((answer) => answer.json())
    .then((entries: Licence[]) => licences.replaceChildren(...entries.map(licenceView)))
    .catch(() => licences.replaceChildren(html("p", { role: "status" }, "The licences could not be fetched: reload the page to try again. They are also in the file licences.json of the site.")));
  const paragraphs = [
    "These lessons build an autograd engine from nothing: a class of a hundred lines that knows the derivative of whatever is computed with it. They follow the path of Andrej Karpathy's micrograd lecture, and every figure on the way is computed in this page, by Python, from code that you write or can read.",
    "The Python files in the page are chainrule's own: the same engine, networks and graders that its tests run. The class you arrive at is in chainrule as closures.py.",
    "Nothing is sent anywhere. Your code, answers and progress are kept by this browser.",
  ];
  const element = html(
    "article",
    { class: "page about" },
    html("h1", {}, "About these lessons"),
    ...paragraphs.map((words) => html("p", {}, words)),
    html("h2", {}, "Your progress"),
    progressView(course),
    html("h2", {}, "Keys"),
    keysView(),
    html("h2", {}, "Licences"),
    html("p", {}, "chainrule is under the MIT licence. The site holds copies of these works, some of them bundled and shortened:"),
    licences,
  );
  return { title: "About", element };
}

function progressView(course: Course): HTMLElement {
  const status = liveText("progress-status");
  const exercises = course.lessons.flatMap((lesson) => lesson.blocks.filter((block) => block.type === "exercise"));
  const count = () => {
    const solved = exercises.filter(({ name }) => store.progress.exercises[name]?.passed !== undefined).length;
    return `${solved} of ${exercises.length} exercises are solved.`;
  };
  const words = html("p", {}, count());
  const save = button("Save to a file", () => {
    saveFile(store.toFile(), "chainrule-progress.json");
    status.textContent = "Saved.";
  });
  const file = html("input", { type: "file", accept: "application/json,.json", class: "cr-unseen", tabindex: "-1", "aria-label": "File with progress" }) as HTMLInputElement;
  file.addEventListener("change", async () => {
    try {
      store.fromFile((await file.files?.[0]?.text()) ?? "");
      status.textContent = "Read. Your progress is as it was when the file was saved.";
    } catch (error) {
      status.textContent = (error as Error).message;
    }
    file.value = "";
    words.textContent = count();
  });
  const load = button("Read from a file", () => file.click());
  const reset = button("Forget everything", () => {
    if (!confirm("Forget all code, answers and progress in this browser?")) return;
    store.reset();
    words.textContent = count();
    status.textContent = "Everything is as on the first day.";
  });
  return html("div", {}, words, html("div", { class: "bar" }, save, load, reset, file), status);
}

function keysView(): HTMLElement {
  const keys: [string, string][] = [
    ["Ctrl Enter", "check the exercise you are in (⌘ Enter on a Mac)"],
    ["Shift Enter", "run it without a check, where there is a button Run"],
    ["Esc, then Tab", "leave an editor; Tab alone indents there"],
    ["← →", "in a graph: one step back or on; with Shift, one node"],
    ["↑ ↓", "in a graph: from node to node"],
    ["Space", "in a graph: play or pause"],
  ];
  return html("dl", { class: "keys-list" }, ...keys.flatMap(([key, words]) => [html("dt", {}, html("kbd", {}, key)), html("dd", {}, words)]));
}

function licenceView({ name, version, licence, purpose, source, text }: Licence): HTMLElement {
  const summary = html("summary", {}, html("strong", {}, name), ` ${version}, ${purpose}: ${licence}`);
  const where = html("p", {}, "Source code: ", html("a", { href: source, rel: "noreferrer", target: "_blank" }, source));
  return html("details", {}, summary, where, html("pre", { tabindex: "0" }, text));
}
