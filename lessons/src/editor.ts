// A Python editor: CodeMirror with a small set of extensions, in the page's colours. Nothing pops up while typing.

import { indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { minimalSetup } from "codemirror";

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.operatorKeyword, tags.moduleKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.definition(tags.variableName), tags.function(tags.variableName)], color: "var(--code-name)" },
]);

const markLines = StateEffect.define<{ lines: number[]; style: string }[]>();

const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(set, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(markLines)) return Decoration.set(decorations(transaction.state, effect.value), true);
    }
    return set.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

function decorations(state: EditorState, groups: { lines: number[]; style: string }[]): Range<Decoration>[] {
  return groups.flatMap(({ lines, style }) =>
    lines.filter((line) => line >= 1 && line <= state.doc.lines).map((line) => Decoration.line({ class: style }).range(state.doc.line(line).from)),
  );
}

export interface EditorOptions {
  label: string;
  code: string;
  readOnly?: boolean;
  onChange?: (code: string) => void;
  onCheck?: () => void;
  onRun?: () => void;
}

export class Editor {
  readonly view: EditorView;

  constructor(parent: HTMLElement, { label, code, readOnly = false, onChange, onCheck, onRun }: EditorOptions) {
    this.view = new EditorView({
      parent,
      doc: code,
      extensions: [
        keymap.of([ // before the default, which opens a line
          { key: "Mod-Enter", run: () => (onCheck?.(), true) },
          ...(onRun ? [{ key: "Shift-Enter", run: () => (onRun(), true) }] : []),
        ]),
        minimalSetup,
        lineNumbers(),
        indentOnInput(),
        indentUnit.of("    "),
        EditorState.tabSize.of(4),
        bracketMatching(),
        keymap.of([indentWithTab]),
        python(),
        syntaxHighlighting(colours),
        marks,
        EditorState.readOnly.of(readOnly),
        EditorView.editable.of(!readOnly),
        EditorView.contentAttributes.of({ "aria-label": label, ...(readOnly && { tabindex: "0", role: "textbox", "aria-readonly": "true", "aria-multiline": "true" }) }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange?.(update.state.doc.toString());
        }),
      ],
    });
    const measure = () => this.view.requestMeasure();
    requestAnimationFrame(measure); // it was built outside the page
    void document.fonts.ready.then(measure);
  }

  get code(): string {
    return this.view.state.doc.toString();
  }

  set code(code: string) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: code } });
  }

  /** Highlights lines, counted from 1. */
  mark(lines: number[], style: "cm-wrong-line" | "cm-slot-line"): void {
    this.view.dispatch({ effects: markLines.of([{ lines, style }]) });
  }

  scrollTo(line: number): void {
    const { doc } = this.view.state;
    const at = doc.line(Math.max(1, Math.min(doc.lines, line))).from;
    this.view.dispatch({ effects: EditorView.scrollIntoView(at, { y: "center" }) });
  }

  destroy(): void {
    this.view.destroy();
  }
}
