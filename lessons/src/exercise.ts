// An exercise: prompt, editor, run and check; the report; and the ladder of hints, puzzle and solution.

import { type Exercise, prose } from "./course";
import { Editor } from "./editor";
import { button, html, liveText, newId } from "./elements";
import { ladderView } from "./ladder";
import type { Live } from "./lesson";
import { fill, linesAskedFor, ownCodes } from "./own_code";
import { python } from "./python";
import { type Ran, type Report, ranView, reportView, verdict } from "./report";
import { store } from "./store";

const CHECK_SECONDS = 5;
const CHECK_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ Enter" : "Ctrl Enter";

/** Exercises of one group as tabs; a single exercise has none. */
export function exerciseGroup(lesson: string, exercises: Exercise[], wanted = ""): Live {
  const views = exercises.map((exercise) => exerciseView(lesson, exercise, exercises.length === 1));
  const destroyViews = () => views.forEach((view) => view.destroy?.());
  if (exercises.length === 1) {
    return { element: html("section", { class: "exercise live", "aria-label": `Exercise: ${exercises[0].title}` }, views[0].element), destroy: destroyViews };
  }
  const stem = newId("exercise");
  const panels = views.map((view, i) => html("div", { role: "tabpanel", id: `${stem}-panel-${i}`, "aria-labelledby": `${stem}-tab-${i}`, tabindex: "-1" }, view.element));
  const marks = exercises.map(() => html("span", { class: "tab-done" }));
  const tabs = exercises.map((exercise, i) => html("button", { type: "button", role: "tab", id: `${stem}-tab-${i}`, "aria-controls": `${stem}-panel-${i}` }, exercise.title, marks[i]));
  const showDone = () =>
    exercises.forEach(({ name }, i) => marks[i].replaceChildren(...(store.exercise(name).passed === undefined ? [] : [html("span", { role: "img", "aria-label": "solved" }, " ✓")])));
  const choose = (chosen: number, focus = false) => {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
      panels[i].hidden = i !== chosen;
    });
    if (focus) tabs[chosen].focus();
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(i));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault(); // Home and End would scroll the page
      choose((to + tabs.length) % tabs.length, true);
    });
  });
  const first = exercises.findIndex((exercise) => store.exercise(exercise.name).passed === undefined);
  const asked = exercises.findIndex(({ name }) => name === wanted);
  choose(Math.max(0, asked < 0 ? first : asked));
  showDone();
  store.addEventListener("change", showDone);
  const list = html("div", { role: "tablist", class: "tabs", "aria-label": "Exercises" }, ...tabs);
  return {
    element: html("section", { class: "exercise live", "aria-label": "Exercises" }, list, ...panels),
    destroy() {
      store.removeEventListener("change", showDone);
      destroyViews();
    },
  };
}

function exerciseView(lesson: string, exercise: Exercise, alone: boolean): Live {
  const place = html("div", { class: "editor" });
  const status = liveText("exercise-status");
  const results = html("div", { class: "results" });
  const saved = store.exercise(exercise.name);
  let working: { with: HTMLButtonElement; abort: AbortController } | null = null; // one thing at a time
  let shown: Live | null = null;
  let left = false;

  const editor = new Editor(place, {
    label: `Your code for ${exercise.title}. Escape, then Tab, leaves the editor.`,
    code: saved.code ?? exercise.starter,
    onChange(code) {
      store.exercise(exercise.name).code = code;
      store.left(lesson, exercise.name);
      store.save();
      editor.mark([], "cm-wrong-line");
    },
    onCheck: () => void check(),
    ...(exercise.prints && { onRun: () => void run() }),
  });
  place.addEventListener("focusin", () => python.wake(), { once: true });

  const checks = button("Check", () => pressed(checks, check), "primary");
  checks.setAttribute("aria-keyshortcuts", "Control+Enter");
  const runs = button("Run", () => pressed(runs, run));
  runs.setAttribute("aria-keyshortcuts", "Shift+Enter");
  const controls = exercise.prints ? [checks, runs] : [checks];
  const running = exercise.prints ? [html("span", {}, html("kbd", {}, "Shift Enter"), " runs,")] : [];
  const keys = html("span", { class: "keys" }, html("span", { class: "leaving" }, html("kbd", {}, "Esc"), " ", html("kbd", {}, "Tab"), " leaves the editor,"), ...running, html("span", {}, html("kbd", {}, CHECK_KEYS), " checks"));
  const again = button("Start over", () => {
    if (!confirm("Put the code back to where it began?")) return;
    editor.code = exercise.starter;
    clear();
    say("");
  });
  const full = fullClass(exercise, () => editor.code);

  function say(words: string, outcome = ""): void {
    status.dataset.outcome = outcome;
    status.textContent = words;
  }

  function clear(): void {
    shown?.destroy?.();
    shown = null;
    results.replaceChildren();
  }

  /** What a function of the grader returns for this code, or why it returns nothing. */
  async function ask<Result>(name: "grade_json" | "run_json", code: string, signal?: AbortSignal): Promise<Result | string> {
    const args = [JSON.stringify(exercise), exercise.name, code, JSON.stringify(ownCodes(exercise.name))];
    const answer = await python.call("chainrule.learn.grading", name, args, CHECK_SECONDS, signal);
    if (answer.kind === "done") return JSON.parse(answer.text) as Result;
    if (answer.kind === "stopped") return answer.text;
    python.restart(); // graders raise nothing, unless code has changed them
    return "Code that ran before has changed Python itself. A fresh Python has taken its place: try again.";
  }

  function pressed(control: HTMLButtonElement, work: () => Promise<void>): void {
    if (working?.with === control) working.abort.abort();
    else void work();
  }

  /** Begins something that its own button stops, while the other one waits. */
  function begin(control: HTMLButtonElement, words: string): AbortSignal {
    working = { with: control, abort: new AbortController() };
    for (const each of controls) each.setAttribute("aria-disabled", String(each !== control));
    control.textContent = "Stop";
    say(python.state === "ready" ? words : "Waiting for Python …");
    return working.abort.signal;
  }

  function end(): void {
    working = null;
    for (const each of controls) each.removeAttribute("aria-disabled");
    runs.textContent = "Run";
    checks.textContent = "Check";
    clear();
  }

  async function check(): Promise<void> {
    if (working) return;
    const signal = begin(checks, "Checking …");
    const asked = linesAskedFor(exercise, editor.code);
    if (asked !== null) editor.code = asked;
    const code = editor.code;
    const report = await ask<Report>("grade_json", code, signal);
    if (typeof report !== "string" && report.passed) {
      store.exercise(exercise.name).passed = code;
      store.save();
    }
    if (left) return;
    end();
    if (typeof report === "string") say(report, "wrong");
    else {
      say(verdict(report), report.passed ? "right" : "wrong");
      show(reportView(report), report.error, code);
    }
    if (asked !== null) status.append(" Only the lines that are asked for were taken from what you pasted; the rest is there already.");
  }

  async function run(): Promise<void> {
    if (working) return;
    const signal = begin(runs, "Running …");
    const { code } = editor;
    const ran = await ask<Ran>("run_json", code, signal);
    if (left) return;
    end();
    if (typeof ran === "string") return say(ran, "wrong");
    if (ran.error) say("Your code stopped with an error.", "wrong");
    else say(ran.output ? "Your code ran to its end." : "Your code ran to its end. Nothing was printed.");
    show(ranView(ran), ran.error, code);
  }

  function show(view: Live, error: Report["error"], code: string): void {
    shown = view;
    results.append(view.element);
    const line = error?.line;
    if (code !== editor.code) return; // lines may have moved
    editor.mark(line ? [line] : [], "cm-wrong-line");
    if (line) editor.scrollTo(line);
  }

  const ladder = ladderView(exercise, {
    setCode(code) {
      editor.code = code;
      editor.view.focus();
    },
    passes: async (code) => {
      const report = await ask<Report>("grade_json", code);
      return typeof report !== "string" && report.passed;
    },
  });
  const tabs = otherTab(exercise, editor);
  if (saved.passed !== undefined && saved.passed === saved.code) say("You solved this one.", "right");
  const heading = alone ? [html("h3", {}, exercise.title)] : [];
  const bar = html("div", { class: "bar" }, ...controls, again, ...full.buttons, keys);
  return {
    element: html("div", { class: "exercise-body", "data-exercise": exercise.name }, ...heading, prose(exercise.prompt), tabs.element, place, bar, status, results, full.element, ladder),
    destroy() {
      left = true;
      working?.abort.abort();
      clear();
      full.destroy();
      tabs.destroy?.();
      editor.destroy();
    },
  };
}

/** Says when another tab has changed the code, and offers both versions: neither tab writes over the other unseen. */
function otherTab(exercise: Exercise, editor: Editor): Live {
  const element = html("div", { class: "other-tab", role: "status", hidden: "" });
  let other = "";
  const listen = () => {
    const { code = exercise.starter } = store.exercise(exercise.name);
    if (code === editor.code) {
      element.hidden = true;
      return;
    }
    other = code;
    if (!element.hidden) return;
    element.hidden = false;
    element.replaceChildren(
      html("p", {}, "This exercise was changed in another tab. Which code do you want to keep?"),
      html("div", { class: "bar" }, button("The other tab's", () => end(other)), button("What is here", () => end(editor.code))),
    );
  };
  const end = (code: string) => {
    element.hidden = true;
    editor.code = code;
    store.exercise(exercise.name).code = code;
    store.save();
    editor.view.focus();
  };
  store.addEventListener("elsewhere", listen);
  return { element, destroy: () => store.removeEventListener("elsewhere", listen) };
}

/** The whole class with the learner's lines highlighted, and the button that opens it; none if there is no code around them. */
function fullClass(exercise: Exercise, code: () => string): { element: HTMLElement; buttons: HTMLElement[]; destroy: () => void } {
  const element = html("div", { class: "full-class" });
  let view: Editor | null = null;
  const close = () => {
    view?.destroy();
    view = null;
  };
  const toggle = button("Show the full class", () => {
    const open = view === null;
    toggle.setAttribute("aria-expanded", String(open));
    toggle.textContent = open ? "Hide the full class" : "Show the full class";
    if (!open) return close();
    const { text, places } = fill(exercise.template, code(), { ...exercise.parts, ...ownCodes(exercise.name) });
    const { from: first, count } = places[""];
    view = new Editor(element, { label: `The full class with your code for ${exercise.title} in its place`, code: text, readOnly: true });
    view.mark(Array.from({ length: count }, (_, i) => first + i), "cm-slot-line");
    view.scrollTo(first + Math.floor(count / 2));
  });
  toggle.setAttribute("aria-expanded", "false");
  const alone = exercise.template.trim() === "# --- your code ---";
  return { element, buttons: alone ? [] : [toggle], destroy: close };
}
