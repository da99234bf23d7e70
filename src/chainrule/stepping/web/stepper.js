// @ts-check
// The stepper: a graph whose values fill in forward and whose gradients flow back, one step at a time.
//
//     import { mountStepper } from "./stepper.js";
//     const stepper = mountStepper(element, description);  // made by steps.py
//     stepper.goTo(3); stepper.next(); stepper.play();
//     stepper.highlight("e", "this gradient is wrong");
//     stepper.addEventListener("step", () => console.log(stepper.position));
//
// ES modules without dependencies, for any bundler; they need `stepper.css`. `page.py` also joins them into one classic
// script. Therefore every `import` must fit on one line, `export` may stand only before `function`, `class` and
// `const`, and no two modules may give one name to different things.

import { ICONS, button, html, icon } from "./elements.js";
import { GraphView } from "./graph_view.js";
import { narrate, statesOf } from "./narration.js";
import { NodeDetails } from "./node_details.js";
import { NodeTable } from "./node_table.js";

/**
 * @typedef {import("./narration.js").Description} Description
 * @typedef {import("./narration.js").Step} Step
 * @typedef {{ keyboard?: EventTarget, position?: number }} Options  `keyboard`: where to listen for keys
 */

const SPEEDS = [0.5, 1, 2, 4];
const STEP_MS = { forward: 1200, backward: 2400 }; // at speed 1, with time to read
const PHASES = { forward: "Forward", backward: "Backward", end: "Complete" };

let mounted = 0; // for ids that are unique on a page with several steppers

/**
 * Show `description` inside `element`.
 * @param {HTMLElement} element
 * @param {Description} description
 * @param {Options} [options]
 */
export function mountStepper(element, description, options = {}) {
  return new Stepper(element, description, options);
}

/** Emits "step" when the position changes, and "play" and "pause". */
export class Stepper extends EventTarget {
  /** @param {HTMLElement} element @param {Description} graph @param {Options} options */
  constructor(element, graph, options) {
    super();
    this.element = element;
    this.graph = graph;
    this.states = statesOf(graph);
    this.position = 0;
    this.playing = false;
    this.speed = 1;
    this.timer = 0;
    this.reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

    const detailsId = `cr-details-${++mounted}`;
    this.view = new GraphView(graph, detailsId);
    this.details = new NodeDetails(graph, detailsId);
    this.table = new NodeTable(graph);
    this.controls = buildControls(this);
    this.words = buildWords();
    this.build();

    this.listening = new AbortController();
    this.resizing = new ResizeObserver(() => this.fit());
    this.listen(options.keyboard ?? element, this.listening.signal);
    this.fit();
    this.goTo(options.position ?? 0);
  }

  get length() {
    return this.graph.steps.length;
  }

  get state() {
    return this.states[this.position];
  }

  /** Show the state after the step at `position`. A single backward step is animated. */
  goTo(/** @type {number} */ position) {
    const wanted = Math.max(0, Math.min(this.length - 1, Math.trunc(position) || 0));
    const onward = wanted === this.position + 1;
    this.position = wanted;
    const { state } = this;
    this.view.show(state);
    if (onward && state.step.kind === "backward" && !this.reducedMotion.matches)
      this.view.travel(state, state.step, this.speed);
    this.table.show(state);
    this.showWords();
    this.showLabels();
    if (this.details.node !== null) this.showDetails(this.details.node);
    this.view.follow(state, this.reducedMotion.matches ? "instant" : "smooth");
    this.dispatchEvent(new CustomEvent("step", { detail: { position: wanted, step: state.step } }));
  }

  next() {
    this.goTo(this.position + 1);
  }

  previous() {
    this.goTo(this.position - 1);
  }

  /** Go to where the next node's turn begins, or back to where this or the previous node's turn began. */
  jump(/** @type {1 | -1} */ direction) {
    const turns = this.graph.steps.map(turnOf);
    let position = this.position + direction;
    while (
      position > 0 &&
      position < this.length - 1 &&
      turns[position] === turns[direction > 0 ? this.position : position - 1]
    ) {
      position += direction;
    }
    this.goTo(position);
  }

  play() {
    if (this.position === this.length - 1) this.goTo(0);
    this.playing = true;
    this.showPlaying();
    this.wait();
    this.dispatchEvent(new CustomEvent("play"));
  }

  pause() {
    clearTimeout(this.timer);
    this.playing = false;
    this.showPlaying();
    this.dispatchEvent(new CustomEvent("pause"));
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Mark a node, given by name or index, with a message. */
  highlight(/** @type {string | number} */ node, message = "") {
    const i = typeof node === "number" ? node : this.graph.nodes.findIndex((other) => other.name === node);
    if (!this.graph.nodes[i]) throw new RangeError(`this graph has no node ${JSON.stringify(node)}`);
    this.view.highlight(i, message);
    this.showLabels();
  }

  clearHighlights() {
    this.view.clearHighlights();
    this.showLabels();
  }

  /** The gradients at this position, as Python writes them; null for constants. */
  grads() {
    return this.state.grads.map((grad) => grad && grad.exact);
  }

  /** Remove everything from the element. */
  destroy() {
    this.pause();
    this.view.stopTravel();
    this.listening.abort();
    this.resizing.disconnect();
    this.element.replaceChildren();
    this.element.classList.remove("cr-stepper");
  }

  // Building and listening, once.

  build() {
    const { words } = this;
    const name = this.graph.nodes[this.graph.root].name;
    const zoom = html(
      "div",
      { class: "cr-zoom", role: "group", "aria-label": "Zoom" },
      button("Zoom out", ICONS.minus, () => this.zoom(0.8)),
      button("Zoom in", ICONS.plus, () => this.zoom(1.25)),
    );
    this.element.classList.add("cr-stepper");
    this.element.replaceChildren(
      html(
        "section",
        { class: "cr-frame", "aria-label": `How ${name} is computed and differentiated, step by step` },
        html("header", { class: "cr-header" }, words.phase, words.count, zoom),
        this.view.element,
        this.controls.element,
        html(
          "div",
          { class: "cr-text" },
          html("div", { class: "cr-explanation" }, words.title, words.equation, words.details),
          this.details.element,
        ),
        words.spoken,
        this.table.element,
      ),
    );
  }

  listen(/** @type {EventTarget} */ keyboard, /** @type {AbortSignal} */ signal) {
    const { scrubber, speed } = this.controls;
    keyboard.addEventListener("keydown", (event) => this.onKey(/** @type {KeyboardEvent} */ (event)), { signal });
    scrubber.addEventListener("input", () => this.byHand(() => this.goTo(Number(scrubber.value))), { signal });
    speed.addEventListener("change", () => this.setSpeed(Number(speed.value)), { signal });
    this.view.cards.forEach(({ group }, i) => {
      group.addEventListener("pointerenter", () => this.showDetails(i), { signal });
      group.addEventListener("focus", () => this.onFocus(i), { signal });
    });
    this.resizing.observe(this.element);
  }

  onFocus(/** @type {number} */ i) {
    this.view.markFocused(i);
    this.showDetails(i);
  }

  onKey(/** @type {KeyboardEvent} */ event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const target = /** @type {Element} */ (event.target);
    const { scrubber } = this.controls;
    if (target !== scrubber && target.matches?.("input, select, textarea, [contenteditable]")) return;
    if (event.key === " " && target.matches?.("button, summary, a")) return; // Space presses the focused element
    const act = this.actionOf(event, this.view.svg.contains(target));
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** @returns {(() => void) | undefined} */
  actionOf(/** @type {KeyboardEvent} */ { key, shiftKey }, /** @type {boolean} */ inGraph) {
    if (key === " ") return () => this.toggle();
    if (key === "ArrowRight") return () => this.byHand(() => (shiftKey ? this.jump(1) : this.next()));
    if (key === "ArrowLeft") return () => this.byHand(() => (shiftKey ? this.jump(-1) : this.previous()));
    if (key === "Home") return () => this.byHand(() => this.goTo(0));
    if (key === "End") return () => this.byHand(() => this.goTo(this.length - 1));
    if (key === "ArrowDown" && inGraph) return () => this.view.moveFocus(1);
    if (key === "ArrowUp" && inGraph) return () => this.view.moveFocus(-1);
    if (key === "Escape" && this.details.node !== null) return () => this.clearDetails();
    return undefined;
  }

  /** Stop playing before a step by hand. */
  byHand(/** @type {() => void} */ act) {
    if (this.playing) this.pause();
    act();
  }

  setSpeed(/** @type {number} */ speed) {
    this.speed = speed;
    if (this.playing) this.wait();
  }

  wait() {
    clearTimeout(this.timer);
    const pace = this.state.backward ? STEP_MS.backward : STEP_MS.forward;
    this.timer = setTimeout(() => {
      this.next();
      if (this.position === this.length - 1) this.pause();
      else this.wait();
    }, pace / this.speed);
  }

  fit() {
    this.view.fit();
    this.view.follow(this.state, "instant");
  }

  zoom(/** @type {number} */ factor) {
    this.view.zoom(factor);
    this.view.follow(this.state, "instant");
  }

  // Showing the current position.

  showWords() {
    const { words, controls, position } = this;
    const { title, equation, details, spoken } = narrate(this.graph, position);
    const place = `Step ${position} of ${this.length - 1}`;
    const phase = this.state.step.kind === "end" ? "end" : this.state.backward ? "backward" : "forward";
    this.element.dataset.phase = phase;
    words.phase.textContent = PHASES[phase];
    words.count.textContent = place;
    words.title.textContent = title;
    words.equation.replaceChildren(...breakable(equation));
    words.details.replaceChildren(
      ...details.map(({ term, math, prose = "" }) => {
        const formula = math ? [html("code", {}, ...breakable(math)), " "] : [];
        return html("div", {}, html("dt", {}, term), html("dd", {}, ...formula, prose));
      }),
    );
    words.spoken.textContent = spoken;
    controls.scrubber.value = String(position);
    controls.scrubber.style.setProperty("--cr-at", `${(100 * position) / (this.length - 1)}%`);
    controls.scrubber.setAttribute("aria-valuetext", `${place}: ${title}`);
    for (const back of controls.back) back.setAttribute("aria-disabled", String(position === 0));
    for (const on of controls.on) on.setAttribute("aria-disabled", String(position === this.length - 1));
  }

  showPlaying() {
    const { play } = this.controls;
    play.title = this.playing ? "Pause" : "Play";
    play.setAttribute("aria-label", play.title);
    play.replaceChildren(icon(this.playing ? ICONS.pause : ICONS.play));
  }

  /** Every node in words, for screen readers. */
  showLabels() {
    const { grads, computed, complete, backward } = this.state;
    this.view.cards.forEach(({ group, mark }, i) => {
      const node = this.graph.nodes[i];
      const progress = complete[i] ? ", complete" : backward ? " so far" : "";
      const parts = [
        node.name,
        node.expression ? `= ${node.expression.names}` : node.kind,
        computed[i] ? `data ${node.data.text}` : "not computed yet",
        grads[i] ? `grad ${grads[i].text}${progress}` : "takes no gradient",
        ...(mark.textContent ? [mark.textContent] : []),
      ];
      group.setAttribute("aria-label", parts.join(", "));
    });
  }

  showDetails(/** @type {number} */ i) {
    this.details.show(i, this.state);
    this.view.markInspected(i);
  }

  clearDetails() {
    this.details.clear();
    this.view.markInspected(null);
  }
}

/** What the steps of one node's turn have in common. */
function turnOf(/** @type {Step} */ step) {
  return "node" in step ? `${step.kind} ${step.node}` : step.kind;
}

function buildControls(/** @type {Stepper} */ stepper) {
  const last = stepper.length - 1;
  const back = [
    button("First step", ICONS.first, () => stepper.byHand(() => stepper.goTo(0))),
    button("Step back", ICONS.back, () => stepper.byHand(() => stepper.previous())),
  ];
  const play = button("Play", ICONS.play, () => stepper.toggle());
  play.classList.add("cr-play");
  const on = [
    button("Step forward", ICONS.next, () => stepper.byHand(() => stepper.next())),
    button("Last step", ICONS.last, () => stepper.byHand(() => stepper.goTo(last))),
  ];
  const keys = ["Home", "ArrowLeft", "Space", "ArrowRight", "End"];
  [...back, play, ...on].forEach((each, i) => each.setAttribute("aria-keyshortcuts", keys[i]));
  const range = {
    type: "range",
    min: "0",
    max: String(last),
    step: "1",
    value: "0",
    class: "cr-scrubber",
    "aria-label": "Step",
  };
  const scrubber = /** @type {HTMLInputElement} */ (html("input", range));
  const turn = stepper.states.findIndex((state) => state.backward) - 0.5;
  scrubber.style.setProperty("--cr-turn", `${(100 * turn) / last}%`);
  const speeds = SPEEDS.map((speed) =>
    html("option", { value: String(speed), ...(speed === 1 && { selected: "" }) }, `${speed}×`),
  );
  const speed = /** @type {HTMLSelectElement} */ (
    html("select", { class: "cr-speed", "aria-label": "Speed" }, ...speeds)
  );
  const buttons = html("div", { class: "cr-buttons" }, ...back, play, ...on);
  const element = html("div", { class: "cr-controls", role: "group", "aria-label": "Steps" }, buttons, scrubber, speed);
  return { element, back, play, on, scrubber, speed };
}

function buildWords() {
  return {
    phase: html("span", { class: "cr-phase" }),
    count: html("span", { class: "cr-count" }),
    title: html("p", { class: "cr-title" }),
    equation: html("p", { class: "cr-equation" }),
    details: html("dl", { class: "cr-details" }),
    spoken: html("p", { class: "cr-unseen", "aria-live": "polite", "aria-atomic": "true" }),
  };
}

/** Text that breaks before an equals sign and after the comma of a list. */
function breakable(/** @type {string} */ text) {
  return text.split(/(?= = )|(?<=,)(?= {2})/).map((part) => html("span", {}, part));
}
