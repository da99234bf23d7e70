// A question with choices. Every choice has an explanation, wrong ones too; answers are stored.

import { type Quiz, inlineProse, prose } from "./course";
import { html, liveText, newId } from "./elements";
import { store } from "./store";

export function quizView(quiz: Quiz): HTMLElement {
  const stem = newId("quiz");
  const status = liveText("quiz-status");
  const several = quiz.choices.filter((choice) => choice.right).length > 1;
  const items = quiz.choices.map((choice, i) => {
    const explanation = html("p", { class: "explanation", id: `${stem}-why-${i}`, hidden: "" });
    const said = choice.right && /^Right\b/.test(choice.explanation); // by the lesson itself
    explanation.append(html("strong", {}, said ? "" : choice.right ? "Right. " : "Not this one. "), inlineProse(choice.explanation));
    const answer = html("button", { type: "button", class: "choice", "aria-pressed": "false", "aria-describedby": `${stem}-why-${i}` }, inlineProse(choice.text));
    const open = () => {
      answer.setAttribute("aria-pressed", "true");
      answer.dataset.outcome = choice.right ? "right" : "wrong";
      explanation.hidden = false;
    };
    answer.addEventListener("click", () => {
      const tried = (store.progress.quizzes[quiz.name] ??= []);
      if (!tried.includes(i)) tried.push(i);
      store.save();
      open();
      status.textContent = explanation.textContent;
    });
    if (store.progress.quizzes[quiz.name]?.includes(i)) open();
    return html("li", {}, answer, explanation);
  });
  const hint = several ? [html("p", { class: "caption" }, "More than one is right.")] : [];
  return html("section", { class: "quiz live", "data-quiz": quiz.name, "aria-label": "Question" }, prose(quiz.question), ...hint, html("ul", { class: "choices" }, ...items), status);
}

export function quizSolved(quiz: Quiz): boolean {
  const tried = store.progress.quizzes[quiz.name] ?? [];
  return quiz.choices.every((choice, i) => !choice.right || tried.includes(i));
}
