// The learner's GPT, trained on names: the loss, names that it makes up, and what its attention looks at.

import { Chart } from "../chart";
import type { Course } from "../course";
import { button, html, liveText, newId, rateSlider } from "../elements";
import type { Live } from "../lesson";
import { ownProgram } from "../own_code";
import { Whose } from "../whose";
import { Player } from "./player";

interface State {
  losses: number[];
  each: number; // names that one of the losses is about
  learned: number;
  of: number;
  speed: number | null; // names a second
  python: number; // the same, by the learner's class alone
  atMost: boolean; // it would take too long to find out
  nodes: number;
  parameters: number;
  bytes: number;
  building: number; // seconds
  names: { name: string; known: boolean }[];
  word: string;
  looks: number[][];
}

const UNIFORM = Math.log(27);
const BUILDING = "Your class builds the graph of one name, and it becomes WebAssembly: a few seconds…";

export function gpt(course: Course): Live {
  let lr = 0.3;
  let text = "";
  const chart = new Chart({ label: "Loss by names learned", x: "names learned", y: "loss", curves: [{ label: "loss", colour: "grad" }, { label: "all letters equally likely", colour: "muted", dashed: true }] });
  const names = html("ul", { class: "made-up", "aria-label": "Names that it makes up" });
  const looks = html("div", { class: "table-scroller", tabindex: "0", role: "region", "aria-label": "What each position listens to" });
  const reading = liveText("reading");
  const speed = html("p", { class: "reading" });
  const whose = new Whose(course, () => ["exp"], () => "own", "GPT");
  const show = (state: State) => {
    const learned = state.losses.map((_, i) => (i + 1) * state.each);
    const last = state.losses.at(-1);
    chart.set([learned, state.losses, learned.map(() => UNIFORM)], last === undefined ? "Not begun." : `After ${count(state.learned)} names it is ${last.toFixed(2)}`);
    names.replaceChildren(...state.names.map(({ name, known }) => html("li", known ? { class: "known", title: "one of those that it learned from" } : {}, name)));
    looks.replaceChildren(attention(state.word, state.looks));
    reading.textContent = last === undefined ? "Untrained, it strings letters together. Train it." : "";
    speed.textContent = spellSpeed(state);
  };
  const player = new Player<State>({
    words: "Train",
    kind: "gpt",
    settings: () => {
      reading.textContent = BUILDING;
      return { lr, text, program: ownProgram(course, "own", "GPT") };
    },
    whose,
    steps: ({ learned }) => learned,
    most: Number.MAX_SAFE_INTEGER,
    show,
    say: (words) => (reading.textContent = words),
    clear: () => {
      chart.set([[], [], []], "Not begun.");
      names.replaceChildren();
      looks.replaceChildren();
      speed.textContent = "";
    },
  });
  const rate = rateSlider(lr, 1, (value) => {
    lr = value;
    void player.adjust({ lr });
  });
  const word = html("input", { id: newId("word"), maxlength: "7", value: "emma", autocomplete: "off", spellcheck: "false" }) as HTMLInputElement;
  word.addEventListener("input", () => /^[a-z]{1,7}$/i.test(word.value) && void player.adjust({ word: word.value }));
  const area = html("textarea", { rows: "4", "aria-label": "Words to learn from", placeholder: "at least 20 words of up to 7 letters", spellcheck: "false" }) as HTMLTextAreaElement;
  const other = html("details", {}, html("summary", {}, "Learn from other words"), area, button("Start over with these", () => ((text = area.value), player.restart())));
  return {
    element: html(
      "section",
      { class: "live widget", "data-widget": "gpt", "aria-label": "Train a GPT" },
      html("div", { class: "bar" }, player.button, button("Start over", () => player.restart())),
      reading,
      chart.element,
      html("h3", {}, "Names that it makes up"),
      names,
      html("h3", {}, "What it listens to"),
      html("p", { class: "bar" }, html("label", { for: word.id }, "in the name "), word),
      looks,
      html("div", { class: "sliders" }, rate.element),
      speed,
      other,
      whose.element,
    ),
    destroy() {
      player.destroy();
      chart.destroy();
    },
  };
}

/** A row for each position: the darker a square, the more it listens there. */
function attention(word: string, looks: number[][]): HTMLElement {
  const letters = [".", ...word];
  const head = html("tr", {}, html("td", {}), ...letters.map((letter) => html("th", { scope: "col" }, letter)));
  const rows = looks.map((shares, i) =>
    html("tr", {}, html("th", { scope: "row" }, `${letters[i]}`), ...letters.map((_, k) => (k < shares.length ? html("td", { style: `--share: ${shares[k].toFixed(3)}` }, String(Math.round(100 * shares[k]))) : html("td", { class: "later" }, "")))),
  );
  return html("table", { class: "attention" }, html("caption", {}, "Percent of its attention, by position (rows) and what it hears (columns)"), html("thead", {}, head), html("tbody", {}, ...rows));
}

function count(number: number): string {
  return Math.round(number).toLocaleString("en");
}

function spellSpeed({ speed, python, atMost, nodes, parameters, bytes, building }: State): string {
  const made = `${count(nodes)} nodes and ${count(parameters)} parameters, ${count(bytes / 1000)} kB of WebAssembly, written in ${building.toFixed(1)} s.`;
  if (speed === null) return made;
  const slow = `${atMost ? "at most " : ""}${python < 10 ? python.toPrecision(2) : count(python)}`;
  return `${count(speed)} names a second; your class alone, in Python, learns ${slow}. ${made}`;
}
