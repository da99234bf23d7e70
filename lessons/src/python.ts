// Python for the page: one worker that works and a spare that waits, so that code which cannot be stopped costs nothing
// but the worker it runs in.
//
// A call has a time limit. Past it, Python is interrupted where the page may share memory with its workers; if that is
// not possible, or the code resists, the worker is terminated and the spare takes its place.

import type { Incoming, Outgoing } from "./worker";

/** The outcome of a call. */
export type Answer =
  | { kind: "done"; text: string }
  | { kind: "raised"; text: string; type: string }
  | { kind: "stopped"; why: Stop; text: string };

export type Stop = "time" | "asked" | "closed" | "broken";
export type State = "asleep" | "loading" | "ready" | "busy" | "failed";

const GRACE_MS = 300; // for interrupted code to end on its own
const LOAD_SECONDS = 60; // without a byte
const MOST_MEMORY = 2 ** 28; // Python never gives memory back: a worker beyond this is replaced
const SPARE_DELAY_MS = 300; // the page's own work goes first

const WORDS: Record<Stop, string> = {
  time: "Your code ran for more than {seconds} seconds and was stopped. Is there a loop that never ends?",
  asked: "Stopped.",
  closed: "Your code closed the worker that Python runs in. A fresh one has taken its place; nothing you wrote is lost.",
  broken: "Your code ended Python itself: {text}. A fresh Python has taken its place; nothing you wrote is lost.",
};

interface Call {
  module: string;
  name: string;
  args: unknown[];
  seconds: number;
  resolve(answer: Answer): void;
}

class Runner {
  ready = false;
  broken = "";
  readonly worker: Worker;
  readonly interrupts: Uint8Array | null;
  private timer = 0;

  constructor(private readonly hear: (runner: Runner, message: Outgoing) => void) {
    this.worker = new Worker(new URL("worker.js", document.baseURI), { type: "module" });
    const buffer = self.crossOriginIsolated ? new SharedArrayBuffer(1) : null;
    this.interrupts = buffer && new Uint8Array(buffer);
    this.expectNews();
    this.worker.onmessage = ({ data }: MessageEvent<Outgoing>) => {
      if (data.kind === "loading") this.expectNews();
      if (data.kind === "ready") {
        this.ready = true;
        clearTimeout(this.timer);
      }
      hear(this, data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.fail(event.message || "its script could not be fetched");
    };
    this.send({ kind: "load", interrupts: buffer });
  }

  /** On a slow line loading may take long. It has failed only if nothing more comes. */
  private expectNews(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fail(`nothing happened for ${LOAD_SECONDS} seconds`), 1000 * LOAD_SECONDS);
  }

  send(message: Incoming): void {
    this.worker.postMessage(message);
  }

  end(): void {
    clearTimeout(this.timer);
    this.worker.onmessage = this.worker.onerror = null;
    this.worker.terminate();
  }

  private fail(text: string): void {
    clearTimeout(this.timer);
    this.hear(this, this.ready ? { kind: "broken", id: -1, text } : { kind: "unloadable", text });
  }
}

/** Emits "state" when `state` changes, and "loading" as `loaded` grows. */
export class Python extends EventTarget {
  state: State = "asleep";
  loaded = 0; // bytes
  problem = "";
  private active: Runner | null = null;
  private spare: Runner | null = null;
  private spareTimer = 0;
  private readonly queue: Call[] = [];
  private running: { call: Call; id: number; stop: (why: Stop) => void } | null = null;
  private calls = 0;

  /** Starts loading, unless it has started already. */
  wake(): void {
    if (this.state !== "asleep" && this.state !== "failed") return;
    this.active ??= this.newRunner();
    this.loaded = 0;
    this.setState("loading");
  }

  /** Call a function of a Python module with texts and numbers; it returns a text. Calls run one after the other. */
  call(module: string, name: string, args: unknown[], seconds = 20, signal?: AbortSignal): Promise<Answer> {
    return new Promise((resolve) => {
      const call = { module, name, args, seconds, resolve };
      this.queue.push(call);
      signal?.addEventListener("abort", () => this.callOff(call));
      this.wake();
      this.next();
    });
  }

  /** Calls `act` once Python is ready, unless the function that this returns is called before. */
  whenReady(act: () => void): () => void {
    let wanted = true;
    const listen = () => {
      if (!wanted || (this.state !== "ready" && this.state !== "busy")) return;
      end();
      act();
    };
    const end = () => {
      wanted = false;
      this.removeEventListener("state", listen);
    };
    this.addEventListener("state", listen);
    queueMicrotask(listen);
    return end;
  }

  /** Replaces Python by a fresh one, for learners who broke the present one. */
  restart(): void {
    if (this.running) this.running.stop("asked");
    else if (this.active) this.replace();
  }

  private callOff(call: Call): void {
    const place = this.queue.indexOf(call);
    if (place >= 0) {
      this.queue.splice(place, 1);
      call.resolve(stopped("asked", call.seconds));
    } else if (this.running?.call === call) this.running.stop("asked");
  }

  private next(): void {
    if (this.running || !this.active?.ready || this.queue.length === 0) return;
    const call = this.queue.shift() as Call;
    const runner = this.active;
    const id = ++this.calls;
    let why: Stop = "time";
    let timer = 0;
    const stop = (reason: Stop) => {
      why = reason;
      clearTimeout(timer);
      if (!runner.interrupts) {
        this.replace(why);
        return;
      }
      runner.interrupts[0] = 2; // SIGINT: a KeyboardInterrupt in Python
      timer = setTimeout(() => this.replace(why), GRACE_MS);
      interrupted = true;
    };
    let interrupted = false;
    const resolve = call.resolve;
    call.resolve = (answer) => {
      clearTimeout(timer);
      this.running = null;
      resolve(interrupted && answer.kind !== "stopped" ? stopped(why, call.seconds) : answer);
    };
    timer = setTimeout(() => stop("time"), 1000 * call.seconds);
    this.running = { call, id, stop };
    this.setState("busy");
    runner.send({ kind: "call", id, module: call.module, name: call.name, args: call.args });
  }

  private hear(runner: Runner, message: Outgoing): void {
    if (message.kind === "unloadable") return this.unloadable(runner, message.text);
    if (runner === this.spare && (message.kind === "closed" || message.kind === "broken")) {
      runner.end();
      this.spare = null;
    }
    if (runner !== this.active) return;
    if (message.kind === "loading") {
      this.loaded = message.bytes;
      this.dispatchEvent(new Event("loading"));
    } else if (message.kind === "ready") {
      this.setState("ready");
      this.prepareSpare();
    } else if (message.kind === "closed" || message.kind === "broken") {
      this.replace(message.kind, message.kind === "broken" ? message.text : "");
    } else if (this.running?.id === message.id) {
      const { call } = this.running;
      call.resolve(
        message.kind === "done" ? { kind: "done", text: message.text } : { kind: "raised", text: message.text, type: message.type },
      );
      if (message.memory > MOST_MEMORY) this.replace();
      else this.setState("ready");
    }
    this.next();
  }

  /** Terminates the worker, puts the spare in its place, and answers the call that was running. */
  private replace(why: Stop = "broken", text = ""): void {
    this.active?.end();
    this.active = this.spare ?? this.newRunner();
    this.spare = null;
    this.running?.call.resolve(stopped(why, this.running.call.seconds, text));
    this.running = null;
    this.setState(this.active.ready ? "ready" : "loading");
    if (this.active.ready) this.prepareSpare();
    this.next();
  }

  private prepareSpare(): void {
    clearTimeout(this.spareTimer);
    this.spareTimer = setTimeout(() => (this.spare ??= this.newRunner()), SPARE_DELAY_MS);
  }

  private unloadable(runner: Runner, text: string): void {
    runner.end();
    if (runner === this.spare) {
      this.spare = null; // it is tried again when it is needed
      return;
    }
    this.active = null;
    this.problem = `Python could not be loaded: ${text}. You can read on; to run code, look at your connection and try again.`;
    this.setState("failed");
    for (const call of this.queue.splice(0)) call.resolve({ kind: "stopped", why: "broken", text: this.problem });
  }

  private newRunner(): Runner {
    return new Runner((runner, message) => this.hear(runner, message));
  }

  private setState(state: State): void {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}

function stopped(why: Stop, seconds: number, text = ""): Answer {
  return { kind: "stopped", why, text: WORDS[why].replace("{seconds}", String(seconds)).replace("{text}", explain(text)) };
}

/** What a worker's last message means. */
function explain(text: string): string {
  if (/Maximum call stack|stack overflow/i.test(text)) return "it called itself so deeply that the browser's stack was full";
  if (/memory|allocation/i.test(text)) return "it needed more memory than there is";
  if (/exit/i.test(text)) return "it asked the whole interpreter to exit";
  return text || "it stopped answering";
}

export const python = new Python();
