// A demonstration of `chainrule.learn.demonstrations`: started in Python, then advanced step by step while the page
// draws. If Python was replaced meanwhile, it starts over.

import { python } from "./python";

const MODULE = "chainrule.learn.demonstrations";
const SLICE_SECONDS = 0.05; // so that checks and clicks never wait long

export class Demonstration<State> {
  state: State | null = null;
  private name = "";
  private playing = false;
  private ended = false;

  constructor(
    private readonly kind: string,
    private readonly settings: () => object,
    private readonly show: (state: State) => void,
    private readonly fail: (words: string) => void,
  ) {}

  get running(): boolean {
    return this.playing;
  }

  get id(): string {
    return this.name;
  }

  /** Starts over; returns whether that worked. */
  async start(): Promise<boolean> {
    const answer = await python.call(MODULE, "start", [this.kind, JSON.stringify(this.settings())]);
    if (this.ended) return false;
    if (answer.kind !== "done") {
      this.playing = false;
      this.fail(answer.kind === "raised" ? lastLine(answer.text) : answer.text);
      return false;
    }
    const { name, ...state } = JSON.parse(answer.text) as State & { name: string };
    this.name = name;
    this.state = state as State;
    this.show(this.state);
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
      this.state = JSON.parse(answer.text) as State;
      this.show(this.state);
    }
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
  }

  pause(): void {
    this.playing = false;
  }

  destroy(): void {
    this.playing = false;
    this.ended = true;
  }
}

/** The last line of a traceback. */
function lastLine(traceback: string): string {
  return traceback.trim().split("\n").at(-1) ?? "";
}
