// Formulas of one variable, written as in Python: read once, computed often.

type Function1 = (x: number) => number;

const NAMES: Record<string, Function1> = {
  abs: Math.abs,
  cos: Math.cos,
  exp: Math.exp,
  log: Math.log,
  relu: (x) => Math.max(0, x),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  sin: Math.sin,
  sqrt: Math.sqrt,
  tanh: Math.tanh,
};

/** `formula("3*x**2 - 4*x + 5")` is a function of x. */
export function formula(text: string): Function1 {
  const tokens = text.match(/\d+\.?\d*(?:e[+-]?\d+)?|\*\*|[a-z]+|[-+*/()]/gi) ?? [];
  let at = 0;
  const next = (token: string) => (tokens[at] === token ? (at++, true) : false);

  function sum(): Function1 {
    let left = product();
    for (;;) {
      const [a, sign] = [left, next("+") ? 1 : next("-") ? -1 : 0];
      if (!sign) return left;
      const b = product();
      left = (x) => a(x) + sign * b(x);
    }
  }
  function product(): Function1 {
    let left = signed();
    for (;;) {
      const a = left;
      if (next("*")) {
        const b = signed();
        left = (x) => a(x) * b(x);
      } else if (next("/")) {
        const b = signed();
        left = (x) => a(x) / b(x);
      } else return left;
    }
  }
  function signed(): Function1 {
    if (!next("-")) return power();
    const a = signed();
    return (x) => -a(x);
  }
  function power(): Function1 {
    const base = atom();
    if (!next("**")) return base;
    const exponent = signed();
    return (x) => base(x) ** exponent(x);
  }
  function atom(): Function1 {
    const token = tokens[at++] ?? "";
    if (token === "x") return (x) => x;
    if (/^[\d.]/.test(token)) return () => Number(token);
    if (token === "(" || token in NAMES) {
      if (token !== "(" && !next("(")) throw new Error(`there is no ( after ${token}`);
      const inner = sum();
      if (!next(")")) throw new Error("a ) is missing");
      return token === "(" ? inner : (x) => NAMES[token](inner(x));
    }
    throw new Error(`${token || "the end"} was not expected`);
  }

  const found = sum();
  if (at < tokens.length) throw new Error(`${tokens[at]} was not expected`);
  return found;
}

/** The derivative by a central difference with a step near the best one. */
export function slopeOf(f: Function1, x: number): number {
  const h = 6e-6 * Math.max(1, Math.abs(x));
  return (f(x + h) - f(x - h)) / (2 * h);
}
