// Builds the page into a folder. The same sources and locked packages give the same bytes.
import { createHash } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.resolve(process.argv[2] ?? path.join(here, "dist"));

/** Replaces a text that must be there exactly so often. */
function replaced(source, what, by, times) {
  const parts = source.split(what);
  if (parts.length !== times + 1) {
    throw new Error(`expected ${times} times in xterm.js, found ${parts.length - 1}: ${what}`);
  }
  return parts.join(by);
}

/**
 * Lets xterm.js live under the strict Content-Security-Policy: it makes <style> elements and style
 * attributes, which that policy forbids. In their places stand constructed style sheets and the
 * style properties of elements, which it allows.
 */
const strictStyles = {
  name: "strict-styles",
  setup(build) {
    build.onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, async ({ path: file }) => {
      let source = await fs.readFile(file, "utf8");
      source = replaced(source, 'n.mainDocument.createElement("style")', "styleHolder()", 1);
      source = replaced(source, 'this._document.createElement("style")', "styleHolder()", 2);
      source = replaced(
        source,
        't.setAttribute("style",`${t.getAttribute("style")||""}${e};`)',
        "t.style.cssText+=`${e};`",
        1,
      );
      if (source.includes('"style")')) {
        throw new Error("xterm.js makes another style");
      }
      const holder = JSON.stringify(path.join(here, "src/terminal/styles.ts"));
      return { contents: `import{styleHolder}from${holder};${source}`, loader: "js" };
    });
  },
};

const common = {
  absWorkingDir: here,
  bundle: true,
  charset: "utf8",
  format: "esm",
  legalComments: "none",
  logLevel: "warning",
  minify: true,
  target: ["es2022", "chrome109", "firefox115", "safari16"],
  write: false,
};

async function built(options) {
  const { outputFiles } = await esbuild.build({ ...common, ...options });
  return outputFiles[0].contents;
}

/** The address of a file that changes with what is in it. */
const versioned = (name, bytes) =>
  `${name}?v=${createHash("sha256").update(bytes).digest("hex").slice(0, 16)}`;

const icon = await fs.readFile(path.join(here, "src/icon.svg"));
const terminal = await built({
  entryPoints: ["src/terminal/terminal.ts"],
  loader: { ".css": "text" },
  plugins: [strictStyles],
});
const script = await built({
  entryPoints: ["src/main.tsx"],
  jsx: "automatic",
  jsxImportSource: "preact",
  // It is loaded by the browser, when somebody opens a terminal.
  external: ["./terminal.js*"],
  define: { TERMINAL_URL: JSON.stringify(`./${versioned("terminal.js", terminal)}`) },
});
const style = await built({ entryPoints: ["src/page.css"] });
const html = (await fs.readFile(path.join(here, "src/index.html"), "utf8"))
  .replace('"page.css"', `"${versioned("page.css", style)}"`)
  .replace('"page.js"', `"${versioned("page.js", script)}"`)
  .replace('"icon.svg"', `"${versioned("icon.svg", icon)}"`);

await fs.mkdir(target, { recursive: true });
const files = { "index.html": html, "page.js": script, "page.css": style };
Object.assign(files, { "terminal.js": terminal, "icon.svg": icon });
for (const [name, bytes] of Object.entries(files)) {
  await fs.writeFile(path.join(target, name), bytes);
  console.log(`${name} ${bytes.length}`);
}
