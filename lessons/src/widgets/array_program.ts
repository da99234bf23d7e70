// The same network as the compiler sees it: how many scalars, and the few array statements it found in them.

import type { Course } from "../course";
import { html, liveText, select } from "../elements";
import type { Live } from "../lesson";

interface Program {
  hidden: number[];
  points: number;
  nodes: number;
  statements: number;
  text: string;
}

const NAME = /\b[a-z]\w*(?=\[)/g;
const LEGEND = "i<100, j<16: one element for every i below 100 and every j below 16; in brackets, which one. Σ: a sum. Point at a name, or choose one, to see where it is used.";

/** A line with its names as elements that can be lit. */
function named(line: string): (string | HTMLElement)[] {
  return line.split(/\b([a-z]\w*)(?=\[)/).map((part, i) => (i % 2 ? html("span", { "data-name": part }, part) : part));
}

function explain(name: string): string {
  if (name === "parameter") return "the weights and biases of all neurons, in a row";
  if (name === "input") return "the coordinates of the points";
  if (/^c\d/.test(name)) return "constants, such as the targets";
  return name.startsWith("d") ? `the gradient of ${name.slice(1)}` : "numbers that are computed on the way";
}

export function arrayProgram(_: Course, attributes: Record<string, string>): Live {
  const place = html("div", {});
  const reading = liveText("reading");
  const about = liveText("explained");
  let hidden = (attributes.hidden ?? "4").split(/[,x ]+/).join(", ");
  let points = attributes.points ?? "10";

  void fetch("array_programs.json")
    .then((answer) => answer.json() as Promise<Program[]>)
    .then((programs) => {
      const choices = (of: (program: Program) => string) => [...new Set(programs.map(of))].map((each): [string, string] => [each, each]);
      const shape = (program: Program) => program.hidden.join(", ");
      const show = () => {
        const program = programs.find((each) => shape(each) === hidden && String(each.points) === points) ?? programs[0];
        code.replaceChildren(...program.text.split("\n").map((line) => html("span", { class: /^(?:[^:]*: )?d/.test(line) ? "back" : "found" }, ...named(line), "\n")));
        const names = [...new Set(program.text.match(NAME))];
        pick.replaceChildren(html("option", { value: "" }, "an array"), ...names.map((name) => html("option", { value: name }, name)));
        light("");
        reading.textContent = `${program.nodes.toLocaleString("en")} scalar nodes are ${program.statements} array statements: the forward pass in blue, the backward pass in orange.`;
      };
      const code = html("code", {});
      const pick = html("select", {}) as HTMLSelectElement;
      const light = (name: string) => {
        for (const each of code.querySelectorAll<HTMLElement>("[data-name]")) each.classList.toggle("lit", each.dataset.name === name);
        const lines = [...code.children].flatMap((line, i) => (line.querySelector(".lit") ? [i + 1] : []));
        about.textContent = name ? `${name}: ${explain(name)}; in ${lines.length === 1 ? "line" : "lines"} ${lines.join(", ")}.` : LEGEND;
      };
      pick.addEventListener("change", () => light(pick.value));
      code.addEventListener("pointerover", ({ target }) => light((target as HTMLElement).dataset.name ?? pick.value));
      place.append(
        html("div", { class: "bar" }, select("Hidden layers", choices(shape), hidden, (value) => ((hidden = value), show())).element, select("Points", choices((each) => String(each.points)), points, (value) => ((points = value), show())).element),
        html("pre", { class: "code program", tabindex: "0", "aria-label": "Array statements" }, code),
        html("div", { class: "bar" }, html("label", { class: "select" }, html("span", {}, "Point at"), pick)),
        about,
      );
      show();
    })
    .catch(() => (reading.textContent = "The programs could not be fetched: reload the page to try again."));
  return { element: html("section", { class: "live widget", "data-widget": "array-program", "aria-label": "What the compiler found" }, place, reading) };
}
