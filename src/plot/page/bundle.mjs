// usage: node bundle.mjs SOURCE NODE_MODULES OUT: page.html with the bundled script and the styles in it.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [source, modules, out] = process.argv.slice(2);
const esbuild = createRequire(join(modules, "esbuild", "package.json"))("esbuild");
const { outputFiles } = await esbuild.build({
  entryPoints: [join(source, "page.ts")],
  nodePaths: [modules],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2021",
  charset: "ascii",
  legalComments: "none",
  write: false,
  outdir: "/",
});
const text = (end) => outputFiles.find((f) => f.path.endsWith(end)).text.trim();
const licence = readFileSync(join(modules, "uplot", "LICENSE"), "utf8").trim();  // it asks to be in every copy
// A function, so that no $& of the code means anything.
const page = readFileSync(join(source, "page.html"), "utf8")
  .replace("/*STYLE*/", () => text(".css"))
  .replace("/*SCRIPT*/", () => `/*! uPlot:\n${licence}\n*/${text(".js")}`);
writeFileSync(out, page);
