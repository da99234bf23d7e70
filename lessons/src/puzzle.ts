// The shuffled lines of a solution, to be sorted with the pointer or the keyboard. Any order that passes the exercise's
// own check is right.

import type { Exercise } from "./course";
import { button, html, liveText } from "./elements";

/** What a puzzle or a solution can do to the exercise. */
export interface Solver {
  setCode(code: string): void;
  passes(code: string): Promise<boolean>;
}

export class Puzzle {
  readonly element: HTMLElement;
  private lines: string[];
  private readonly list = html("ol", { class: "puzzle-lines" });
  private readonly spoken = liveText("puzzle-status");

  constructor(
    exercise: Exercise,
    private readonly solver: Solver,
  ) {
    this.lines = disorder(exercise.puzzle);
    const check = button("Is this the order?", () => void this.check(), "primary");
    this.element = html("div", { class: "hint puzzle" }, html("p", {}, "These are the lines of a solution. Move them with the arrows, or drag them."), this.list, check, this.spoken);
    this.show();
  }

  private async check(): Promise<void> {
    this.spoken.textContent = "Checking …";
    const code = this.lines.join("\n");
    const right = await this.solver.passes(code);
    this.spoken.textContent = right ? "Yes: that works. It is in the editor now; check it there." : "Not yet: in this order it does not work.";
    if (right) this.solver.setCode(code);
  }

  private move(from: number, to: number): void {
    if (!(from in this.lines) || !(to in this.lines)) return; // at an end, or something else was dropped
    const [line] = this.lines.splice(from, 1);
    this.lines.splice(to, 0, line);
    this.show();
    this.spoken.textContent = `${line.trim()} is now line ${to + 1} of ${this.lines.length}.`;
  }

  private show(): void {
    this.list.replaceChildren(...this.lines.map((line, i) => this.item(line, i)));
  }

  private item(line: string, i: number): HTMLElement {
    const arrow = (words: string, sign: string, by: number) => {
      const element = button(sign, () => {
        this.move(i, i + by);
        const moved = this.list.children[i + by]?.querySelectorAll("button")[by < 0 ? 0 : 1];
        moved?.focus();
      });
      element.setAttribute("aria-label", `${words}: ${line.trim()}`);
      element.setAttribute("aria-disabled", String(i + by < 0 || i + by >= this.lines.length));
      return element;
    };
    const item = html("li", { draggable: "true" }, html("code", {}, line), arrow("Up", "↑", -1), arrow("Down", "↓", 1));
    item.addEventListener("dragstart", (event) => event.dataTransfer?.setData("text/plain", String(i)));
    item.addEventListener("dragover", (event) => event.preventDefault());
    item.addEventListener("drop", (event) => {
      event.preventDefault();
      this.move(Number(event.dataTransfer?.getData("text/plain")), i);
    });
    return item;
  }
}

/** A shuffled order, the same each time; if possible, no two neighbours stay neighbours. */
function disorder(lines: string[]): string[] {
  const odd = lines.filter((_, i) => i % 2);
  const even = lines.filter((_, i) => i % 2 === 0);
  return [...odd.toReversed(), ...even.toReversed()];
}
