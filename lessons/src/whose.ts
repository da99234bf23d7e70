// A sentence below every figure that trains: which of the code that runs there is the learner's, and which is lent.

import type { Course, Exercise } from "./course";
import { html } from "./elements";
import { type Lent, ownCodes, slotsOf } from "./own_code";
import { store } from "./store";

const ACTIVATIONS = ["exp", "relu", "tanh"]; // exercises that a network needs only if its neurons call them

export class Whose {
  readonly element = html("p", { class: "whose" });
  private failing: string[] = [];
  private readonly show = () => this.write();

  constructor(
    private readonly course: Course,
    private readonly activations: () => string[] = () => ["tanh"],
    private readonly engine: () => string = () => "own",
    private readonly template = "Training",
  ) {
    store.addEventListener("change", this.show);
    this.write();
  }

  /** Takes in what Python said about the program. */
  tell({ failing }: Lent): void {
    if (failing.join() === this.failing.join()) return;
    this.failing = failing;
    this.write();
  }

  destroy(): void {
    store.removeEventListener("change", this.show);
  }

  write(): void {
    const { templates } = this.course;
    const inValue = new Set(slotsOf(templates?.Value));
    const used = slotsOf(templates?.[this.template]).filter((name) => !ACTIVATIONS.includes(name) || this.activations().includes(name));
    const parts = this.engine() === "own" ? used : used.filter((name) => !inValue.has(name));
    const own = ownCodes();
    const lent = parts.filter((name) => !(name in own) && !this.failing.includes(name));
    const yours = parts.filter((name) => name in own && !this.failing.includes(name));
    const failing = parts.filter((name) => this.failing.includes(name));
    this.element.dataset.lent = [...lent, ...failing].join(" ");
    this.element.hidden = parts.length === 0;
    const names = (found: string[]) => this.named(found, inValue);
    this.element.replaceChildren(
      ...(lent.length || failing.length ? [] : ["Every line that computes here is yours: ", ...names(yours), ". "]),
      ...((lent.length || failing.length) && yours.length ? ["Yours: ", ...names(yours), ". "] : []),
      ...(lent.length ? ["Lent until you write it: ", ...names(lent), ". "] : []),
      ...(failing.length ? [`Lent because the program does not ${this.template === "Network" ? "run" : "train"} with yours: `, ...names(failing), ". "] : []),
      ...(this.engine() === "own" ? [] : ["The gradients are by chainrule's Value."]),
    );
  }

  /** The names of exercises as links to them, the class Value as one if all of its parts are there. */
  private named(found: string[], inValue: Set<string>): (string | HTMLElement)[] {
    const whole = [...inValue].filter((name) => !ACTIVATIONS.includes(name)).every((name) => found.includes(name));
    const [value, rest] = [found.filter((name) => inValue.has(name)), found.filter((name) => !inValue.has(name))];
    const links = [...(whole ? [this.link(value[0], "Value")] : value.map((name) => this.link(name))), ...rest.map((name) => this.link(name))];
    return links.flatMap((link, i) => [i === 0 ? "" : i === links.length - 1 ? " and " : ", ", link]);
  }

  private link(name: string, words = ""): HTMLElement {
    const lesson = this.course.lessons.find(({ blocks }) => blocks.some((block) => block.type === "exercise" && block.name === name));
    const exercise = lesson?.blocks.find((block): block is Exercise => block.type === "exercise" && block.name === name);
    return html("a", { href: `#/${lesson?.id ?? ""}` }, words || nameOf(exercise));
  }
}

/** What an exercise writes: the name of its class or function, or its title where that is one of many `_backward`. */
function nameOf(exercise: Exercise | undefined): string {
  const name = /^(?:class|def) (\w+)/m.exec(exercise?.solution ?? "")?.[1] ?? "";
  return name === "_backward" || !name ? (exercise?.title ?? "") : name;
}
