// Runs in a module worker: Python, and one call at a time into the package's own modules.
//
// In: {kind: "load", interrupts} once, then {kind: "call", id, module, name, args}.
// Out: "loading" (with the bytes that have come so far), "ready", "done" (with what the call returned, a text, and the size of Python's memory), "raised" (a Python
// exception that was not caught), "broken" (Python itself is gone), "closed" (the code closed this worker), "unloadable".

import type { PyodideInterface } from "pyodide";

export type Incoming =
  | { kind: "load"; interrupts: SharedArrayBuffer | null }
  | { kind: "call"; id: number; module: string; name: string; args: unknown[] };

export type Outgoing =
  | { kind: "loading"; bytes: number }
  | { kind: "ready" }
  | { kind: "unloadable"; text: string }
  | { kind: "done"; id: number; text: string; memory: number }
  | { kind: "raised"; id: number; text: string; type: string; memory: number }
  | { kind: "broken"; id: number; text: string }
  | { kind: "closed" };

declare const self: {
  onmessage: ((event: MessageEvent<Incoming>) => void) | null;
  postMessage(message: Outgoing): void;
  close(): void;
  fetch: typeof fetch;
  location: Location;
};

const HOME = "/lib/lessons";
const MOST_MEMORY = 2 ** 29; // beyond it, Python has a MemoryError, long before the browser has none left
const NEEDED = ["chainrule.learn.demonstrations", "chainrule.learn.grading", "chainrule.gradcheck"];
const SCRIPTS = ["pyodide.mjs", "pyodide.asm.mjs"]; // fetched first, since what is imported cannot be counted
let python: PyodideInterface;
let interrupts: Uint8Array | null = null;

// Code that runs here could replace this function.
const post = self.postMessage.bind(self);

// When a learner's code ends Pyodide, the page says so; Pyodide would ask for a report to its maintainers.
console.error = () => {};

const grow = WebAssembly.Memory.prototype.grow;
WebAssembly.Memory.prototype.grow = function (pages) {
  if (this.buffer.byteLength + pages * 2 ** 16 > MOST_MEMORY) throw new RangeError("this is all the memory there is");
  return grow.call(this, pages);
};

/** Python's files are fetched through this, so that the page can tell how much has come. */
let bytes = 0;
const fetched = self.fetch.bind(self);
self.fetch = async (...request) => {
  const answer = await fetched(...request);
  if (answer.ok && answer.body) void count(answer.clone().body as ReadableStream<Uint8Array>);
  return answer;
};

async function count(body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      bytes += part.value.length;
      post({ kind: "loading", bytes });
    }
  } catch {
    // whoever asked for the file is told
  }
}

async function load(buffer: SharedArrayBuffer | null): Promise<void> {
  const folder = new URL("pyodide/", self.location.href).href;
  await Promise.all(SCRIPTS.map((name) => fetch(`${folder}${name}`).then((answer) => answer.arrayBuffer())));
  const { loadPyodide } = (await import(`${folder}pyodide.mjs`)) as typeof import("pyodide");
  const [loaded, archive] = await Promise.all([
    loadPyodide({ indexURL: folder, env: { HOME: "/home/pyodide", CHAINRULE_ENGINE: "python", PYTHONHASHSEED: "0" } }),
    fetch(new URL("chainrule.zip", self.location.href)).then((answer) => {
      if (!answer.ok) throw new Error(`chainrule.zip: ${answer.status} ${answer.statusText}`);
      return answer.arrayBuffer();
    }),
  ]);
  self.fetch = fetched;
  python = loaded;
  python.unpackArchive(archive, "zip", { extractDir: HOME });
  python.runPython(`import sys; sys.path.insert(0, ${JSON.stringify(HOME)})`);
  python.setStdin({ stdin: () => null }); // there is no input
  python.setStdout({ batched: () => {} }); // what graded code prints is in its report
  python.setStderr({ batched: () => {} });
  if (buffer) {
    interrupts = new Uint8Array(buffer);
    python.setInterruptBuffer(interrupts);
  }
  for (const name of NEEDED) python.pyimport(name); // now, so that no check waits for it
  python.runPython("import gc; gc.collect(); gc.freeze(); gc.set_threshold(50_000)"); // a step makes so many objects: sort them out once
}

function call({ id, module, name, args }: Incoming & { kind: "call" }): Outgoing {
  if (interrupts) interrupts[0] = 0;
  try {
    const text = String(python.pyimport(module)[name](...args));
    return { kind: "done", id, text, memory: memory() };
  } catch (error) {
    if (error instanceof python.ffi.PythonError) {
      return { kind: "raised", id, text: String(error.message), type: error.type, memory: memory() };
    }
    return { kind: "broken", id, text: String(error) };
  }
}

function memory(): number {
  return (python as unknown as { _module: { HEAP8: Int8Array } })._module.HEAP8.length;
}

// Python code can reach this by `js.close()`. Tell the page, so that it does not wait in vain.
const close = self.close.bind(self);
self.close = () => {
  post({ kind: "closed" });
  close();
};

self.onmessage = ({ data }) => {
  if (data.kind === "call") {
    post(call(data));
  } else {
    load(data.interrupts).then(
      () => post({ kind: "ready" }),
      (error) => post({ kind: "unloadable", text: String(error) }),
    );
  }
};
