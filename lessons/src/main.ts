// The site: contents, lessons, playground and "About". The address after # says which page is shown.

import { aboutPage } from "./about";
import { builtPage } from "./built";
import { type Course, type Lesson, inlineProse, loadCourse } from "./course";
import { button, html } from "./elements";
import { homePage } from "./home";
import { lessonDone, lessonPage } from "./lesson";
import { recall, remember } from "./memory";
import { FILE, downloadEngine } from "./my_engine";
import { playgroundPage } from "./playground";
import { python } from "./python";
import { Scrolling } from "./scrolling";
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
let scrolling: Scrolling;

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
  scrolling = new Scrolling(content);
  addEventListener("hashchange", () => route());
  python.whenReady(() => setTimeout(() => scrolling.release(), 3000)); // by then all parts are there
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault(); // the address says which page is shown
    content.focus();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
  store.addEventListener("full", () => notice("This browser keeps no more: save your progress to a file."), { once: true });
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
  const address = location.hash.replace(/^#\/?/, "").replace(/^content$/, "");
  const [place, exercise] = address.split("?")[0].split("/"); // what follows is the playground's
  shown?.destroy?.();
  shown = pageAt(place, exercise);
  document.title = `${shown.title} · chainrule`;
  content.replaceChildren(shown.element);
  document.querySelector<HTMLDetailsElement>(".menu")?.removeAttribute("open");
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".contents a")) {
    if (link.hash === `#/${place}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (document.activeElement !== document.body) content.focus({ preventScroll: true });
  if (!scrolling.restore() && exercise) document.querySelector(`[data-exercise="${CSS.escape(exercise)}"]`)?.closest(".exercise")?.scrollIntoView();
}

function pageAt(place: string, exercise = ""): Page {
  if (place === "") return homePage(course);
  if (place === "about") return aboutPage(course);
  if (place === "built" && course.templates?.Training) return builtPage(course);
  if (place === "playground") return playgroundPage(course);
  const lesson = course.lessons.find(({ id }) => id === place);
  if (lesson) return lessonPage(course, lesson, exercise);
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
  const bar = html("progress", { max: String(PYTHON_BYTES), "aria-label": "Python loaded" }) as HTMLProgressElement;
  const amount = html("span", { class: "amount" });
  const element = html("div", { class: "python" }, words, bar, amount, act);
  const showLoaded = () => {
    const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
    const loaded = Math.min(python.loaded, PYTHON_BYTES);
    bar.value = loaded;
    amount.textContent = loaded < 0.999 * PYTHON_BYTES ? `${megabytes(loaded)} of ${megabytes(PYTHON_BYTES)} MB` : "starting …";
    bar.hidden = amount.hidden = python.state !== "loading" || loaded === 0;
  };
  python.addEventListener("loading", showLoaded);
  const show = () => {
    showLoaded();
    const { state } = python;
    element.dataset.state = state;
    words.textContent = {
      asleep: `Python: ${size} to load`,
      loading: "Loading Python",
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
