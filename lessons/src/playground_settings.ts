// The playground's settings, and how they stand in the address, so that a link holds them all.

export type Point = [x: number, y: number, label: number]; // its class is 1 or -1

export interface Settings {
  data: string;
  noise: number;
  layers: number;
  neurons: number;
  activation: string;
  lr: number;
  seed: number;
  engine: string;
  points: Point[];
}

export const SETS: [string, string][] = [["moons", "moons"], ["circles", "circles"], ["xor", "xor"], ["spirals", "spirals"], ["blobs", "blobs"], ["own", "points of your own"]];
export const STANDARD: Settings = { data: "moons", noise: 0.1, layers: 2, neurons: 6, activation: "tanh", lr: 0.01, seed: 1, engine: "own", points: [] };
export const MOST_POINTS = 200;
export const MOST_NEURONS = 16;

export function read(given: Record<string, string>, standard: Settings): Settings {
  const shape = (given.hidden ?? "").split(","); // lessons write hidden=6,6 and rate=0.03
  const attributes: Record<string, string> = { ...(given.hidden && { layers: String(shape.length), neurons: shape[0] }), ...(given.rate && { lr: given.rate }), ...given };
  const number = (name: keyof Settings, low: number, high: number) => {
    const found = Number(attributes[name]);
    return attributes[name] !== undefined && found >= low && found <= high ? found : (standard[name] as number);
  };
  const points = (attributes.points ?? "").split(";").map((text) => text.split(",").map(Number)).filter((point) => point.length === 3 && point.every(Number.isFinite) && Math.abs(point[2]) === 1) as Point[];
  const data = SETS.some(([name]) => name === attributes.data) ? attributes.data : standard.data;
  return {
    data,
    noise: number("noise", 0, 0.4),
    layers: Math.round(number("layers", 1, 3)),
    neurons: Math.round(number("neurons", 1, MOST_NEURONS)),
    activation: ["tanh", "relu", "sigmoid"].includes(attributes.activation) ? attributes.activation : standard.activation,
    lr: number("lr", 0.001, 0.5),
    seed: Math.round(number("seed", 1, 20)),
    engine: ["own", "chainrule"].includes(attributes.engine) ? attributes.engine : standard.engine,
    points: data === "own" ? points.slice(0, MOST_POINTS) : [],
  };
}

export function address(settings: Settings, standard: Settings): string {
  const changed = Object.entries(settings).filter(([name, value]) => name !== "points" && value !== standard[name as keyof Settings]);
  const found = new URLSearchParams(changed.map(([name, value]) => [name, String(value)]));
  if (settings.points.length) found.set("points", settings.points.map((point) => point.join(",")).join(";"));
  const text = found.toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
  return text ? `?${text}` : "";
}
