// The widgets that lessons can name.

import type { Course } from "../course";
import { html } from "../elements";
import type { Live } from "../lesson";
import { Playground } from "../playground";
import { vanishing, xorCompare } from "./activations";
import { arrayProgram } from "./array_program";
import { gpt } from "./gpt";
import { network } from "./network";
import { nudge } from "./nudge";
import { race } from "./race";
import { forgottenZero, training } from "./training";
import { ucurve } from "./ucurve";

type Widget = (course: Course, attributes: Record<string, string>) => Live;

const WIDGETS: Record<string, Widget> = {
  nudge,
  ucurve,
  network,
  training,
  "forgotten-zero": forgottenZero,
  "xor-compare": xorCompare,
  vanishing,
  "array-program": arrayProgram,
  race,
  gpt,
  playground: (course, attributes) => new Playground(course, attributes),
};

export function widgetView(course: Course, name: string, attributes: Record<string, string>): Live {
  try {
    return WIDGETS[name](course, attributes);
  } catch (error) {
    return { element: html("p", { class: "error" }, `The widget ${name} cannot be shown: ${(error as Error).message}.`) };
  }
}
