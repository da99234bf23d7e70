// A demonstration of `chainrule.learn.demonstrations`: started in Python, then advanced step by step while the page
// draws. If Python was replaced meanwhile, it starts over.

import type { Lent, Program } from "./own_code";
import { python } from "./python";
import { store } from "./store";

const MODULE = "chainrule.learn.demonstrations";
const SLICE_SECONDS = 0.05; // so that checks and clicks never wait long
const START_SECONDS = 90; // a GPT's graph is built in 5 seconds, but on a slow telephone in many more

/** What every demonstration tells: the nodes it has made, the steps it has taken, and what of its program is lent. */
export interface Work extends Lent {
  nodes: number;
  taken: number;
}

export class Demonstration<State> {
  state: (State & Work) | null = null;
  private name = "";
  private starting: Promise<boolean> | null = null;
  private playing = false;
  private ended = false;
  private own = false; // whether the learner's own class runs

  constructor(
    private readonly kind: string,
    private readonly settings: () => { program: Program | null },
    private readonly show: (state: State & Work) => void,
    private readonly fail: (words: string) => void,
  ) {}

  get running(): boolean {
    return this.playing;
  }

  get id(): string {
    return this.name;
  }

  /** Starts over, unless it is just about to; returns whether that worked. */
  start(): Promise<boolean> {
    this.starting ??= this.begin().finally(() => (this.starting = null));
    return this.starting;
  }

  private async begin(): Promise<boolean> {
    const settings = this.settings();
    const answer = await python.call(MODULE, "start", [this.kind, JSON.stringify(settings)], START_SECONDS);
    if (this.ended) return false;
    if (answer.kind !== "done") {
      this.playing = false;
      this.fail(answer.kind === "raised" ? lastLine(answer.text) : answer.text);
      return false;
    }
    const { name, ...state } = JSON.parse(answer.text) as State & Work & { name: string };
    this.name = name;
    this.own = settings.program?.engine === "own" && Object.keys(settings.program.own).length > 0;
    this.state = null;
    this.take(state as State & Work);
    return true;
  }

  async advance(steps: number): Promise<void> {
    if (!this.name && !(await this.start())) return;
    const answer = await python.call(MODULE, "advance", [this.name, steps, SLICE_SECONDS]);
    if (this.ended) return;
    if (answer.kind !== "done") {
      this.playing = false;
      this.fail(answer.kind === "raised" ? lastLine(answer.text) : answer.text);
    } else if (answer.text === "null") {
      await this.start();
    } else {
      this.take(JSON.parse(answer.text) as State & Work);
      if (!this.playing) store.save(); // what was counted
    }
  }

  /** Changes settings without starting over. */
  async adjust(settings: object): Promise<void> {
    if (!this.name) return;
    const answer = await python.call(MODULE, "adjust", [this.name, JSON.stringify(settings)]);
    if (this.ended || answer.kind !== "done") return;
    if (answer.text === "null") await this.start();
    else this.take(JSON.parse(answer.text) as State & Work);
  }

  private take(state: State & Work): void {
    const { nodes, taken } = this.state ?? { nodes: 0, taken: 0 };
    if (this.own) store.count(state.nodes - nodes, state.taken - taken);
    this.state = state;
    this.show(state);
  }

  /** Continues until `pause`, or until no steps are `left`, at most `atATime` at once. */
  async play(left: (state: State) => number, atATime = Number.MAX_SAFE_INTEGER): Promise<void> {
    if (this.playing) return;
    this.playing = true;
    if (!this.state && !(await this.start())) return;
    while (this.playing && !this.ended && this.state && left(this.state) > 0) {
      await this.advance(Math.min(atATime, left(this.state)));
      await new Promise((resolve) => (document.hidden ? setTimeout(resolve, 200) : requestAnimationFrame(resolve)));
    }
    this.playing = false;
    store.save(); // what was counted
  }

  pause(): void {
    this.playing = false;
  }

  destroy(): void {
    this.playing = false;
    this.ended = true;
  }
}

/** A function that acts, and acts once more if it was called meanwhile: of many changes in a row, only the last counts. */
export function latest(act: () => Promise<unknown>): () => void {
  let [acting, again] = [false, false];
  const run = async () => {
    again = acting;
    if (acting) return;
    acting = true;
    await act();
    acting = false;
    if (again) void run();
  };
  return () => void run();
}

/** The last line of a traceback. */
function lastLine(traceback: string): string {
  return traceback.trim().split("\n").at(-1) ?? "";
}
