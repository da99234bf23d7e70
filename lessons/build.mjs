// Builds the site into src/chainrule/learn/site: bundles, Python, fonts, licences, and the course with math typeset.
//
// Usage: node build.mjs, where PYTHON (default python3) can import chainrule. Every asset is a copy of what
// npm has installed; the site asks no other host for anything. A build that fails leaves the site that was there before.

import { execFileSync } from "node:child_process";
import { cp, mkdir, readFile, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";
import katex from "katex";

const here = path.dirname(fileURLToPath(import.meta.url));
const served = path.join(here, "..", "src", "chainrule", "learn", "site");
const site = `${served}.unfinished`;
const modules = path.join(here, "node_modules");

// What is in the site, for the page about licences: package -> licence, where its text is, what it is for.
const MPL = path.join(modules, "axe-core", "LICENSE"); // pyodide's package has no text; this is the same licence
const VENDORED = [
  ["pyodide", "Python in the page", MPL],
  ["codemirror", "the editor"],
  ...["autocomplete", "commands", "lang-python", "language", "lint", "search", "state", "view"].map((name) => [`@codemirror/${name}`, "the editor"]),
  ...["common", "highlight", "lr", "python"].map((name) => [`@lezer/${name}`, "the editor"]),
  ["@marijn/find-cluster-break", "the editor"],
  ["crelt", "the editor"],
  ["style-mod", "the editor"],
  ["w3c-keyname", "the editor"],
  ...["markdown-it", "entities", "linkify-it", "mdurl", "punycode.js", "uc.micro"].map((name) => [name, "the text"]),
  ["uplot", "curves"],
  ["katex", "formulas and their fonts"],
  ["@fontsource-variable/source-serif-4", "the font of the text"],
  ["@fontsource-variable/jetbrains-mono", "the font of the code"],
];
const PYODIDE = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"];

await rm(site, { recursive: true, force: true });
await mkdir(path.join(site, "pyodide"), { recursive: true });
execFileSync(process.env.PYTHON ?? "python3", [path.join(here, "pack.py"), site], { stdio: "inherit" });
await Promise.all([copyPyodide(), copyFonts(), setMath(), collectLicences(), cp(path.join(here, "src", "index.html"), path.join(site, "index.html"))]);
await bundle();
await rm(served, { recursive: true, force: true });
await rename(site, served);
console.log(`built the lessons: ${(await sizeOf(served) / 1e6).toFixed(1)} MB`);

async function copyPyodide() {
  for (const name of PYODIDE) await cp(path.join(modules, "pyodide", name), path.join(site, "pyodide", name));
  const lock = JSON.parse(await readFile(path.join(modules, "pyodide", "pyodide-lock.json"), "utf8"));
  await writeFile(path.join(site, "pyodide", "pyodide-lock.json"), JSON.stringify({ ...lock, packages: {} })); // none are served
}

async function copyFonts() {
  const fonts = path.join(site, "fonts");
  await mkdir(fonts);
  for (const [family, files] of [
    ["source-serif-4", ["latin-opsz-normal", "latin-opsz-italic"]],
    ["jetbrains-mono", ["latin-wght-normal"]],
  ]) {
    for (const file of files) await cp(path.join(modules, "@fontsource-variable", family, "files", `${family}-${file}.woff2`), path.join(fonts, `${family}-${file}.woff2`));
  }
  const katexFonts = path.join(modules, "katex", "dist", "fonts");
  for (const name of await readdir(katexFonts)) if (name.endsWith(".woff2")) await cp(path.join(katexFonts, name), path.join(fonts, name));
  const css = await readFile(path.join(modules, "katex", "dist", "katex.min.css"), "utf8");
  await writeFile(path.join(site, "katex.css"), css.replace(/,url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)/g, ""));
}

/** Typesets math at build time: texts that contain some are stored as HTML beside the course. */
async function setMath() {
  const { outputFiles } = await esbuild.build({ entryPoints: [path.join(here, "src", "course.ts")], bundle: true, write: false, format: "esm" });
  const { markdownTexts, renderMarkdown, renderInline } = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
  const math = (tex, displayMode) => katex.renderToString(tex, { displayMode, output: "htmlAndMathml", throwOnError: true, strict: "error" });
  const file = path.join(site, "course.json");
  const course = JSON.parse(await readFile(file, "utf8"));
  course.rendered = {};
  for (const { text, inline } of markdownTexts(course)) {
    if (!text.includes("$")) continue;
    course.rendered[inline ? `inline:${text}` : text] = inline ? renderInline(text, math) : renderMarkdown(text, math);
  }
  await writeFile(file, JSON.stringify(course));
}

async function collectLicences() {
  const entries = [];
  for (const [name, purpose, text] of VENDORED) {
    const folder = path.join(modules, name);
    const { version, license, repository } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const file = text ?? path.join(folder, (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each)));
    const source = (repository.url ?? `https://github.com/${repository}`).replace(/^git:/, "https:").replace(/^git\+|\.git$/g, "");
    entries.push({ name, version, licence: license, purpose, source, text: await readFile(file, "utf8") });
  }
  entries.push({ name: "CPython", version: "as in pyodide", licence: "PSF-2.0", purpose: "Python in the page", source: "https://github.com/python/cpython", text: await readFile(path.join(here, "licences", "cpython.txt"), "utf8") });
  await writeFile(path.join(site, "licences.json"), JSON.stringify(entries));
}

async function bundle() {
  const parts = [...PYODIDE.map((name) => path.join(site, "pyodide", name)), path.join(site, "pyodide", "pyodide-lock.json"), path.join(site, "chainrule.zip")];
  const bytes = (await Promise.all(parts.map((part) => stat(part)))).reduce((sum, { size }) => sum + size, 0);
  const { metafile } = await esbuild.build({
    entryPoints: { main: path.join(here, "src", "main.ts"), worker: path.join(here, "src", "worker.ts"), styles: path.join(here, "src", "styles.css") },
    outdir: site,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2023",
    legalComments: "none", // the page about licences has them whole
    external: ["*.woff2"],
    loader: { ".py": "text" },
    define: { PYTHON_BYTES: String(bytes) },
    logLevel: "warning",
    metafile: true,
  });
  const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs).filter((file) => inputs[file].bytesInOutput));
  const packages = bundled.flatMap((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []);
  const unlisted = new Set(packages.filter((name) => !VENDORED.some(([listed]) => listed === name)));
  if (unlisted.size) throw new Error(`the page about licences lacks ${[...unlisted].join(", ")}: add them to VENDORED`);
}

async function sizeOf(folder) {
  let total = 0;
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) total += (await stat(path.join(entry.parentPath ?? entry.path, entry.name))).size;
  }
  return total;
}
