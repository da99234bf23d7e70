// A demonstration with a button that plays it, pauses it, and restarts it once it has finished.

import { Demonstration } from "../demonstration";
import { button } from "../elements";
import type { Lent, Program } from "../own_code";
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
}

export class Player<State> {
  readonly button: HTMLButtonElement;
  private run: Demonstration<State>;

  constructor(private readonly options: PlayerOptions<State>) {
    this.button = button(options.words, () => void this.press(), "primary");
    this.run = this.newRun();
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
  }

  destroy(): void {
    this.options.whose.destroy();
    this.run.destroy();
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
