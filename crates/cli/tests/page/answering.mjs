// The page decides which keys answer as `legwork top` and the prompt do: the same cases, and 500
// random typings.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import * as esbuild from "esbuild";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "answering-"));
process.on("exit", () => fs.rmSync(folder, { recursive: true }));
const outfile = path.join(folder, "answering.mjs");
await esbuild.build({ entryPoints: ["src/model/answering.ts"], outfile, format: "esm" });
const { Answering } = await import(outfile);
const { letters, moves, cases } = JSON.parse(fs.readFileSync("answering.json", "utf8"));

/** A face: what is shown, and what its keys do. */
function face() {
  const answering = new Answering();
  let subject = "";
  return {
    show(next, nowMs) {
      answering.show((subject = next), nowMs);
    },
    press(name, nowMs) {
      const key = ["Enter", "Text", "Click", "Other"].includes(name) ? name : { letter: name };
      const offered = { subject, letters: subject ? letters : "", moves };
      const pressed = answering.press(key, offered, nowMs);
      return typeof pressed === "string" ? pressed : Object.entries(pressed).flat().join(" ");
    },
  };
}

for (const { name, steps } of cases) {
  const { show, press } = face();
  for (const [nowMs, what, expected] of steps) {
    if (expected === undefined) show(what.slice("show".length).trim(), nowMs);
    else assert.equal(press(what, nowMs), expected, `${name}: ${what} at ${nowMs}`);
  }
}

// A generator of its own, so that what fails can be tried again.
let seed = Number(process.env.LEGWORK_SEED ?? Date.now() % 2 ** 31);
console.log(`seed ${seed}`);
const below = (end) => {
  seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
  return Math.floor((seed / 0x80000000) * end);
};
const CHARACTERS = [..."tayosrnNjkdeilpuwxTAYOSR,.!?'-é7"];
const BEHIND = ["Enter", " ", ".", "Text", "Other"];

for (let run = 0; run < 500; run += 1) {
  const { show, press } = face();
  let nowMs = 0;
  let questions = 0;
  const next = () => show(`question ${(questions += 1)}`, nowMs);
  const appearsMs = below(4000);
  for (let word = 1 + below(11); word > 0; word -= 1) {
    const typed = Array.from({ length: 2 + below(7) }, () => CHARACTERS[below(CHARACTERS.length)]);
    // Behind another key a letter is not by itself.
    if (below(2) === 0) typed[0] = ["Enter", "Other"][below(2)];
    nowMs += below(1900);
    for (const name of [...typed, BEHIND[below(BEHIND.length)]]) {
      nowMs += 30 + below(920);
      if ((questions === 0 && nowMs >= appearsMs) || (questions > 0 && below(30) === 0)) next();
      const gave = press(name, nowMs);
      assert(!gave.startsWith("confirms"), `run ${run}: ${name} at ${nowMs}`);
      if (gave.startsWith("denies")) next();
    }
  }
}
console.log("all well");
