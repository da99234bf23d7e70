// Markdown to HTML: the part of it that lessons use. Whatever is not Markdown is escaped, so lessons hold no HTML.
//
// Headings, paragraphs, lists, quotations, tables, code, links, emphasis, and math between dollar signs, which `math`
// turns into HTML: KaTeX when the site is built, plain code in the page.

export type MathRenderer = (tex: string, display: boolean) => string;

const plainMath: MathRenderer = (tex, display) =>
  display ? `<pre class="math"><code>${escape(tex)}</code></pre>` : `<code class="math">${escape(tex)}</code>`;

export function renderMarkdown(text: string, math: MathRenderer = plainMath): string {
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), math);
}

/** One line's worth: no paragraph around it. */
export function renderInline(text: string, math: MathRenderer = plainMath): string {
  return inline(text.trim(), math);
}

export function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*(\w*)/;
const ITEM = /^( *)([-*+]|\d+[.)])\s+(.*)$/;

function blocks(lines: string[], math: MathRenderer): string {
  const out: string[] = [];
  let i = 0;
  const take = (keep: (line: string) => boolean) => {
    const start = i;
    while (i < lines.length && keep(lines[i])) i++;
    return lines.slice(start, i);
  };
  while (i < lines.length) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (!line.trim()) {
      i++;
    } else if (fence) {
      i++;
      const code = take((other) => !other.trimStart().startsWith(fence[1]));
      i++;
      out.push(`<pre class="code" tabindex="0"${fence[2] ? ` data-language="${fence[2]}"` : ""}><code>${escape(code.join("\n"))}</code></pre>`);
    } else if (line.trim().startsWith("$$")) {
      const first = i++;
      if (line.trim() === "$$" || !line.trim().endsWith("$$") || line.trim().length < 4) {
        take((other) => !other.trim().endsWith("$$"));
        i++;
      }
      out.push(math(lines.slice(first, i).join("\n").trim().replace(/^\$\$|\$\$$/g, "").trim(), true));
    } else if (heading) {
      i++;
      const level = Math.max(2, heading[1].length); // the page's own heading is the first level
      out.push(`<h${level}>${inline(heading[2], math)}</h${level}>`);
    } else if (line.startsWith(">")) {
      const quoted = take((other) => other.startsWith(">")).map((other) => other.replace(/^> ?/, ""));
      out.push(`<blockquote>${blocks(quoted, math)}</blockquote>`);
    } else if (/^\|/.test(line) && /^\|[\s:|-]+\|?\s*$/.test(lines[i + 1] ?? "")) {
      out.push(table(take((other) => other.startsWith("|")), math));
    } else if (ITEM.test(line)) {
      out.push(list(take((other) => ITEM.test(other) || /^\s+\S/.test(other)), math));
    } else if (/^(-{3,}|\*{3,})\s*$/.test(line)) {
      i++;
      out.push("<hr>");
    } else {
      const paragraph = take(
        (other) => other.trim() !== "" && !FENCE.test(other) && !/^#{1,6}\s/.test(other) && !/^(>|\|)/.test(other) && !other.trim().startsWith("$$") && !ITEM.test(other),
      );
      if (paragraph.length === 0) paragraph.push(lines[i++]);
      out.push(`<p>${inline(paragraph.join("\n"), math)}</p>`);
    }
  }
  return out.join("\n");
}

function list(lines: string[], math: MathRenderer): string {
  const first = ITEM.exec(lines[0]) as RegExpExecArray;
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items: string[][] = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent) items.push([item[3]]);
    else items[items.length - 1].push(line.replace(/^ {1,4}/, ""));
  }
  const tag = ordered ? "ol" : "ul";
  const rendered = items.map((item) => {
    const nested = item.findIndex((line, k) => k > 0 && ITEM.test(line));
    const own = nested < 0 ? item : item.slice(0, nested);
    return `<li>${inline(own.join("\n"), math)}${nested < 0 ? "" : list(item.slice(nested), math)}</li>`;
  });
  return `<${tag}>${rendered.join("")}</${tag}>`;
}

function table(lines: string[], math: MathRenderer): string {
  const rows = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|")));
  const cells = (row: string[], tag: string) => `<tr>${row.map((cell) => `<${tag}>${inline(cell, math)}</${tag}>`).join("")}</tr>`;
  const body = rows.slice(2).map((row) => cells(row, "td")).join("");
  return `<div class="table-scroller" tabindex="0" role="region" aria-label="Table"><table><thead>${cells(rows[0], "th")}</thead><tbody>${body}</tbody></table></div>`;
}

const INLINE = /(`+)(.+?)\1|\$\$(.+?)\$\$|\$(?! )((?:\\.|[^$\\])+?)(?<! )\$(?!\d)|\[([^\]]+)\]\(([^)\s]+)\)|\*\*(.+?)\*\*|(?<![\w*])[*_](?![\s*_])(.+?)(?<!\s)[*_](?![\w*])|\\([\\`*_$[\]#|])/gs;

function inline(text: string, math: MathRenderer): string {
  let out = "";
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    out += escape(text.slice(last, match.index));
    last = match.index + match[0].length;
    const [, , code, shown, formula, words, address, strong, emphasis, literal] = match;
    if (code !== undefined) out += `<code>${escape(code.replace(/^ (.*) $/s, "$1"))}</code>`;
    else if (shown !== undefined) out += math(shown, true);
    else if (formula !== undefined) out += math(formula, false);
    else if (words !== undefined) out += link(words, address, math);
    else if (strong !== undefined) out += `<strong>${inline(strong, math)}</strong>`;
    else if (emphasis !== undefined) out += `<em>${inline(emphasis, math)}</em>`;
    else out += escape(literal);
  }
  return out + escape(text.slice(last));
}

function link(words: string, address: string, math: MathRenderer): string {
  if (!/^(https?:|#|\.{0,2}\/|[\w-]+\.html)/.test(address)) return inline(words, math);
  const away = /^https?:/.test(address) ? ' rel="noreferrer" target="_blank"' : "";
  return `<a href="${escape(address)}"${away}>${inline(words, math)}</a>`;
}
