// A dangerous command is tried first on the page; what it would remove is seen; then it is refused,
// or applied. And what was tried, as a list.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import {
  PHONE,
  accessible,
  allow,
  confirm,
  given,
  model,
  openAs,
  openByLink,
  picture,
  script,
  until,
} from "./browser.mjs";

const file = (name) => path.join(given.workspace, name);
const made = (name) => fs.existsSync(file(name));

/** A project with files that git does not know. */
function project() {
  fs.mkdirSync(file("build"));
  fs.writeFileSync(file("known.txt"), "known\n");
  const git = (...words) =>
    execFileSync("git", ["-c", "user.name=n", "-c", "user.email=e@x", ...words], {
      cwd: given.workspace,
    });
  git("init", "-q");
  git("add", "known.txt");
  git("commit", "-qm", "one");
  fs.writeFileSync(file("notes.txt"), "what I wanted to say\n");
  fs.writeFileSync(file("build/program.o"), "an object\n");
}

/** Has a command tried, as `legwork try` does it. */
const tries = (text) =>
  execFileSync(given.program, ["try", "--state", given.state, "--sh", text], {
    cwd: given.workspace,
    stdio: "pipe",
  });

await script(async () => {
  project();
  const phone = await openByLink({ size: PHONE, isTouch: true });
  const desk = await openAs("operator", { scheme: "dark" });
  const viewer = await openAs("viewer");
  for (const { page } of [phone, desk]) {
    await page.getByText("No command waits for an answer").waitFor();
  }

  // On a phone: tried first, seen, answered no.
  const card = phone.page.getByRole("article");
  const refused = model("git clean -fdx");
  await card.waitFor();
  await allow(card, "Try it first");
  const tried = phone.page.getByLabel("What it did when it was tried on a copy");
  await tried.waitFor();
  const files = await tried.getByLabel("Changed files").innerText();
  for (const part of ["notes.txt", "build/program.o", "removed"]) {
    assert(files.includes(part), `${part} in ${files}`);
  }
  assert((await tried.innerText()).includes("2 removed"));
  const difference = await tried.getByLabel("Difference").innerText();
  assert(difference.includes("-what I wanted to say"), difference);
  assert.equal(await phone.page.getByRole("button", { name: "Try it first" }).count(), 0);
  assert(made("notes.txt") && made("build/program.o"), "nothing has happened yet");
  await accessible(phone, "a command that was tried, on a phone");
  const width = await phone.page.evaluate(() => document.documentElement.scrollWidth);
  assert(width <= PHONE.width, `nothing is wider than the phone: ${width}`);
  await picture(phone, "trial-phone");
  // Who looks on sees the same, and has no button.
  await viewer.page.getByLabel("Difference").waitFor();
  for (const name of ["Apply", "Try it first", "Deny"]) {
    assert.equal(await viewer.page.getByRole("button", { name }).count(), 0, name);
  }
  await card.getByRole("button", { name: "Deny with a note…" }).click();
  await card.getByRole("textbox").fill("my notes are in there");
  await card.getByRole("textbox").press("Enter");
  assert((await refused).includes("the person says: my notes are in there"), await refused);
  assert(made("notes.txt") && made("build/program.o"));

  // At a desk, by keys: t, then a; what was tried is applied, and the command does not run again.
  // Each key is for the question that is meant: the one before is seen to be gone first.
  await desk.page.getByText("No command waits for an answer").waitFor();
  // Nothing hides in what it shows, and nothing of it is taken as HTML.
  fs.writeFileSync(file("build/<img src=x onerror=alert(1)>.txt"), "odd \u202e text\n");
  const takesKeys = desk.page.locator(".question.takes-keys");
  const triedOut = takesKeys.filter({ has: desk.page.getByLabel("Difference") });
  const applied = model("rm -rf build && date +%N > stamp");
  await takesKeys.filter({ hasText: "rm -rf build" }).waitFor();
  await confirm(desk.page, "t");
  await triedOut.waitFor();
  await accessible(desk, "a command that was tried, in the dark");
  const shown = await desk.page.getByLabel("Difference").innerText();
  assert(shown.includes("<img src=x onerror=alert(1)>.txt"), shown);
  assert(shown.includes("-odd \\u{202e} text"), shown);
  assert.equal(await desk.page.locator("img").count(), 0);
  const stamp = /\+(\d{9})/.exec(shown)[1];
  assert(made("build") && !made("stamp"));
  await confirm(desk.page, "a");
  assert((await applied).startsWith("Process exited with code 0"), await applied);
  assert(!made("build"));
  assert.equal(fs.readFileSync(file("stamp"), "utf8").trim(), stamp, "it ran once, on the copy");

  // The list of trials: looked at by all, applied and discarded by an operator.
  tries("echo one > one.txt; rm known.txt; printf '<b>bold</b>\\033[31m\\n' > two.txt");
  tries("echo unwanted > unwanted.txt");
  for (const window of [desk, viewer, phone]) {
    await window.page.goto(`${given.address}/#/trials`);
    await window.page.getByText("2 commands ran on a copy").waitFor();
    await accessible(window, "trials");
  }
  const wide = await phone.page.evaluate(() => document.documentElement.scrollWidth);
  assert(wide <= PHONE.width, `nothing is wider than the phone: ${wide}`);
  const show = (page, command) => page.getByRole("article").filter({ hasText: command });
  const seen = show(viewer.page, "echo one");
  await seen.getByRole("button", { name: "Show changes" }).click();
  await seen.getByText("2 made, 1 removed").waitFor();
  assert.equal(await seen.getByRole("button", { name: "Apply" }).count(), 0);
  assert.equal(await seen.getByRole("button", { name: "Discard" }).count(), 0);
  const unwanted = show(desk.page, "echo unwanted");
  await unwanted.getByRole("button", { name: "Discard…" }).click();
  await unwanted.getByRole("button", { name: "Keep it" }).click();
  await unwanted.getByRole("button", { name: "Discard…" }).click();
  await allow(unwanted, "Discard it");
  await unwanted.waitFor({ state: "detached" });
  assert(!made("unwanted.txt"));
  const wanted = show(desk.page, "echo one");
  await wanted.getByRole("button", { name: "Show changes" }).click();
  const lines = await wanted.getByLabel("Difference").innerText();
  assert(lines.includes("+<b>bold</b>\\u{1b}[31m") && lines.includes("-known"), lines);
  await accessible(desk, "what a trial would change");
  // What somebody changed meanwhile is not overwritten, and that is said.
  fs.writeFileSync(file("known.txt"), "changed by a person\n");
  await wanted.getByRole("button", { name: "Apply…" }).click();
  await allow(wanted, "Apply them");
  await wanted.getByRole("alert").waitFor();
  assert(!made("one.txt"));
  fs.writeFileSync(file("known.txt"), "known\n");
  await wanted.getByRole("button", { name: "Discard…" }).click();
  await allow(wanted, "Discard it");
  await desk.page.getByText("No trials.").waitFor();

  // What is typed at the button that applies, or at the one that discards, does neither; a letter
  // by itself and then Enter does.
  const typed = async (text) => {
    for (const letter of text) {
      await desk.page.keyboard.press(letter === " " ? "Space" : letter);
      await new Promise((done) => setTimeout(done, 110));
    }
  };
  tries("echo typed > typed.txt");
  const typedAt = show(desk.page, "echo typed");
  await typedAt.getByRole("button", { name: "Show changes" }).click();
  await typedAt.getByLabel("Difference").waitFor();
  for (const [opens, asks] of [["Apply…", "Apply them"], ["Discard…", "Discard it"]]) {
    for (const text of ["looks ok to me", "wait", "d a", "no wait stop"]) {
      if (!(await typedAt.getByRole("button", { name: asks }).isVisible()))
        await typedAt.getByRole("button", { name: opens }).click();
      // So long that a click would count.
      await typedAt.getByRole("button", { name: asks }).and(desk.page.locator("[data-settled]")).waitFor();
      await typed(text);
      if (text !== "no wait stop") await desk.page.getByText("Typing answers nothing").waitFor();
      await desk.page.keyboard.press("Enter");
      assert(!made("typed.txt"), `${asks}: ${text}`);
      assert.equal(await typedAt.count(), 1, `${asks}: ${text}`);
    }
  }
  await typedAt.getByRole("button", { name: "Apply…" }).click();
  // Once nothing was typed for a while.
  await new Promise((done) => setTimeout(done, 3500));
  await desk.page.keyboard.press("a");
  await desk.page.getByText("Apply them? Enter confirms").waitFor();
  await desk.page.keyboard.press("Enter");
  await until("it is applied by keys", () => made("typed.txt"));
  await desk.page.getByText("No trials.").waitFor();

  // One that begins while the page looks on; applied from its task.
  tries("echo three > three.txt");
  await desk.page.getByText("1 command ran on a copy").waitFor();
  await desk.page.getByRole("link", { name: "its task and output" }).click();
  await desk.page.getByRole("heading", { name: "It ran on a copy" }).waitFor();
  await desk.page.getByLabel("Difference").waitFor();
  await accessible(desk, "the task of a trial");
  await desk.page.getByRole("button", { name: "Apply…" }).click();
  await allow(desk.page, "Apply them");
  await until("it is applied", () => made("three.txt"));
  await desk.page
    .getByRole("heading", { name: "It ran on a copy" })
    .waitFor({ state: "detached" });
});
