import { html } from "./elements";
import type { Page } from "./main";

export function playgroundPage(): Page {
  return { title: "Playground", element: html("article", { class: "page" }) };
}
