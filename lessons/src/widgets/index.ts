// The widgets that lessons can name.

import type { Course } from "../course";
import { html } from "../elements";
import type { Live } from "../lesson";

type Widget = (course: Course, attributes: Record<string, string>) => Live;

const WIDGETS: Record<string, Widget> = {
};

export function widgetView(course: Course, name: string, attributes: Record<string, string>): Live {
  const widget = WIDGETS[name];
  if (!widget) return { element: html("p", { class: "error" }, `There is no widget called ${name}.`) };
  return widget(course, attributes);
}
