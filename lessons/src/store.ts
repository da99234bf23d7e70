// A learner's progress, kept in this browser: code, answers, what passed. It can be saved to a file and loaded again.

import { recall, remember } from "./memory";

const KEY = "chainrule-learn";

export interface ExerciseProgress {
  code?: string;
  passed?: string; // the code that passed last: other exercises build on it
  hints?: number; // how many steps of the ladder are open
}

export interface Progress {
  version: 1;
  exercises: Record<string, ExerciseProgress>;
  quizzes: Record<string, number[]>; // the choices tried, in order
  predictions: Record<string, Record<string, string>>; // what was predicted, by node
  visited: Record<string, true>;
  last?: { lesson: string; exercise: string }; // where the learner was
  built?: { nodes: number; steps: number }; // by the learner's own class, in the figures that train
}

const EMPTY: Progress = { version: 1, exercises: {}, quizzes: {}, predictions: {}, visited: {} };

/** Emits "change", and "elsewhere" if it was another tab that changed it. */
class Store extends EventTarget {
  progress: Progress = read(recall(KEY)) ?? structuredClone(EMPTY);

  constructor() {
    super();
    addEventListener("storage", ({ key }) => {
      if (key !== KEY) return; // another tab has changed it
      this.progress = read(recall(KEY)) ?? structuredClone(EMPTY);
      this.dispatchEvent(new Event("change"));
      this.dispatchEvent(new Event("elsewhere"));
    });
  }

  exercise(name: string): ExerciseProgress {
    return (this.progress.exercises[name] ??= {});
  }

  /** Notes where the learner is. A visit alone does not make one forget the exercise that was begun there. */
  left(lesson: string, exercise = ""): void {
    const before = this.progress.last?.lesson === lesson ? this.progress.last.exercise : "";
    this.progress.last = { lesson, exercise: exercise || before };
  }

  /** Adds to what the learner's class has built. It is stored with the next change. */
  count(nodes: number, steps: number): void {
    const { built = { nodes: 0, steps: 0 } } = this.progress;
    this.progress.built = { nodes: built.nodes + nodes, steps: built.steps + steps };
  }

  /** Call this after every change. */
  save(): void {
    if (!remember(KEY, JSON.stringify(this.progress))) this.dispatchEvent(new Event("full"));
    this.dispatchEvent(new Event("change"));
  }

  toFile(): Blob {
    return new Blob([JSON.stringify(this.progress, null, 1)], { type: "application/json" });
  }

  fromFile(text: string): void {
    const found = read(text);
    if (!found) throw new Error("This file does not hold progress of this course: choose one that was saved here.");
    this.progress = found;
    this.save();
  }

  reset(): void {
    this.progress = structuredClone(EMPTY);
    this.save();
  }
}

/** Progress from untrusted text. */
function read(text: string | null): Progress | null {
  let data: unknown;
  try {
    data = JSON.parse(text ?? "");
  } catch {
    return null;
  }
  if (!isRecord(data) || data.version !== 1) return null;
  const { exercises, quizzes, predictions, visited, built, last } = data;
  if (![exercises, quizzes, predictions, visited].every(isRecord)) return null;
  return {
    version: 1,
    exercises: entries(exercises, (each): each is ExerciseProgress => {
      const { code, passed, hints } = each as Record<string, unknown>;
      return isTextOrNothing(code) && isTextOrNothing(passed) && (hints === undefined || Number.isInteger(hints));
    }),
    quizzes: entries(quizzes, (each): each is number[] => Array.isArray(each) && each.every(Number.isInteger)),
    predictions: entries(predictions, (each): each is Record<string, string> => isRecord(each) && Object.values(each).every(isTextOrNothing)),
    visited: entries(visited, (each): each is true => each === true),
    ...(isRecord(last) && typeof last.lesson === "string" && typeof last.exercise === "string" && { last: { lesson: last.lesson, exercise: last.exercise } }),
    ...(isRecord(built) && Number.isInteger(built.nodes) && Number.isInteger(built.steps) && { built: { nodes: Number(built.nodes), steps: Number(built.steps) } }),
  };
}

function isRecord(thing: unknown): thing is Record<string, unknown> {
  return typeof thing === "object" && thing !== null && !Array.isArray(thing);
}

function isTextOrNothing(thing: unknown): thing is string | undefined {
  return thing === undefined || typeof thing === "string";
}

/** The entries that are well-formed. */
function entries<T>(record: unknown, fits: (entry: unknown) => entry is T): Record<string, T> {
  const found = Object.entries(record as Record<string, unknown>).filter((entry): entry is [string, T] => {
    return (isRecord(entry[1]) || Array.isArray(entry[1]) || entry[1] === true) && fits(entry[1]);
  });
  return Object.fromEntries(found);
}

export const store = new Store();
