// Markdown to HTML by markdown-it, with the rules that lessons use and no HTML: whatever is not Markdown is escaped.
//
// Added to it: math between dollar signs, which `math` turns into HTML (KaTeX when the site is built, plain code in the
// page), tables that scroll on their own, and links restricted to the web and to pages of the site.

import MarkdownIt from "markdown-it";

export type MathRenderer = (tex: string, display: boolean) => string;

const RULES = ["heading", "fence", "blockquote", "table", "list", "hr", "backticks", "emphasis", "link", "escape"];
const LINK = /^(https?:|#|\.{0,2}\/|[\w-]+\.html)/;
const MATH = /\$\$(.+?)\$\$|\$(?! )((?:\\.|[^$\\])+?)(?<! )\$(?!\d)/sy; // not $5 and $6

const markdown = new MarkdownIt("zero").enable(RULES);
const escape = markdown.utils.escapeHtml;
const rules = markdown.renderer.rules;

const plainMath: MathRenderer = (tex, display) =>
  display ? `<pre class="math"><code>${escape(tex)}</code></pre>` : `<code class="math">${escape(tex)}</code>`;

export function renderMarkdown(text: string, math: MathRenderer = plainMath): string {
  return markdown.render(text, { math });
}

/** Inline Markdown, without a paragraph around it. */
export function renderInline(text: string, math: MathRenderer = plainMath): string {
  return markdown.renderInline(text.trim(), { math });
}

markdown.inline.ruler.before("escape", "math", (state, silent) => {
  MATH.lastIndex = state.pos;
  const found = MATH.exec(state.src);
  if (!found || MATH.lastIndex > state.posMax) return false;
  if (!silent) Object.assign(state.push("math", "", 0), { content: found[1] ?? found[2], block: found[1] !== undefined });
  state.pos = MATH.lastIndex;
  return true;
});

markdown.block.ruler.before(
  "fence",
  "math",
  (state, start, end, silent) => {
    const text = (line: number) => state.getLines(line, line + 1, state.blkIndent, false).trim();
    const closes = (line: number) => text(line).endsWith("$$") && (line > start || text(line).length >= 4);
    if (!text(start).startsWith("$$")) return false;
    let last = start;
    while (last < end && !closes(last)) last++;
    if (last === end) return false;
    if (!silent) {
      const tex = state.getLines(start, last + 1, state.blkIndent, false).trim().slice(2, -2).trim();
      Object.assign(state.push("math", "", 0), { content: tex, block: true });
      state.line = last + 1;
    }
    return true;
  },
  { alt: ["paragraph", "blockquote"] },
);

markdown.core.ruler.push("headings", ({ tokens }) => {
  for (const token of tokens) if (token.tag === "h1") token.tag = "h2"; // the page's own heading is the first level
});

markdown.validateLink = (address) => LINK.test(address);
rules.math = (tokens, i, _options, env: { math: MathRenderer }) => env.math(tokens[i].content, tokens[i].block);
rules.table_open = () => '<div class="table-scroller" tabindex="0" role="region" aria-label="Table"><table>';
rules.table_close = () => "</table></div>";
rules.fence = (tokens, i) => {
  const language = /^\w+/.exec(tokens[i].info.trim());
  const attribute = language ? ` data-language="${language[0]}"` : "";
  return `<pre class="code" tabindex="0"${attribute}><code>${escape(tokens[i].content.replace(/\n$/, ""))}</code></pre>`;
};
rules.link_open = (tokens, i, options, _env, self) => {
  if (/^https?:/.test(String(tokens[i].attrGet("href")))) {
    tokens[i].attrSet("rel", "noreferrer");
    tokens[i].attrSet("target", "_blank");
  }
  return self.renderToken(tokens, i, options);
};
