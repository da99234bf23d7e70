// Python in WebAssembly, as in the course's page, but in Node: runs the code that comes as standard input.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { loadPyodide } from "../../lessons/node_modules/pyodide/pyodide.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const python = await loadPyodide({ env: { HOME: "/home", CHAINRULE_ENGINE: "python" }, packageCacheDir: "/tmp" });
python.FS.mkdirTree("/src");
python.FS.mount(python.FS.filesystems.NODEFS, { root: join(root, "src") }, "/src");
python.runPython("import sys; sys.path.insert(0, '/src')");
process.stdout.write(String(python.runPython(readFileSync(0, "utf8"))));
