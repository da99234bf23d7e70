/** Runs a module made by chainrule's `to_wasm`, in a browser or in Node. See docs/wasm.md. */

/**
 * @param {BufferSource} bytes the module's file
 * @returns {Promise<Program>}
 */
export async function load(bytes) {
  const module = await WebAssembly.compile(bytes);
  const [section] = WebAssembly.Module.customSections(module, "chainrule");
  if (!section) throw new Error("these bytes are WebAssembly, but no module that chainrule's to_wasm made");
  const instance = await WebAssembly.instantiate(module);
  return new Program(JSON.parse(new TextDecoder().decode(section)), instance.exports);
}

export class Program {
  /**
   * @param {{inputs: number, results: number, buffers: Record<string, [number, number]>, scalars?: string[]}} about
   * @param {any} exports
   */
  constructor(about, exports) {
    this.about = about;
    this.exports = exports;
    this.count = 1; // of rows
  }

  /** Numbers in memory: "parameters", "gradient", "captured", "scalars", or a slot of the optimizer. Ask again after `examples`. */
  buffer(/** @type {string} */ name) {
    const found = this.about.buffers[name];
    if (!found) throw new Error(`there is no buffer "${name}": choose from ${Object.keys(this.about.buffers).join(", ")}`);
    return new Float64Array(this.exports.memory.buffer, ...found);
  }

  /** All rows: an example's inputs, then its results. */
  get rows() {
    const { inputs, results, buffers } = this.about;
    return new Float64Array(this.exports.memory.buffer, buffers.rows[0], this.count * (inputs + results));
  }

  /** Take these examples: the inputs of each. */
  set examples(/** @type {ArrayLike<number>[]} */ examples) {
    const { inputs, results, buffers } = this.about;
    const short = examples.findIndex((example) => example.length !== inputs);
    if (short >= 0) throw new Error(`example ${short} has ${examples[short].length} numbers: give ${inputs} inputs each`);
    if (buffers.rows[0] + 8 * examples.length * (inputs + results) >= 2 ** 31) throw new Error(`${examples.length} examples do not fit into 2 GB: give fewer at a time`);
    const missing = buffers.rows[0] + 8 * examples.length * (inputs + results) - this.exports.memory.buffer.byteLength;
    if (missing > 0) this.exports.memory.grow(Math.ceil(missing / 65536));
    this.count = examples.length;
    const rows = this.rows;
    examples.forEach((example, i) => rows.set(example, i * (inputs + results)));
  }

  /** Compute the results of some rows, by default of all: an array for each. */
  forward(first = 0, count = this.count - first) {
    this.check(first, count);
    this.exports.forward(first, count);
    const { inputs, results } = this.about, stride = inputs + results, rows = this.rows;
    return Array.from({ length: count }, (_, i) => rows.slice((first + i) * stride + inputs, (first + i + 1) * stride));
  }

  /** The mean result of some rows; its gradient is then in the buffer "gradient". */
  gradient(first = 0, count = this.count - first) {
    this.check(first, count);
    return this.exports.gradient(first, count);
  }

  /** A step of the optimizer on the mean of some rows, with the scalars of one turn; returns the mean from before. */
  step(turn = 0, first = 0, count = this.count - first) {
    this.check(first, count);
    const turns = this.about.buffers.scalars[1] / this.about.scalars.length;
    if (!(Number.isInteger(turn) && turn >= 0 && turn < turns)) throw new Error(`turn ${turn} has no scalars: there are ${turns} (give to_wasm more \`steps\`)`);
    return this.exports.step(first, count, turn);
  }

  /**
   * Many steps, each on `size` rows: those of turn `turn`, then the next ones, and over again; rows that fill no batch are left
   * out. Returns the mean of their losses.
   */
  train(/** @type {number} */ times, turn = 0, size = this.count) {
    this.check(0, size);
    if (![times, turn].every(Number.isInteger) || times < 1 || turn < 0 || times + turn > 2 ** 30)
      throw new Error(`\`times\` must be a whole number of at least 1 and \`turn\` of at least 0, got ${times} and ${turn}`);
    return this.exports.train(this.count, size, turn, times);
  }

  check(/** @type {number} */ first, /** @type {number} */ count) {
    if (![first, count].every(Number.isInteger)) throw new Error(`rows must be given by whole numbers, got ${first} and ${count}`);
    if (!(first >= 0 && count >= 1 && first + count <= this.count))
      throw new Error(`rows ${first} to ${first + count} were asked for, and there are ${this.count}`);
  }
}
