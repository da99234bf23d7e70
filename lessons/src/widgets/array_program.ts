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

export function arrayProgram(_: Course, attributes: Record<string, string>): Live {
  const place = html("div", {});
  const reading = liveText("reading");
  let hidden = (attributes.hidden ?? "4").split(/[,x ]+/).join(", ");
  let points = attributes.points ?? "10";

  void fetch("array_programs.json")
    .then((answer) => answer.json() as Promise<Program[]>)
    .then((programs) => {
      const choices = (of: (program: Program) => string) => [...new Set(programs.map(of))].map((each): [string, string] => [each, each]);
      const shape = (program: Program) => program.hidden.join(", ");
      const show = () => {
        const program = programs.find((each) => shape(each) === hidden && String(each.points) === points) ?? programs[0];
        code.replaceChildren(...program.text.split("\n").map((line) => html("span", { class: /^(?:[^:]*: )?d/.test(line) ? "back" : "found" }, `${line}\n`)));
        reading.textContent = `${program.nodes.toLocaleString("en")} scalar nodes are ${program.statements} array statements: the forward pass in blue, the backward pass in orange.`;
      };
      const code = html("code", {});
      place.append(
        html("div", { class: "bar" }, select("Hidden layers", choices(shape), hidden, (value) => ((hidden = value), show())).element, select("Points", choices((each) => String(each.points)), points, (value) => ((points = value), show())).element),
        html("pre", { class: "code program", tabindex: "0", "aria-label": "Array statements" }, code),
      );
      show();
    })
    .catch(() => (reading.textContent = "The programs could not be fetched: reload the page to try again."));
  return { element: html("section", { class: "live widget", "data-widget": "array-program", "aria-label": "What the compiler found" }, place, reading) };
}
