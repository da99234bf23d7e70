// The learner's training loop against its own graph as WebAssembly: the same steps, for two seconds each.

import type { Course } from "../course";
import { html, liveText, spell } from "../elements";
import type { Live } from "../lesson";
import { ownProgram } from "../own_code";
import { Whose } from "../whose";
import { Player } from "./player";

interface State {
  sides: { steps: number; seconds: number; loss: number | null }[]; // the loop, the module
  left: number; // 0 when both are done
  nodes_per_step: number;
  bytes: number | null; // null if it could not be compiled
  building: number;
}

const MOST = Number.MAX_SAFE_INTEGER;
const NAMES = ["your loop, in Python", "its graph, as WebAssembly"];

export function race(course: Course, attributes: Record<string, string>): Live {
  const rows = html("tbody", {});
  const reading = liveText("reading");
  const whose = new Whose(course);
  const show = ({ sides, left, nodes_per_step, bytes, building }: State) => {
    const speeds = sides.map(({ steps, seconds }) => (seconds ? steps / seconds : 0));
    rows.replaceChildren(
      ...sides.map(({ steps, loss }, i) =>
        html("tr", {}, html("th", { scope: "row" }, NAMES[i]), html("td", {}, count(steps)), html("td", {}, speeds[i] ? count(speeds[i]) : ""), html("td", {}, loss === null ? "" : spell(loss))),
      ),
    );
    if (left || !speeds[1]) return;
    reading.textContent = `${count(nodes_per_step)} nodes a step. As WebAssembly the graph of one example takes ${count((bytes ?? 0) / 1000)} kB, was written in ${building.toFixed(2)} s, and is ${count(speeds[1] / speeds[0])} times as fast as the loop that it came from.`;
  };
  const player = new Player<State>({
    words: "Race",
    kind: "race",
    settings: () => ({ hidden: (attributes.hidden ?? "8,8").split(",").map(Number), n: Number(attributes.points ?? 40), lr: Number(attributes.rate ?? 0.01), program: ownProgram(course) }),
    whose,
    steps: ({ left, bytes }) => {
      if (bytes === null) reading.textContent = "Your class could not be compiled, so there is no race: its nodes must say in `_op` how they were made.";
      return left ? 0 : MOST;
    },
    most: MOST,
    show,
    say: (words) => (reading.textContent = words),
    clear: () => rows.replaceChildren(),
  });
  const head = html("tr", {}, html("td", {}), ...["steps in 2 s", "steps a second", "loss"].map((words) => html("th", { scope: "col" }, words)));
  const table = html("div", { class: "table-scroller", tabindex: "0", role: "region", "aria-label": "The race" }, html("table", {}, html("thead", {}, head), rows));
  return {
    element: html("section", { class: "live widget", "data-widget": "race", "aria-label": "Your loop against its own graph" }, html("div", { class: "bar" }, player.button), table, reading, whose.element),
    destroy: () => player.destroy(),
  };
}

function count(number: number): string {
  return number < 10 ? number.toFixed(1) : Math.round(number).toLocaleString("en");
}
