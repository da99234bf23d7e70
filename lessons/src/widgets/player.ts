// A demonstration with a button that plays it, pauses it, and restarts it once it has finished.

import { Demonstration, latest } from "../demonstration";
import { button } from "../elements";
import { type Lent, type Program, whenOwnCodeChanges } from "../own_code";
import { python } from "../python";
import type { Whose } from "../whose";

export interface PlayerOptions<State> {
  words: string; // on the button
  kind: string; // of the demonstration
  settings: () => { program: Program | null };
  whose: Whose;
  steps: (state: State) => number; // taken so far
  most: number;
  atATime?: number;
  show: (state: State) => void;
  say: (words: string) => void; // "" when it begins anew, or what went wrong
  clear: () => void; // what was shown, when it begins anew
  early?: boolean; // its first state is shown as soon as Python is ready, before it is played
}

export class Player<State> {
  readonly button: HTMLButtonElement;
  private run: Demonstration<State>;
  private readonly showEarly = latest(async () => this.run.state ?? this.run.start());
  private stops: (() => void)[] = [];

  constructor(private readonly options: PlayerOptions<State>) {
    this.button = button(options.words, () => void this.press(), "primary");
    this.run = this.newRun();
    if (options.early) this.stops = [python.whenReady(this.showEarly), whenOwnCodeChanges(() => this.isFresh && this.restart())];
  }

  async step(): Promise<void> {
    await this.run.advance(1);
  }

  /** Changes settings of what runs. */
  async adjust(settings: object): Promise<void> {
    await this.run.adjust(settings);
  }

  restart(): void {
    this.run.destroy();
    this.run = this.newRun();
    this.button.textContent = this.options.words;
    this.options.say("");
    this.options.clear();
    if (this.options.early && python.state !== "asleep") this.showEarly();
  }

  destroy(): void {
    this.stops.forEach((stop) => stop());
    this.options.whose.destroy();
    this.run.destroy();
  }

  /** Whether it was shown but not played: then it may as well be another. */
  private get isFresh(): boolean {
    const { running, state } = this.run;
    return !running && state !== null && this.options.steps(state) === 0;
  }

  private async press(): Promise<void> {
    const { words, steps, most, atATime } = this.options;
    if (this.run.running) return this.run.pause();
    if (this.run.state && steps(this.run.state) >= most) this.restart();
    const { run } = this;
    this.button.textContent = "Pause";
    await run.play((state) => most - steps(state), atATime);
    if (run === this.run) this.button.textContent = words; // and not begun anew meanwhile
  }

  private newRun(): Demonstration<State> {
    const { kind, settings, show, say, whose } = this.options;
    const tell = (state: State & Lent) => {
      whose.tell(state);
      show(state);
    };
    return new Demonstration<State>(kind, settings, tell, say);
  }
}
