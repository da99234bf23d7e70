// The site: contents, lessons, playground and "About". The address after # says which page is shown.

import { aboutPage } from "./about";
import { builtPage } from "./built";
import { type Course, type Lesson, inlineProse, loadCourse } from "./course";
import { button, html } from "./elements";
import { lessonDone, lessonPage } from "./lesson";
import { recall, remember } from "./memory";
import { FILE, downloadEngine } from "./my_engine";
import { playgroundPage } from "./playground";
import { python } from "./python";
import { store } from "./store";

declare const PYTHON_BYTES: number;

export interface Page {
  title: string;
  element: HTMLElement;
  destroy?: () => void;
}

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" } as const;
const THEME = "chainrule-learn-theme";
const LOADED_BEFORE = "chainrule-learn-python";

const app = document.querySelector("#app") as HTMLElement;
const content = html("main", { id: "content", tabindex: "-1" });
let course: Course;
let shown: Page | null = null;

void begin();

async function begin(): Promise<void> {
  applyTheme(recall(THEME) ?? "auto");
  try {
    course = await loadCourse();
  } catch (error) {
    app.replaceChildren(html("main", { class: "notice", id: "content" }, html("h1", {}, "The lessons could not be read"), html("pre", { tabindex: "0" }, String((error as Error).message))));
    return;
  }
  app.replaceChildren(header(), html("div", { class: "columns" }, sidebar(), content), footer());
  addEventListener("hashchange", () => route());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
  store.addEventListener("full", () => notice("This browser keeps no more: save your progress to a file."), { once: true });
  if (!location.hash) scrollTo(0, 0);
  route();
  loadPythonWhenFit();
}

/** Python needs no permission to load if it comes from this computer or was fetched before. */
function loadPythonWhenFit(): void {
  const local = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  if (local || recall(LOADED_BEFORE)) requestIdleCallback(() => python.wake(), { timeout: 1500 });
  python.addEventListener("state", () => python.state === "ready" && remember(LOADED_BEFORE, "1"));
}

function route(): void {
  const address = location.hash.replace(/^#\/?/, "");
  if (address === "content") return; // the link that skips the contents
  const place = address.split("?")[0]; // what follows is the playground's
  shown?.destroy?.();
  shown = pageAt(place);
  document.title = `${shown.title} · chainrule`;
  content.replaceChildren(shown.element);
  document.querySelector<HTMLDetailsElement>(".menu")?.removeAttribute("open");
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".contents a")) {
    if (link.hash === `#/${place}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (document.activeElement !== document.body || scrollY > 0) {
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function pageAt(place: string): Page {
  if (place === "") return home();
  if (place === "about") return aboutPage(course);
  if (place === "built" && course.templates?.Training) return builtPage(course);
  if (place === "playground") return playgroundPage(course);
  const lesson = course.lessons.find(({ id }) => id === place);
  if (lesson) return lessonPage(course, lesson);
  const element = html("article", { class: "page" }, html("h1", {}, "There is no such page"), html("p", {}, html("a", { href: "#/" }, "To the contents")));
  return { title: "No such page", element };
}

// The frame around every page.

function header(): HTMLElement {
  const theme = html("select", { "aria-label": "Colours" }, ...Object.entries(THEMES).map(([value, words]) => html("option", { value }, words))) as HTMLSelectElement;
  theme.value = recall(THEME) ?? "auto";
  theme.addEventListener("change", () => {
    remember(THEME, theme.value);
    applyTheme(theme.value);
  });
  const menu = html("details", { class: "menu" }, html("summary", {}, "Contents"), contents());
  return html("header", { class: "top" }, html("a", { href: "#/", class: "brand" }, html("strong", {}, "chainrule"), html("span", {}, " · learn")), menu, pythonStatus(), theme);
}

function applyTheme(theme: string): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("themechange"));
}

/** The state of Python; before it is loaded, the size of the download. */
function pythonStatus(): HTMLElement {
  const words = html("span", { role: "status" });
  const act = button("", () => (python.state === "asleep" || python.state === "failed" ? python.wake() : python.restart()), "quiet");
  const size = `${Math.round(PYTHON_BYTES / 1e6)} MB`;
  const element = html("div", { class: "python" }, words, act);
  const show = () => {
    const { state } = python;
    element.dataset.state = state;
    words.textContent = {
      asleep: `Python: ${size} to load`,
      loading: `Loading Python (${size}) …`,
      ready: "Python is ready",
      busy: "Python is running",
      failed: "Python is not there",
    }[state];
    act.textContent = { asleep: "Load", loading: "", ready: "Restart", busy: "Stop", failed: "Try again" }[state];
    act.hidden = !act.textContent;
    act.setAttribute("aria-label", state === "failed" ? "Try again to load Python" : `${act.textContent} Python`);
    if (state === "failed") notice(python.problem);
  };
  let timer = 0;
  python.addEventListener("state", () => {
    clearTimeout(timer);
    if (python.state === "busy") timer = setTimeout(show, 500); // short work does not flicker
    else if (python.state === "ready") timer = setTimeout(show, 150);
    else show();
  });
  show();
  return element;
}

function sidebar(): HTMLElement {
  return html("div", { class: "sidebar" }, contents());
}

function contents(): HTMLElement {
  const list = html("ol", {}, ...course.lessons.map((lesson) => html("li", {}, entry(lesson))));
  const take = button(`Download ${FILE}`, () => void downloadEngine(course), "quiet");
  const built = course.templates?.Training ? [html("li", {}, html("a", { href: "#/built" }, "What you built")), html("li", {}, take)] : [];
  const more = html("ul", {}, html("li", {}, html("a", { href: "#/playground" }, "Playground")), ...built, html("li", {}, html("a", { href: "#/about" }, "About, progress")));
  return html("nav", { class: "contents", "aria-label": "Contents" }, list, more);
}

function entry(lesson: Lesson): HTMLElement {
  const mark = html("span", { class: "mark" });
  const show = () => {
    const done = lessonDone(lesson);
    mark.replaceChildren(...(done > 0 ? [html("span", { role: "img", "aria-label": done === 1 ? "done" : "begun" }, done === 1 ? "✓" : "·")] : []));
  };
  store.addEventListener("change", show);
  show();
  return html("a", { href: `#/${lesson.id}` }, inlineProse(lesson.title), mark);
}

function footer(): HTMLElement {
  return html("footer", { class: "bottom" }, html("p", {}, "Everything here runs in this page. Nothing you write leaves it. ", html("a", { href: "#/about" }, "About and licences")));
}

function notice(words: string): void {
  document.querySelector(".toast")?.remove();
  const toast = html("div", { class: "toast", role: "alert" }, html("p", {}, words));
  toast.append(button("Close", () => toast.remove()));
  document.body.append(toast);
}

function home(): Page {
  const next = course.lessons.find((lesson) => lessonDone(lesson) < 1) ?? course.lessons[0];
  const begun = course.lessons.some((lesson) => lessonDone(lesson) > 0);
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
    html("p", {}, html("a", { class: "go", href: `#/${next.id}` }, begun ? `Go on: ${next.title}` : `Begin: ${next.title}`)),
    html("ol", { class: "toc" }, ...items),
  );
  return { title: "Learn", element };
}

function inWords(count: number): string {
  const words = ["No lessons", "One short lesson", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve", "Thirteen"];
  return count < 2 ? words[count] : `${words[count] ?? count} short lessons`;
}
