// The order of the backward pass as a game: press a node and it speaks, that is, its `_backward` runs once.
//
// Python plays the whole order with every click and says what happened (`chainrule.learn.orders`); this draws it.

import { GraphView, TRAVEL_MS } from "../../src/chainrule/stepping/web/graph_view.js";
import type { Description, Num, State, Step } from "../../src/chainrule/stepping/web/narration.js";
import type { Course } from "./course";
import { button, html, newId, prefersReducedMotion, svg } from "./elements";
import type { Live } from "./lesson";
import { python } from "./python";
import { type Report, errorView, rowsView } from "./report";
import { graphBlock } from "./stepper_block";

interface Turn {
  node: number;
  grads: (Num | null)[]; // of all nodes, after it
  steps: Extract<Step, { to: number }>[];
  words: string;
  mark: string; // what was out of turn with the node so far
}

interface Played {
  graph: Description | null;
  turns: Turn[];
  verdict: { words: string; right: (Num | null)[]; wrong: number[] } | null; // once everybody has spoken
  impatient: number[];
  patient: number[];
  error: Report["error"];
}

const SPEED = 2; // of a gradient on its way, as the stepper counts it
const LATE_MS = 1000; // after which an answer is not taken for granted
const PAUSE_MS = 1900; // between turns that are played, to read what happened

export function orderView(course: Course, code: string, own: boolean): Live {
  return graphBlock(course, code, own, "order-block", "Who speaks when", async (source) => {
    const play = (order: number[]) => played(code, source, order);
    const start = await play([]);
    if (!start.graph) throw new Error(start.error?.text ?? "There is no graph.");
    return (place) => new OrderGame(place, start as Played & { graph: Description }, play);
  });
}

async function played(code: string, own: string, order: number[]): Promise<Played> {
  const answer = await python.call("chainrule.learn.orders", "order_json", [code, own, JSON.stringify(order)], 10);
  if (answer.kind !== "done") throw new Error(answer.text);
  return JSON.parse(answer.text) as Played;
}

class OrderGame {
  private readonly graph: Description;
  private readonly view: GraphView;
  private readonly labelled: SVGGraphicsElement[]; // by node: what screen readers see of it
  private readonly resizing: ResizeObserver;
  private readonly trail = html("p", { class: "order-trail" });
  private readonly told = html("p", {});
  private readonly verdict = html("p", {});
  private readonly raised = html("div", {}); // by the learner's code
  private readonly outcome = html("div", {}); // a table
  private order: number[] = []; // as far as it was asked for
  private reply: Played;
  private shown = 0; // turns
  private asked = 0;
  private timer = 0;

  constructor(
    place: HTMLElement,
    private readonly start: Played & { graph: Description },
    private readonly play: (order: number[]) => Promise<Played>,
  ) {
    this.reply = start;
    this.graph = start.graph;
    const help = newId("order-help");
    this.view = new GraphView(this.graph, help);
    this.view.svg.setAttribute("aria-label", `Graph of ${this.nameOf(this.graph.root)}, ${this.graph.nodes.length} nodes; those made by an operation are buttons`);
    this.labelled = this.graph.nodes.map(({ kind }, i) => (kind === "result" ? this.press(i, help) : this.still(i)));
    const status = html("div", { class: "order-status", role: "status" }, this.told, this.verdict, this.raised);
    const bar = html(
      "div",
      { class: "bar" },
      button("Start over", () => this.startOver()),
      button("An impatient order", () => this.playOrder(start.impatient)),
      button("A right order", () => this.playOrder(start.patient)),
    );
    const caption = html("p", { class: "caption", id: help }, "Press a node and it speaks: its _backward runs once.");
    const drawing = html("div", { class: "cr-stepper", "data-phase": "backward" }, html("div", { class: "cr-frame" }, this.view.element));
    place.replaceChildren(caption, drawing, bar, status, this.trail, this.outcome);
    this.resizing = new ResizeObserver(() => this.view.fit());
    this.resizing.observe(drawing);
    this.view.fit();
    this.startOver();
  }

  destroy(): void {
    this.asked++; // answers that are under way come too late
    this.pause();
    this.resizing.disconnect();
  }

  private nameOf(i: number): string {
    return this.graph.nodes[i].name;
  }

  /** A button over the card of a node. Its label says all that the card does, and more. */
  private press(i: number, help: string): SVGGraphicsElement {
    const { x, y, width, height } = this.view.layout.boxes[i];
    const place = { x: x - width / 2, y: y - height / 2, width, height, rx: 8 };
    const element = svg("rect", { class: "order-press", role: "button", tabindex: 0, "aria-describedby": help, ...place });
    element.addEventListener("click", () => this.speak(i));
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      if (!event.repeat) this.speak(i);
    });
    const { group } = this.view.cards[i];
    for (const name of ["role", "tabindex", "aria-describedby"]) group.removeAttribute(name);
    group.setAttribute("aria-hidden", "true");
    this.view.svg.append(element);
    return element;
  }

  /** The card of a node that has nobody to speak to. */
  private still(i: number): SVGGraphicsElement {
    const { group } = this.view.cards[i];
    for (const name of ["tabindex", "aria-describedby"]) group.removeAttribute(name);
    return group;
  }

  // What learners do.

  private startOver(): void {
    this.asked++;
    this.pause();
    [this.order, this.reply, this.shown] = [[], this.start, 0];
    this.show();
  }

  /** The node speaks after all that is shown; what was being played goes no further. */
  private speak(i: number): void {
    if (this.pause()) {
      this.order = this.order.slice(0, this.shown);
      this.reply = { ...this.reply, turns: this.reply.turns.slice(0, this.shown), verdict: null, error: null };
    }
    void this.ask([...this.order, i], false);
  }

  private playOrder(order: number[]): void {
    this.startOver();
    void this.ask(order, true);
  }

  /** Whether turns were still to be played. */
  private pause(): boolean {
    clearTimeout(this.timer);
    this.view.stopTravel();
    return this.shown < this.reply.turns.length;
  }

  private async ask(order: number[], slowly: boolean): Promise<void> {
    const asked = ++this.asked;
    if (!slowly) this.order = order; // a second click may come before the answer to the first
    const late = setTimeout(() => (this.told.textContent = "Your code is running…"), LATE_MS);
    try {
      const reply = await this.play(order);
      if (asked !== this.asked) return;
      this.reply = reply;
      this.order = order.slice(0, reply.turns.length); // as far as the learner's code came
      this.shown = slowly ? 0 : Math.min(order.length - 1, reply.turns.length);
      this.next();
    } catch (error) {
      if (asked !== this.asked) return;
      this.order = this.order.slice(0, this.shown);
      this.show();
      this.told.textContent = (error as Error).message;
    } finally {
      clearTimeout(late);
    }
  }

  // Showing it.

  /** Shows the next turn, and those after it in their time. */
  private next(): void {
    const before = this.gradsAfter(this.shown);
    const turn = this.reply.turns[this.shown];
    if (turn) this.shown++;
    if (turn && !prefersReducedMotion()) this.travel(turn, 0, before);
    else this.arrive();
  }

  /** Gradients on their way, one edge after the other. */
  private travel(turn: Turn, k: number, grads: (Num | null)[]): void {
    const step = turn.steps[k];
    if (step?.kind !== "backward") {
      this.arrive();
      return;
    }
    const after = grads.with(step.to, step.after);
    const state = this.stateOf(step, after, this.shown - 1);
    this.view.show(state);
    this.view.follow(state, "smooth");
    this.view.travel(state, step, SPEED);
    this.timer = setTimeout(() => this.travel(turn, k + 1, after), TRAVEL_MS / SPEED);
  }

  private arrive(): void {
    this.show();
    if (this.shown < this.reply.turns.length) this.timer = setTimeout(() => this.next(), PAUSE_MS);
  }

  private gradsAfter(turns: number): (Num | null)[] {
    const seed = { exact: "1.0", text: "1" };
    return turns ? this.reply.turns[turns - 1].grads : this.graph.nodes.map(({ grad }, i) => (i === this.graph.root ? seed : grad));
  }

  /** A state of the stepper: `complete` nodes are those that have spoken. */
  private stateOf(step: Step, grads: (Num | null)[], turns: number): State {
    const spoken = this.reply.turns.slice(0, turns);
    this.graph.steps = spoken.flatMap(({ steps }) => steps); // on whose edges something has passed
    const complete = this.graph.nodes.map((_, i) => spoken.some(({ node }) => node === i));
    return { position: this.graph.steps.length, step, backward: true, computed: complete.map(() => true), grads, complete };
  }

  /** Everything after the turns that are shown. */
  private show(): void {
    const { graph, view, shown } = this;
    const turns = this.reply.turns.slice(0, shown);
    const last = turns.at(-1);
    const grads = this.gradsAfter(shown);
    const node = last?.node ?? graph.root;
    const state = this.stateOf({ kind: "seed", node, after: grads[node] as Num }, grads, shown);
    view.show(state);
    if (last) view.follow(state, prefersReducedMotion() ? "instant" : "smooth");
    for (const step of last?.steps ?? []) this.light(step);
    const over = shown === this.reply.turns.length;
    const verdict = over ? this.reply.verdict : null;
    this.mark(turns, verdict);
    this.label(turns, grads);
    this.told.textContent = last?.words ?? `${this.nameOf(graph.root)} begins with gradient 1, everybody else with 0. Who speaks first?`;
    this.verdict.textContent = verdict?.words ?? "";
    this.verdict.dataset.outcome = verdict ? (verdict.wrong.length ? "wrong" : "right") : "";
    this.trail.textContent = turns.length ? `Spoken: ${turns.map((turn) => this.nameOf(turn.node)).join(", ")}` : "";
    this.outcome.replaceChildren(...(verdict ? [this.table(grads, verdict)] : []));
    this.raised.replaceChildren(...(over && this.reply.error ? [errorView(this.reply.error)] : []));
  }

  /** Lights an edge, and the operand if its gradient has changed. */
  private light(step: Turn["steps"][number]): void {
    const edges = step.kind === "backward" ? [`${step.node}:${step.operand}`] : this.view.edgesBetween(step.node, step.to);
    for (const edge of edges) this.view.lines.get(edge)?.classList.add("cr-backward");
    if (step.before.exact !== step.after.exact) this.view.cards[step.to].group.classList.add("cr-target");
  }

  private mark(turns: Turn[], verdict: Played["verdict"]): void {
    this.view.clearHighlights();
    for (const { node, mark } of turns) if (mark) this.view.highlight(node, mark);
    for (const i of verdict?.wrong ?? []) this.view.highlight(i, `should be ${verdict?.right[i]?.text}`);
  }

  private label(turns: Turn[], grads: (Num | null)[]): void {
    this.graph.nodes.forEach(({ name, kind, expression, data }, i) => {
      const own = turns.filter(({ node }) => node === i);
      const parts = [
        name,
        expression ? `= ${expression.names}` : kind,
        `data ${data.text}`,
        grads[i] ? `grad ${grads[i].text}` : "takes no gradient",
        ...(kind === "result" ? [own.length ? "has spoken" : "has not spoken"] : []),
        ...new Set([own.at(-1)?.mark ?? "", this.view.cards[i].mark.textContent ?? ""].filter(Boolean)),
      ];
      this.labelled[i].setAttribute("aria-label", parts.join(", "));
    });
  }

  private table(grads: (Num | null)[], { right, wrong }: NonNullable<Played["verdict"]>): HTMLElement {
    const rows = this.graph.nodes.flatMap(({ name }, i) => {
      const [got, expected] = [grads[i], right[i]];
      return got && expected ? [{ label: `${name}.grad`, got: got.text, expected: expected.text, right: !wrong.includes(i), node: null, graph: null, about: "" }] : [];
    });
    return rowsView(rows, "Gradients");
  }
}
