// Runs modules that a test sends, one JSON text a line: numbers travel as the hexadecimal digits of their bits.
import { createInterface } from "node:readline";
import { load } from "../../src/chainrule/wasm/loader.mjs";

const floats = (text) => new Float64Array(new Uint8Array(Buffer.from(text, "hex")).buffer);
const digits = (numbers) => Buffer.from(Float64Array.from(numbers).buffer).toString("hex");

async function answer({ module, rows, steps, call }) {
  const program = await load(Buffer.from(module, "hex"));
  if (rows) program.examples = rows.map(floats);
  if (call) return { text: String(eval(call)(program)) };
  const results = digits(program.forward().flatMap((row) => [...row]));
  const mean = program.exports.gradient ? digits([program.gradient()]) : "";
  const gradient = mean && digits(program.buffer("gradient"));
  const losses = digits(Array.from({ length: steps ?? 0 }, (_, turn) => program.step(turn)));
  return { results, mean, gradient, losses, parameters: digits(program.buffer("parameters")) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const reply = await answer(JSON.parse(line)).catch((error) => ({ error: String(error.message ?? error) }));
  process.stdout.write(JSON.stringify(reply) + "\n");
}
