// Syntax highlighting of Python in the text, in the editor's colours.

import { pythonLanguage } from "@codemirror/lang-python";
import { classHighlighter, highlightCode } from "@lezer/highlight";
import { html } from "./elements";

/** Highlights the code in an element. */
export function highlight(element: HTMLElement): void {
  const code = element.textContent ?? "";
  element.replaceChildren();
  highlightCode(
    code,
    pythonLanguage.parser.parse(code),
    classHighlighter,
    (text, classes) => element.append(classes ? html("span", { class: classes }, text) : text),
    () => element.append("\n"),
  );
}
